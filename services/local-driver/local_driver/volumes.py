"""What a volume is, what a request wants, and whether the two agree: values and pure rules.

A volume's ID follows from its name and its node, so the same CreateVolume meets the same
files and the same lock however often it is sent and whenever the process died in between.
"""

import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")


class AccessType(enum.StrEnum):
    """How a volume appears in a container (CSI VolumeCapability.access_type)."""

    MOUNT = "mount"
    BLOCK = "block"


class AccessMode(enum.StrEnum):
    """Nodes and writers at one time (CSI VolumeCapability.AccessMode), by the names there."""

    SINGLE_NODE_WRITER = "SINGLE_NODE_WRITER"
    SINGLE_NODE_READER_ONLY = "SINGLE_NODE_READER_ONLY"
    MULTI_NODE_READER_ONLY = "MULTI_NODE_READER_ONLY"
    MULTI_NODE_SINGLE_WRITER = "MULTI_NODE_SINGLE_WRITER"
    MULTI_NODE_MULTI_WRITER = "MULTI_NODE_MULTI_WRITER"
    SINGLE_NODE_SINGLE_WRITER = "SINGLE_NODE_SINGLE_WRITER"
    SINGLE_NODE_MULTI_WRITER = "SINGLE_NODE_MULTI_WRITER"

    @property
    def is_multi_node(self) -> bool:
        """Whether several nodes share the volume."""
        return self.value.startswith("MULTI_NODE")

    @property
    def is_read_only(self) -> bool:
        """Whether nobody may write."""
        return self.value.endswith("READER_ONLY")


class Content(enum.StrEnum):
    """What an image holds. It is recorded before the volume is first handed out.

    A blank image has never been, so formatting it destroys nothing; one that was given away
    as a raw device holds what its user wrote and is never formatted.
    """

    BLANK = "blank"
    EXT4 = "ext4"
    XFS = "xfs"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class Capability:
    """One way in which a volume is to be used."""

    access: AccessType
    mode: AccessMode
    filesystem: str = ""
    mount_flags: tuple[str, ...] = ()
    group: int | None = None
    """The group that the mounted volume is for (volume_mount_group)."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a new volume starts with: a snapshot, or another volume."""

    content_id: str
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a StorageClass chose; empty strings leave the choice to the driver."""

    backend: str
    filesystem: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Where a volume must (requisite) and would best (preferred) be reachable."""

    requisite: tuple[Mapping[str, str], ...] = ()
    preferred: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """A CreateVolume request, read and checked. Sizes are bytes; 0 is unspecified."""

    name: str
    capabilities: tuple[Capability, ...]
    parameters: Parameters
    required: int = 0
    limit: int = 0
    requirement: Requirement = field(default_factory=Requirement)
    source: Source | None = None
    mutable: tuple[tuple[str, str], ...] = ()

    @property
    def source_id(self) -> str:
        """The ID of what the volume starts with; empty for nothing."""
        return self.source.content_id if self.source else ""

    @property
    def access(self) -> frozenset[AccessType]:
        """Every way of appearing in a container that is asked for."""
        return frozenset(capability.access for capability in self.capabilities)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The permission to use a volume on a node (CSI ControllerPublishVolume)."""

    node_id: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as it is recorded. ``capacity`` is in bytes, ``created`` in Unix seconds.

    ``serial`` grows with every volume made in a state directory: lists are ordered by it, and
    it is where a project ID for quota comes from. ``node`` is the node that holds the content.
    """

    volume_id: str
    name: str
    serial: int
    node: str
    backend: str
    capacity: int
    access: frozenset[AccessType]
    filesystem: str
    content: Content
    created: float
    is_limited: bool = False
    """Whether the file system stops writes beyond the capacity."""
    source: str = ""
    """The ID of the snapshot or volume that it was made of; empty for none."""
    attachments: tuple[Attachment, ...] = ()
    mutable: tuple[tuple[str, str], ...] = ()
    """The mutable parameters in force, sorted by name."""


def volume_id(node: str, name: str) -> str:
    """Return the ID of the volume called ``name`` on ``node``.

    The node is part of it: after a failed attempt, the same claim may be tried on another
    node, and the two must never be taken for one volume.
    """
    place = hashlib.sha256(node.encode()).hexdigest()[:8]
    return f"{place}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def is_id(text: str) -> bool:
    """Whether a text could be an ID of ours. Others name nothing, and never become a path."""
    return _ID.fullmatch(text) is not None


def mismatch(volume: Volume, wish: Wish, filesystem: str) -> str:
    """Say why an existing volume is not the one wished for; empty if it is.

    ``filesystem`` is what the wish would get if the volume were new. CSI calls a difference
    ALREADY_EXISTS (CreateVolume Errors).
    """
    if volume.capacity < wish.required:
        return f"has {volume.capacity} bytes, required_bytes is {wish.required}"
    if wish.limit and volume.capacity > wish.limit:
        return f"has {volume.capacity} bytes, limit_bytes is {wish.limit}"
    if volume.source != wish.source_id:
        return f"was made of {volume.source or 'nothing'}, asked for is {wish.source_id or 'that'}"
    if volume.backend != wish.parameters.backend:
        return f"is kept by backend {volume.backend}, asked for is {wish.parameters.backend}"
    missing = sorted(wish.access - volume.access)
    if missing:
        return f"was made for {_words(volume.access)} access, asked for is {missing[0]}"
    if AccessType.MOUNT in wish.access and volume.filesystem != filesystem:
        return f"has file system {volume.filesystem or 'none'}, asked for is {filesystem}"
    return ""


def unusable(volume: Volume, capability: Capability) -> str:
    """Say why an existing volume cannot be used in this way; empty if it can."""
    if capability.access not in volume.access:
        return f"access type {capability.access}: the volume has {_words(volume.access)} access"
    wanted = capability.filesystem
    if capability.access is AccessType.MOUNT and wanted and wanted != volume.filesystem:
        return f"fs_type {wanted}: the volume has {volume.filesystem or 'no file system'}"
    return ""


def _words(access: frozenset[AccessType]) -> str:
    return " and ".join(sorted(access))
