"""The semantics behind HTTP, synchronous and in process: the controllers' way to the cluster.

One asyncio thread calls it; nothing here awaits, so every operation is atomic. Results are
shared with all readers: never change one.
"""

import collections
import collections.abc
import contextlib
import dataclasses

from bitts.core import logs

from devcluster import (
    admission,
    apply,
    crds,
    defaults,
    errors,
    metadata,
    patching,
    selectors,
    shapes,
    validation,
)
from devcluster.metadata import DeleteOptions
from devcluster.resources import Object, Registry, Resource
from devcluster.store import Collection, Key, Store, Stored, Subscriber, decode, encode

_log = logs.get("api")

Transform = collections.abc.Callable[[Object], Object]

WRITES_REMEMBERED = 10_000


class Api:
    """Create, read, change, delete and watch objects under the rules of their kinds."""

    def __init__(self, store: Store | None = None, registry: Registry | None = None) -> None:
        self.store = store or Store()
        self.registry = registry or Registry()
        self.writes: collections.deque[tuple[int, str, str]] = collections.deque(
            maxlen=WRITES_REMEMBERED
        )
        """The latest writes but deletions: revision, who wrote, subresource."""

    # ---- what controllers use

    def resource(self, plural: str, group: str = "") -> Resource:
        """Return a served resource; raises ApiError 404."""
        return self.registry.resource(plural, group)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None."""
        found = self.collection(resource).objects.get((namespace, name))
        return found.value if found else None

    def list(
        self, resource: Resource, namespace: str | None = None, selector: str | None = None
    ) -> list[Object]:
        """Return objects of one namespace or of all, optionally by label selector."""
        matches = selectors.compile_selectors(resource, label=selector or "")
        return [
            stored.value
            for key, stored in self.collection(resource).objects.items()
            if namespace in (None, "", key[0]) and matches(stored.value)
        ]

    def create(
        self, resource: Resource, obj: Object, namespace: str = "", *, manager: str = "devcluster"
    ) -> Object:
        """Create an object; raises ApiError 409 AlreadyExists, 422 Invalid, 403, 404."""
        return self.insert(resource, decode(encode(obj)), namespace, manager=manager).value

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        resource_version: str | None = None,
        manager: str = "devcluster",
    ) -> Object:
        """Apply a JSON merge patch (RFC 7386); raises ApiError 404, 409 Conflict, 422 Invalid."""
        if resource_version is not None:
            given = {**(patch.get("metadata") or {}), "resourceVersion": resource_version}
            patch = {**patch, "metadata": given}
        return self.modify(
            resource,
            (namespace, name),
            lambda old: patching.merge(old, patch),
            subresource=subresource,
            manager=manager,
        ).value

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace: int | None = None,
    ) -> Object:
        """Delete or mark for deletion; returns the last or the marked state. Raises 404, 409."""
        options = DeleteOptions(grace=grace, propagation=propagation, uid=uid)
        return self.remove(resource, (namespace, name), options).value

    def subscribe(
        self, resource: Resource, callback: Subscriber
    ) -> collections.abc.Callable[[], None]:
        """Call back with (type, old, new) right after each change; returns how to stop it.

        The callback must only note what happened: it runs inside the writer's request.
        """
        subscribers = self.collection(resource).subscribers
        subscribers.append(callback)
        return lambda: subscribers.remove(callback)

    # ---- what HTTP needs beyond it

    def collection(self, resource: Resource) -> Collection:
        """Return where a resource's objects are kept."""
        return self.store.collection(resource.storage)

    def insert(
        self,
        resource: Resource,
        obj: Object,
        namespace: str,
        *,
        manager: str,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Stored:
        """Create from a value that nobody else holds; ``strict`` refuses unknown fields."""
        self._conform(resource, obj, strict=strict)
        if resource.namespaced:
            namespace = namespace or obj.get("metadata", {}).get("namespace", "")
        objects = self.collection(resource).objects
        obj = metadata.begin(resource, obj, namespace, lambda name: (namespace, name) in objects)
        with _wrong_types_refused(resource):
            admission.before_create(self, resource, obj)
            if resource.custom:
                obj = crds.admit(resource, obj)
            defaults.on_create(resource, obj)
            causes = metadata.check(resource, obj["metadata"])
            causes += validation.on_create(resource, obj)
        name = obj["metadata"].get("name", "")
        if causes:
            raise errors.invalid(resource.group, resource.kind, name, causes)
        collection, key = self.collection(resource), (namespace, name)
        if key in collection.objects:
            raise errors.already_exists(resource.group, resource.plural, name)
        if dry_run:
            return Stored(obj, 0)
        stored = self.store.put(collection, key, obj, manager)
        self.writes.append((stored.revision, manager, ""))
        return self._committed(resource, stored)

    def require(self, resource: Resource, key: Key) -> Stored:
        """Return an object; raises ApiError 404."""
        found = self.collection(resource).objects.get(key)
        if found is None:
            raise errors.not_found(resource.group, resource.plural, key[1])
        return found

    def modify(
        self,
        resource: Resource,
        key: Key,
        transform: Transform,
        *,
        subresource: str = "",
        manager: str,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Stored:
        """Change an object; ``transform`` gets the old value and returns a new one.

        A resourceVersion or uid in the result is a precondition. Without a manager the
        transform has seen to managedFields itself. ``strict`` refuses unknown fields.
        """
        old = self.require(resource, key)
        with _wrong_types_refused(resource):
            new: Object = decode(encode(transform(old.value)))
            self._conform(resource, new, strict=strict)
            new = self._changed_value(resource, old, new, subresource)
            if new == old.value:
                return old
            if manager and "managedFields" in new["metadata"]:
                new["metadata"]["managedFields"] = apply.track(
                    old.value, new, resource.schema, manager, subresource, metadata.now()
                )
            admission.before_update(self, resource, old.value, new, subresource)
            causes = metadata.check(resource, new["metadata"])
            causes += metadata.check_update(old.value, new)
            causes += validation.on_update(resource, old.value, new, subresource)
        if causes:
            raise errors.invalid(resource.group, resource.kind, key[1], causes)
        if dry_run:
            return Stored(new, old.revision)
        collection = self.collection(resource)
        if metadata.is_gone(new):
            # Watchers get the last state that was stored, whoever lets go gets his own.
            last = {**old.value, "metadata": dict(old.value["metadata"])}
            removed = self._committed(resource, self.store.remove(collection, key, last))
            new["metadata"]["resourceVersion"] = str(removed.revision)
            return Stored(new, removed.revision)
        stored = self.store.put(collection, key, new)
        self.writes.append((stored.revision, manager, subresource))
        return self._committed(resource, stored)

    def _conform(self, resource: Resource, obj: Object, *, strict: bool) -> None:
        unknown = shapes.conform(resource, obj)
        if strict:
            shapes.refuse_unknown(resource, unknown)

    def _changed_value(
        self, resource: Resource, old: Stored, new: Object, subresource: str
    ) -> Object:
        self._check_identity(resource, old, new)
        new = metadata.carry_over(resource, old.value, new, subresource)
        if resource.custom:
            new = crds.admit(resource, new)
        defaults.on_update(resource, old.value, new)
        return new

    def apply(
        self,
        resource: Resource,
        key: Key,
        request: apply.Applied,
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> tuple[Stored, bool]:
        """Apply a configuration; returns the object and whether it is new. Raises 409, 422."""
        self._conform(resource, request.patch, strict=strict)
        old = self.collection(resource).objects.get(key)
        now = metadata.now()
        if old is None and not request.subresource:
            obj = apply.create(request, resource.schema, now)
            if obj["metadata"].setdefault("name", key[1]) != key[1]:
                raise errors.bad_request(f"metadata.name must be {key[1]}, the name on the URL")
            return self.insert(
                resource, obj, key[0], manager=request.manager, dry_run=dry_run
            ), True
        if old is not None:
            request = dataclasses.replace(request, creator=old.manager)
        stored = self.modify(
            resource,
            key,
            lambda live: apply.onto(live, request, resource.schema, now),
            subresource=request.subresource,
            manager="",
            dry_run=dry_run,
        )
        return stored, False

    def _check_identity(self, resource: Resource, old: Stored, new: Object) -> None:
        before = old.value["metadata"]
        after = new.get("metadata")
        if not isinstance(after, dict):
            raise errors.bad_request("metadata: must be an object")
        for name in ("name", "namespace"):
            if after.get(name, "") != before.get(name, ""):
                what = f"the {name} of the object ({after.get(name, '')}) does not match the {name}"
                raise errors.bad_request(f"{what} on the URL ({before.get(name, '')})")
        revision = after.get("resourceVersion")
        about = (resource.group, resource.plural, before["name"])
        if after.get("uid") not in (None, "", before["uid"]):
            why = f"Precondition failed: UID in precondition: {after['uid']}, UID in object meta: "
            raise errors.conflict(*about, why + before["uid"])
        if revision and revision != before["resourceVersion"]:
            raise errors.conflict(*about, errors.MODIFIED)

    def remove(self, resource: Resource, key: Key, options: DeleteOptions) -> Stored:
        """Delete an object, or mark it for deletion while finalizers or grace hold it."""
        old = self.require(resource, key)
        self._check_preconditions(resource, old, options)
        admission.before_delete(resource, old.value)
        new = metadata.mark_deleted(resource, old.value, options)
        if options.dry_run:
            return Stored(new, old.revision)
        collection = self.collection(resource)
        if metadata.is_gone(new):
            last = {**old.value, "metadata": dict(old.value["metadata"])}
            return self._committed(resource, self.store.remove(collection, key, last))
        if new == old.value:
            return old
        return self._committed(resource, self.store.put(collection, key, new))

    def _check_preconditions(self, resource: Resource, old: Stored, options: DeleteOptions) -> None:
        have = old.value["metadata"]
        pairs = (("UID", options.uid, have["uid"]),
                 ("ResourceVersion", options.revision, have["resourceVersion"]))  # fmt: skip
        for name, wanted, found in pairs:
            if wanted is not None and wanted != found:
                what = f"Precondition failed: {name} in precondition: {wanted}"
                why = f"{what}, {name} in object meta: {found}"
                raise errors.conflict(resource.group, resource.plural, have["name"], why)

    def _committed(self, resource: Resource, stored: Stored) -> Stored:
        if resource.kind == "CustomResourceDefinition":
            found = self.collection(resource).objects.get(("", stored.value["metadata"]["name"]))
            if found is None:
                self._serve_no_more(stored.value)
            else:
                self.serve(stored.value)
        return stored

    def serve(self, crd: Object) -> None:
        """Serve what a CustomResourceDefinition declares."""
        spec = crd["spec"]
        self.registry.replace(spec["group"], spec["names"]["plural"], crds.rows(crd))

    def _serve_no_more(self, crd: Object) -> None:
        """Take a custom resource away with all its objects, whatever finalizers they have."""
        spec = crd["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        self.registry.replace(group, plural, [])
        collection = self.store.collection(f"{plural}.{group}")
        for key, stored in list(collection.objects.items()):
            last = {**stored.value, "metadata": dict(stored.value["metadata"])}
            self.store.remove(collection, key, last)
        self.store.drop(collection.name)


@contextlib.contextmanager
def _wrong_types_refused(resource: Resource) -> collections.abc.Iterator[None]:
    """Refuse what trips over a value of the wrong JSON type, as decoding into Go types would."""
    try:
        yield
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        _log.info("Wrong types in an object", resource=resource.qualified, err=error)
        where = f'{resource.kind} in version "{resource.version}" cannot be handled as a'
        raise errors.bad_request(f"{where} {resource.kind}: {error}") from error
