"""Whom CSIStorageCapacity objects belong to, so that they vanish with the deployment."""

from bitts.kube import errors, kinds
from bitts.kube.client import Client
from bitts.kube.objects import Metadata, OwnerReference, Pod


class OwnerError(Exception):
    """The owner cannot be found; the text says what to change."""


async def find(client: Client, namespace: str, pod_name: str, level: int) -> OwnerReference | None:
    """The pod (level 0), its controller (1), that one's controller (2) and so on; -1: None.

    Each object on the way has to be readable; the owner itself need not. Raises OwnerError.
    """
    if level < 0:
        return None
    try:
        return await _climb(client, namespace, pod_name, level)
    except errors.ApiError as error:
        raise OwnerError(
            f"the owner of CSIStorageCapacity objects cannot be found: {error}; check POD_NAME and"
            " NAMESPACE, grant get on pods and their owners, or set --capacity-ownerref-level=-1"
        ) from error


async def _climb(client: Client, namespace: str, pod_name: str, level: int) -> OwnerReference:
    current: Pod | Metadata = await client.get(kinds.PODS, pod_name, namespace)
    reference = OwnerReference(
        api_version="v1", kind="Pod", name=pod_name, uid=current.uid, controller=True
    )
    for step in range(level):
        if step > 0:
            current = await client.get(_kind(reference), reference.name, namespace)
        found = [one for one in current.metadata.owner_references if one.controller]
        if not found:
            raise OwnerError(
                f"{reference.kind} {reference.name} has no controller: --capacity-ownerref-level"
                f"={level} is too high, use {step}"
            )
        reference = found[0]
    return reference


def _kind(reference: OwnerReference) -> kinds.Kind[Metadata]:
    group, _, version = reference.api_version.rpartition("/")
    plural = reference.kind.lower() + "s"  # so for every controller that owns pods
    return kinds.metadata_only(group, version, plural, reference.kind, namespaced=True)
