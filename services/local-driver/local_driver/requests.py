"""CSI requests read and checked: messages in, plain values out. Pure.

Whatever is missing or out of range is refused here, with INVALID_ARGUMENT (or OUT_OF_RANGE)
that names the field, so that the rest of the driver deals with whole requests only.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import creation, listing, names
from local_driver.creation import Offer
from local_driver.volumes import AccessMode, AccessType, Capability, Requirement, Source, Wish

_GROUP_MOST = (1 << 32) - 2
"""The largest group of Linux; the number above it means "leave the group" (chown(2))."""

_BANNED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that the CSI specification bans from names."""

_PATH_LIMIT = 4095
"""Bytes that Linux takes as a path."""


def wish(
    request: v1.CreateVolumeRequest,
    offers: Mapping[str, Offer],
    default_backend: str,
    *,
    multi_node: bool,
) -> Wish:
    """Read a CreateVolume request."""
    required, limit = size_range(request.capacity_range)
    return Wish(
        name=name(request.name),
        capabilities=capabilities(request.volume_capabilities, multi_node=multi_node),
        parameters=creation.parameters(request.parameters, offers, default_backend),
        required=required,
        limit=limit,
        requirement=requirement(request.accessibility_requirements),
        source=source(request.volume_content_source),
    )


def name(text: str) -> str:
    """Return a name, which must be of a length that CSI allows."""
    require(text, "name")
    if len(text.encode()) > names.NAME_LIMIT:
        raise invalid(f"name: at most {names.NAME_LIMIT} bytes are allowed")
    if _BANNED.search(text):
        raise invalid("name: control characters are not allowed")
    return text


def source(given: v1.VolumeContentSource | None) -> Source | None:
    """Return what a volume is to start with, None for nothing."""
    if given is None:
        return None
    if given.snapshot is not None:
        field, content_id = "snapshot.snapshot_id", given.snapshot.snapshot_id
    elif given.volume is not None:
        field, content_id = "volume.volume_id", given.volume.volume_id
    else:
        raise invalid("volume_content_source: required is either a snapshot or a volume")
    return Source(require(content_id, f"volume_content_source.{field}"), given.snapshot is not None)


def is_loose(parameters: Mapping[str, str]) -> bool:
    """Read a VolumeSnapshotClass's parameters: whether a copy may be of no single instant."""
    loose = False
    for key, value in parameters.items():
        if key == names.IN_USE_PARAMETER:
            if value not in ("refuse", "copy"):
                raise invalid(f"parameters[{key!r}]: {value!r} must be refuse or copy")
            loose = value == "copy"
        elif not key.startswith(names.KUBERNETES_PREFIX):
            raise invalid(
                f"parameters[{key!r}]: unknown parameter; known is {names.IN_USE_PARAMETER}: "
                "correct the VolumeSnapshotClass"
            )
    return loose


def page(max_entries: int, token: str) -> tuple[int, int]:
    """Return where a list begins and how long a page of it is, 0 for no limit."""
    if max_entries < 0:
        raise invalid("max_entries: must not be negative")
    return listing.position(token), max_entries


def size_range(given: v1.CapacityRange | None) -> tuple[int, int]:
    """Return required and limit bytes, 0 where unspecified."""
    if given is None:
        return 0, 0
    for field in ("required_bytes", "limit_bytes"):
        if getattr(given, field) < 0:
            raise RpcError(Code.OUT_OF_RANGE, f"capacity_range.{field}: must not be negative")
    return given.required_bytes, given.limit_bytes


def requirement(given: v1.TopologyRequirement | None) -> Requirement:
    """Return the topologies that a volume must and should be reachable from."""
    if given is None:
        return Requirement()
    return Requirement(
        requisite=tuple(topology.segments for topology in given.requisite),
        preferred=tuple(topology.segments for topology in given.preferred),
    )


def capabilities(
    given: Sequence[v1.VolumeCapability], *, multi_node: bool, field: str = "volume_capabilities"
) -> tuple[Capability, ...]:
    """Read the capabilities of a request, which must have some."""
    if not given:
        raise invalid(f"{field}: required")
    return tuple(
        capability(item, multi_node=multi_node, field=f"{field}[{index}]")
        for index, item in enumerate(given)
    )


def capability(
    given: v1.VolumeCapability | None, *, multi_node: bool, field: str = "volume_capability"
) -> Capability:
    """Read one capability. Modes of several nodes are refused unless ``multi_node``."""
    if given is None:
        raise invalid(f"{field}: required")
    mode = _mode(given, field)
    if mode.is_multi_node and not multi_node:
        raise invalid(
            f"{field}.access_mode: {mode} needs a volume on several nodes, and this one is on "
            "one: ask for ReadWriteOnce or ReadWriteOncePod"
        )
    if given.block is not None:
        return Capability(AccessType.BLOCK, mode)
    if given.mount is None:
        raise invalid(f"{field}.access_type: required, either mount or block")
    flags = tuple(given.mount.mount_flags)
    group = _group(given.mount.volume_mount_group, f"{field}.mount.volume_mount_group")
    return Capability(AccessType.MOUNT, mode, given.mount.fs_type, flags, group)


def _group(text: str, field: str) -> int | None:
    """Read a group's number; names would mean another group on each node."""
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1
    if not 0 <= number <= _GROUP_MOST:
        raise invalid(f"{field}: {text[:40]!r} must be a group's number, 0 to {_GROUP_MOST}")
    return number


def _mode(given: v1.VolumeCapability, field: str) -> AccessMode:
    number = given.access_mode.mode if given.access_mode is not None else 0
    name = v1.VolumeCapabilityAccessModeMode(number).name
    if not number or name is None:
        raise invalid(f"{field}.access_mode: required")
    return AccessMode(name)


def path(text: str, field: str) -> pathlib.Path:
    """Read an absolute path."""
    check_path(text, field)
    if not text.startswith("/"):
        raise invalid(f"{field}: {text!r} is not an absolute path")
    found = pathlib.Path(text)
    if ".." in found.parts or found == pathlib.Path("/"):
        raise invalid(f"{field}: {text!r} must name a place without '..'")
    return found


def check_path(text: str, field: str) -> str:
    """Return ``text``, which must be what Linux takes as a path, absolute or not."""
    require(text, field)
    if "\0" in text or len(text.encode()) > _PATH_LIMIT:
        raise invalid(f"{field}: a path has at most {_PATH_LIMIT} bytes, none of them 0")
    return text


def require(text: str, field: str) -> str:
    """Return ``text``, which must not be empty."""
    if not text:
        raise invalid(f"{field}: required")
    return text


def invalid(text: str) -> RpcError:
    """Return the error of a request that is wrong as it stands."""
    return RpcError(Code.INVALID_ARGUMENT, text)
