"""What is decided by looking at other objects before a write.

The plugins of Kubernetes that matter to storage: NamespaceLifecycle, ServiceAccount,
DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.
"""

from typing import TYPE_CHECKING, Any

from bitts.kube import quantity

from devcluster import errors
from devcluster.resources import Object, Resource

if TYPE_CHECKING:
    from devcluster.api import Api

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_DEFAULT_ACCOUNT = "default"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}
_ETERNAL = frozenset({"default", "kube-system", "kube-public"})


def before_create(api: "Api", resource: Resource, obj: Object) -> None:
    """Admit and complete a new object; raises ApiError 403, 404."""
    if resource.namespaced:
        _check_namespace(api, resource, obj)
    protection = _PROTECTION.get(resource.qualified)
    if protection:
        finalizers = obj["metadata"].get("finalizers") or []
        if protection not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, protection]
    if resource.qualified == "persistentvolumeclaims":
        _set_default_class(api, obj)
    if resource.qualified == "pods":
        _set_account(api, obj)


def _set_account(api: "Api", pod: Object) -> None:
    """Give a pod its account. The default one is made with the namespace, so it is not missed."""
    spec, namespace = pod.setdefault("spec", {}), pod["metadata"]["namespace"]
    name = spec.get("serviceAccountName") or _DEFAULT_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    known = api.get(api.resource("serviceaccounts"), name, namespace)
    if known is None and name != _DEFAULT_ACCOUNT:
        missing = f'serviceaccount "{name}" not found'
        why = f"error looking up service account {namespace}/{name}: {missing}"
        raise errors.forbidden("", "pods", pod["metadata"].get("name", ""), why)


def _check_namespace(api: "Api", resource: Resource, obj: Object) -> None:
    name = obj["metadata"]["namespace"]
    namespace = api.get(api.resource("namespaces"), name)
    if namespace is None:
        raise errors.not_found("", "namespaces", name)
    if namespace["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {name} because it is being terminated"
        refused = errors.forbidden(
            resource.group, resource.plural, obj["metadata"].get("name", ""), why
        )
        cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
        message = f"namespace {name} is being terminated"
        refused.details = {**(refused.details or {}), "causes": [{**cause, "message": message}]}
        raise refused


def _set_default_class(api: "Api", claim: Object) -> None:
    annotations = claim["metadata"].get("annotations") or {}
    spec = claim.setdefault("spec", {})
    if spec.get("storageClassName") is not None or _BETA_CLASS in annotations:
        return
    name = default_class(api.list(api.resource("storageclasses", "storage.k8s.io")))
    if name:
        spec["storageClassName"] = name


def default_class(classes: list[Object]) -> str:
    """Return the newest class that is marked as default, by name among equals; else nothing."""
    marked: list[Any] = [
        one["metadata"]
        for one in classes
        if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    marked.sort(key=lambda meta: meta["name"])
    marked.sort(key=lambda meta: meta["creationTimestamp"], reverse=True)
    return str(marked[0]["name"]) if marked else ""


def before_update(
    api: "Api", resource: Resource, old: Object, new: Object, subresource: str
) -> None:
    """Admit a change; raises ApiError 403."""
    if resource.qualified != "persistentvolumeclaims" or subresource:
        return
    before, after = _request(old), _request(new)
    if before is None or after is None or after <= before:
        return
    why = ""
    is_bound = (old.get("status") or {}).get("phase") == "Bound"  # else validation refuses it
    if is_bound and not _may_grow(api, new):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions"
            " the pvc must support resize"
        )
    if why:
        raise errors.forbidden("", resource.plural, old["metadata"]["name"], why)


def _request(claim: Object) -> quantity.Quantity | None:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    try:
        return quantity.parse(str(requests["storage"]))
    except (KeyError, quantity.QuantityError):
        return None


def _may_grow(api: "Api", claim: Object) -> bool:
    annotations = claim["metadata"].get("annotations") or {}
    name = annotations.get(_BETA_CLASS) or claim["spec"].get("storageClassName") or ""
    found = api.get(api.resource("storageclasses", "storage.k8s.io"), name) if name else None
    return bool(found and found.get("allowVolumeExpansion"))


def before_delete(resource: Resource, old: Object) -> None:
    """Admit a deletion; raises ApiError 403."""
    name = old["metadata"]["name"]
    if resource.qualified == "namespaces" and name in _ETERNAL:
        raise errors.forbidden("", "namespaces", name, "this namespace may not be deleted")
