"""From claim and class to the volume that will be asked for: all checks that need no driver.

The order of the checks is upstream's, because with two mistakes in one claim people see the
first one in its events.
"""

from collections.abc import Callable
from typing import TypeVar

from bitts.kube import quantity
from bitts.kube.objects import PersistentVolumeClaim, StorageClass
from bitts.volumes import accessmodes, naming, secrets

from csi_provisioner import names, parameters, topology
from csi_provisioner.model import ClaimRef, Draft, Policy

T = TypeVar("T")


class RefusedError(Exception):
    """The claim cannot be provisioned as it is; the text is meant for its owner.

    ``is_final`` is upstream's distinction: without it the failure says nothing about what an
    earlier attempt has come to. ``awaits_nodes``: another node may cure it.
    """

    def __init__(self, message: str, *, is_final: bool = True, awaits_nodes: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.awaits_nodes = awaits_nodes


def selected_node(claim: PersistentVolumeClaim) -> str:
    """The node that the scheduler selected, or nothing."""
    annotations = claim.metadata.annotations
    return annotations.get(names.SELECTED_NODE) or annotations.get(names.ALPHA_SELECTED_NODE) or ""


def reference(claim: PersistentVolumeClaim) -> ClaimRef:
    """The claim as volumes refer to it."""
    meta = claim.metadata
    return ClaimRef(meta.namespace, meta.name, meta.uid, meta.resource_version)


def volume_name(policy: Policy, uid: str) -> str:
    """The name of the volume for the claim with this UID. Raises naming.NamingError."""
    return naming.volume_name(policy.name_prefix, uid, policy.name_length)


def check_driver(policy: Policy) -> None:
    """Raise RefusedError unless the driver can make and delete volumes at all."""
    missing = "CSI driver does not support dynamic provisioning: "
    if "CONTROLLER_SERVICE" not in policy.plugin:
        raise RefusedError(missing + "plugin CONTROLLER_SERVICE capability is not reported")
    if "CREATE_DELETE_VOLUME" not in policy.controller:
        raise RefusedError(missing + "controller CREATE_DELETE_VOLUME capability is not reported")


def draft(
    policy: Policy,
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    nodes: topology.Nodes,
) -> Draft:
    """The volume for a claim. Raises RefusedError, topology.NodeVanishedError."""
    spec = claim.spec
    check_driver(policy)
    attributes_class = _attributes_class(policy, claim)
    if spec.selector is not None:
        raise RefusedError(
            "claim Selector is not supported: remove spec.selector, or bind the claim to an"
            " existing PersistentVolume"
        )
    name = _checked(lambda: volume_name(policy, claim.uid))
    fs_type = _checked(lambda: parameters.fs_type(storage_class.parameters, policy.default_fstype))
    _checked(lambda: accessmodes.to_csi(spec.access_modes, multi_writer=False))
    return Draft(
        claim=reference(claim),
        volume_name=name,
        class_name=storage_class.name,
        class_uid=storage_class.uid,
        provisioner=storage_class.provisioner,
        required_bytes=_required_bytes(claim),
        access_modes=spec.access_modes,
        volume_mode=spec.volume_mode or "",
        fs_type="" if spec.volume_mode == "Block" else fs_type,
        mount_options=storage_class.mount_options,
        requirement=_requirement(policy, claim, storage_class, nodes),
        secrets=_secrets(name, claim, storage_class),
        parameters=_parameters(policy, name, claim, storage_class),
        selected_node=selected_node(claim),
        reclaim_policy=storage_class.reclaim_policy or "Delete",
        attributes_class=attributes_class,
    )


def attributes_class_name(policy: Policy, claim: PersistentVolumeClaim) -> str:
    """The VolumeAttributesClass that counts for the claim, or nothing."""
    return (claim.spec.volume_attributes_class_name or "") if policy.attributes_classes else ""


def _attributes_class(policy: Policy, claim: PersistentVolumeClaim) -> str:
    name = attributes_class_name(policy, claim)
    if name and "MODIFY_VOLUME" not in policy.controller:
        raise RefusedError(
            "CSI driver does not support VolumeAttributesClass: controller MODIFY_VOLUME"
            " capability is not reported"
        )
    return name


def _required_bytes(claim: PersistentVolumeClaim) -> int:
    asked = claim.spec.resources.requests.get("storage")
    try:
        return quantity.to_bytes_ceil(asked) if asked else 0
    except quantity.QuantityError as error:
        raise RefusedError(f"spec.resources.requests.storage: {error}") from None


def _requirement(
    policy: Policy,
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    nodes: topology.Nodes,
) -> topology.Requirement | None:
    if not policy.topology:
        return None
    allowed = [
        [(expression.key, expression.values or ()) for expression in term.match_label_expressions]
        for term in storage_class.allowed_topologies
    ]
    node = selected_node(claim)
    try:
        return topology.requirement(claim.name, node, allowed, nodes, policy.placing)
    except topology.NodeVanishedError:
        raise
    except topology.TopologyError as error:
        text = f"error generating accessibility requirements: {error}"
        raise RefusedError(text, is_final=False, awaits_nodes=True) from None


def _secrets(
    name: str, claim: PersistentVolumeClaim, storage_class: StorageClass
) -> dict[str, secrets.SecretRef]:
    owner = secrets.Owner(name, claim.namespace, claim.name, claim.metadata.annotations)
    found: dict[str, secrets.SecretRef] = {}
    for use in secrets.Use:
        try:
            ref = secrets.reference(use, storage_class.parameters, owner)
        except secrets.SecretReferenceError as error:
            text = f"StorageClass {storage_class.name}: {error}"
            raise RefusedError(text, is_final=False) from None
        if ref is not None:
            found[use.name] = ref
    return found


def _parameters(
    policy: Policy, name: str, claim: PersistentVolumeClaim, storage_class: StorageClass
) -> dict[str, str]:
    given = _checked(lambda: parameters.for_driver(storage_class.parameters))
    if policy.extra_metadata:
        given |= parameters.metadata(name, claim.namespace, claim.name)
    return given


def _checked(rule: Callable[[], T]) -> T:
    """Apply a rule whose ValueError is the claim's or the class's fault."""
    try:
        return rule()
    except ValueError as error:
        raise RefusedError(str(error)) from None
