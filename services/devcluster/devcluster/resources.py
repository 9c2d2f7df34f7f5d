"""The table of what is served: one frozen row per resource, and the registry that CRDs extend.

The rows hold facts only (names, scope, subresources, selectable fields); rules of a kind are in
``validation`` and ``defaults``, its columns in ``tables``.
"""

import collections.abc
from dataclasses import dataclass, field
from typing import Any

from devcluster import errors

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource type in one API version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Paths that field selectors may name besides metadata.name and metadata.namespace."""
    generation: bool = False
    """Whether metadata.generation counts changes outside metadata and status."""
    unconditional: bool = True
    """Whether an update may leave resourceVersion out."""
    view_of: str = ""
    """Storage key when this row shows another row's objects under other field names."""
    singular: str = ""
    custom: bool = False
    schema: collections.abc.Mapping[str, Any] = field(
        default_factory=dict, compare=False, hash=False
    )
    columns: tuple[collections.abc.Mapping[str, Any], ...] = field(
        default=(), compare=False, hash=False
    )

    @property
    def api_version(self) -> str:
        """Return group/version as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Return plural.group, as error texts and counters spell it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """Return the key under which objects are stored, the same for every version and view."""
        return self.view_of or self.qualified


_STORAGE = "storage.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_STATUS = ("status",)
_EVENT_FIELDS = (
    *("reason", "type", "source", "reportingComponent", "involvedObject.kind"),
    *("involvedObject.namespace", "involvedObject.name", "involvedObject.uid"),
    *("involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath"),
)
_POD_FIELDS = (
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    *("spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
)


def _row(
    path: str, kind: str, short: str = "", *, namespaced: bool = True, **more: Any
) -> Resource:
    *group, version, plural = path.split("/")
    names = tuple(short.split())
    return Resource("".join(group), version, plural, kind, namespaced, names, **more)


BUILTIN: tuple[Resource, ...] = (
    _row(
        "v1/namespaces", "Namespace", "ns", namespaced=False, subresources=("status", "finalize"),
        fields=("status.phase",),
    ),
    _row(
        "v1/nodes", "Node", "no", namespaced=False, subresources=_STATUS,
        fields=("spec.unschedulable",),
    ),
    _row(
        "v1/pods", "Pod", "po", subresources=("status", "binding"), fields=_POD_FIELDS,
        categories=("all",), generation=True,
    ),
    _row("v1/configmaps", "ConfigMap", "cm"),
    _row("v1/secrets", "Secret", fields=("type",)),
    _row("v1/serviceaccounts", "ServiceAccount", "sa"),
    _row("v1/services", "Service", "svc", subresources=_STATUS, categories=("all",)),
    _row("v1/events", "Event", "ev", fields=_EVENT_FIELDS),
    _row("v1/persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources=_STATUS),
    _row(
        "v1/persistentvolumes", "PersistentVolume", "pv", namespaced=False, subresources=_STATUS
    ),
    _row(
        "events.k8s.io/v1/events", "Event", "ev", view_of="events",
        fields=tuple(name.replace("involvedObject", "regarding") for name in _EVENT_FIELDS),
    ),
    _row("coordination.k8s.io/v1/leases", "Lease", unconditional=False),
    _row(f"{_STORAGE}/v1/storageclasses", "StorageClass", "sc", namespaced=False),
    _row(
        f"{_STORAGE}/v1/volumeattachments", "VolumeAttachment", namespaced=False,
        subresources=_STATUS, unconditional=False,
    ),
    _row(f"{_STORAGE}/v1/csidrivers", "CSIDriver", namespaced=False, unconditional=False),
    _row(
        f"{_STORAGE}/v1/csinodes", "CSINode", namespaced=False, unconditional=False,
        subresources=_STATUS,
    ),
    _row(f"{_STORAGE}/v1/csistoragecapacities", "CSIStorageCapacity", unconditional=False),
    _row(
        f"{_STORAGE}/v1/volumeattributesclasses", "VolumeAttributesClass", "vac", namespaced=False
    ),
    _row("networking.k8s.io/v1/networkpolicies", "NetworkPolicy", "netpol", generation=True),
    _row(f"{_RBAC}/v1/roles", "Role"),
    _row(f"{_RBAC}/v1/rolebindings", "RoleBinding"),
    _row(f"{_RBAC}/v1/clusterroles", "ClusterRole", namespaced=False),
    _row(f"{_RBAC}/v1/clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _row(
        "apiextensions.k8s.io/v1/customresourcedefinitions", "CustomResourceDefinition",
        "crd crds", namespaced=False, subresources=_STATUS, generation=True,
    ),
)  # fmt: skip


class Registry:
    """What is served now: the built-in rows and those of CustomResourceDefinitions."""

    def __init__(self) -> None:
        self._rows = {(row.group, row.version, row.plural): row for row in BUILTIN}

    def __iter__(self) -> collections.abc.Iterator[Resource]:
        return iter(self._rows.values())

    def find(self, group: str, version: str, plural: str) -> Resource:
        """Return the row of a request path; raises ApiError 404."""
        row = self._rows.get((group, version, plural))
        if row is None:
            raise errors.no_such_path()
        return row

    def resource(self, plural: str, group: str = "") -> Resource:
        """Return a resource in the group's first served version; raises ApiError 404."""
        for row in self._rows.values():
            if (row.group, row.plural) == (group, plural):
                return row
        raise errors.no_such_path()

    def stored(self, resource: Resource) -> Resource:
        """Return the row in whose shape the objects of a view or version are kept."""
        if not resource.view_of:
            return resource
        rows = (row for row in self._rows.values() if row.qualified == resource.view_of)
        return next(row for row in rows if not row.view_of)

    def replace(self, group: str, plural: str, rows: collections.abc.Iterable[Resource]) -> None:
        """Serve the given versions of a custom resource, and no others."""
        for key in [k for k in self._rows if k[0] == group and k[2] == plural]:
            del self._rows[key]
        self._rows.update({(row.group, row.version, row.plural): row for row in rows})
