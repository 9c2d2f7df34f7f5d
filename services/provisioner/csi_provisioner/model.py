"""What the two loops see, plan and get: frozen values, so that a test compares whole plans.

A ``Draft`` is a volume as it will be asked of the driver and recorded in the cluster. It is
complete: once the driver may be working on it, it can be finished though claim, class and node
are long gone. Secrets' content never enters any of these types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bitts.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from bitts.volumes.secrets import SecretRef

from csi_provisioner.topology import Nodes, Requirement, Settings, Term


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for every decision of this process: the driver's abilities and the flags."""

    driver_name: str
    plugin: frozenset[str] = frozenset()
    controller: frozenset[str] = frozenset()
    name_prefix: str = "pvc"
    name_length: int = -1
    default_fstype: str = ""
    extra_metadata: bool = False
    publish_readonly: bool = False
    attributes_classes: bool = True
    topology: bool = False
    placing: Settings = field(default_factory=Settings)


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The claim that a volume is made for, as PersistentVolumes name it."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Draft:
    """One volume to be made. Sizes are bytes; ``access_modes`` are Kubernetes' names."""

    claim: ClaimRef
    volume_name: str
    class_name: str
    class_uid: str
    provisioner: str
    required_bytes: int
    access_modes: tuple[str, ...]
    volume_mode: str = ""
    fs_type: str = ""
    mount_options: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)
    requirement: Requirement | None = None
    selected_node: str = ""
    reclaim_policy: str = "Delete"
    attributes_class: str = ""
    mutable_parameters: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """The driver's answer to CreateVolume. ``capacity_bytes`` 0 means that it did not say."""

    volume_id: str
    capacity_bytes: int = 0
    context: Mapping[str, str] = field(default_factory=dict)
    topology: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """What this process remembers of a claim.

    ``draft``: the driver may be working on it. ``created``: it has answered and the
    PersistentVolume is not stored yet. ``finished``: a PersistentVolume was stored, so a claim
    that still looks unbound may just be an old view of it. ``held_until``: an infeasible request
    is not repeated before this time, as long as ``held_for`` is what would be asked again.
    """

    draft: Draft | None = None
    created: Created | None = None
    finished: bool = False
    held_until: float = 0.0
    held_for: str = ""


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """One claim and all that bears on it. ``claim`` is None once it is deleted."""

    claim: PersistentVolumeClaim | None
    storage_class: StorageClass | None
    volume: PersistentVolume | None
    past: Past
    nodes: Nodes
    now: float


@dataclass(frozen=True, slots=True)
class VolumeSeen:
    """One PersistentVolume. ``erased``: its backing volume is deleted already; ``told``: the
    last condition that was reported on it; ``attached_to``: nodes with a VolumeAttachment."""

    volume: PersistentVolume
    storage_class: StorageClass | None = None
    attached_to: tuple[str, ...] = ()
    erased: bool = False
    told: str = ""
    now: float = 0.0


class Verdict(Enum):
    """What an attempt to provision came to; upstream calls it the provisioning state."""

    SUCCEEDED = "succeeded"
    FOUND = "done by an earlier process"
    FINAL = "failed for good, the backend is idle"
    BACKGROUND = "may still be in progress"
    UNREACHED = "failed before the driver was asked"
    RESCHEDULED = "given up on the selected node"
    INFEASIBLE = "cannot be done as it is asked"


# Actions on claims


@dataclass(frozen=True, slots=True)
class ConfirmClaim:
    """Read the claim itself, because the cached one may be an old view."""

    claim: ClaimRef
    reason: str


@dataclass(frozen=True, slots=True)
class ConfirmClass:
    """Read the StorageClass itself, because the cache may just not know it yet."""

    claim: ClaimRef
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReadAttributesClass:
    """Read the VolumeAttributesClass that the claim names."""

    draft: Draft
    reason: str


@dataclass(frozen=True, slots=True)
class NoteIntent:
    """Write down durably what is about to be asked, and announce it."""

    draft: Draft
    reason: str


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Ask the driver for the volume."""

    draft: Draft
    reason: str


@dataclass(frozen=True, slots=True)
class DiscardVolume:
    """Delete a volume that came out wrong."""

    draft: Draft
    volume_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SaveVolume:
    """Store the PersistentVolume."""

    draft: Draft
    created: Created
    reason: str


@dataclass(frozen=True, slots=True)
class ReadVolume:
    """Read the PersistentVolume whose name is taken."""

    draft: Draft
    created: Created
    reason: str


@dataclass(frozen=True, slots=True)
class UnselectNode:
    """Take the selected node off the claim so that the scheduler chooses again."""

    claim: ClaimRef
    node: str
    failure: str
    reason: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """Remember, count and report what the attempt came to; ``reason`` is the event's text.

    With ``awaits_nodes`` a node's registration may help, so it wakes the claim.
    """

    claim: ClaimRef
    verdict: Verdict
    reason: str
    draft: Draft | None = None
    created: Created | None = None
    held_for: str = ""
    awaits_nodes: bool = False


ClaimAction = (
    ConfirmClaim
    | ConfirmClass
    | ReadAttributesClass
    | NoteIntent
    | CreateVolume
    | DiscardVolume
    | SaveVolume
    | ReadVolume
    | UnselectNode
    | Conclude
)


# Actions on PersistentVolumes


@dataclass(frozen=True, slots=True)
class AddFinalizer:
    """Keep the PersistentVolume from vanishing before its backing volume."""

    reason: str


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Let the PersistentVolume go."""

    reason: str


@dataclass(frozen=True, slots=True)
class EraseVolume:
    """Have the driver delete the backing volume."""

    volume_id: str
    secret: SecretRef | None
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the PersistentVolume."""

    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell about the PersistentVolume: a failure (Warning, counted) or a mere condition."""

    reason: str
    is_failure: bool


@dataclass(frozen=True, slots=True)
class CountDeleted:
    """The deletion is complete."""

    reason: str


VolumeAction = AddFinalizer | RemoveFinalizer | EraseVolume | DeleteObject | Report | CountDeleted
