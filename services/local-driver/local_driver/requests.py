"""CSI requests read and checked: messages in, plain values out. Pure.

Whatever is missing or out of range is refused here, with INVALID_ARGUMENT (or OUT_OF_RANGE)
that names the field, so that the rest of the driver deals with whole requests only.
"""

import pathlib
from collections.abc import Mapping, Sequence

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError

from local_driver import creation, names
from local_driver.creation import Offer
from local_driver.volumes import AccessMode, AccessType, Capability, Requirement, Wish


def wish(
    request: v1.CreateVolumeRequest,
    offers: Mapping[str, Offer],
    default_backend: str,
    *,
    multi_node: bool,
) -> Wish:
    """Read a CreateVolume request."""
    name = require(request.name, "name")
    if len(name.encode()) > names.NAME_LIMIT:
        raise invalid(f"name: at most {names.NAME_LIMIT} bytes are allowed")
    if request.volume_content_source is not None:
        raise invalid("volume_content_source: this driver makes empty volumes only")
    if request.mutable_parameters:
        key = next(iter(request.mutable_parameters))
        raise invalid(f"mutable_parameters[{key!r}]: this driver has no mutable parameters")
    required, limit = size_range(request.capacity_range)
    return Wish(
        name=name,
        capabilities=capabilities(request.volume_capabilities, multi_node=multi_node),
        parameters=creation.parameters(request.parameters, offers, default_backend),
        required=required,
        limit=limit,
        requirement=requirement(request.accessibility_requirements),
    )


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
    if given.mount.volume_mount_group:
        raise invalid(f"{field}.mount.volume_mount_group: not supported, and not announced")
    return Capability(AccessType.MOUNT, mode, given.mount.fs_type, tuple(given.mount.mount_flags))


def _mode(given: v1.VolumeCapability, field: str) -> AccessMode:
    number = given.access_mode.mode if given.access_mode is not None else 0
    name = v1.VolumeCapabilityAccessModeMode(number).name
    if not number or name is None:
        raise invalid(f"{field}.access_mode: required")
    return AccessMode(name)


def token(text: str) -> int:
    """Read a ListVolumes token: the number of the last volume seen, 0 for the beginning.

    Raises RpcError ABORTED for one that this driver never gave (CSI ListVolumes Errors).
    """
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise RpcError(
            Code.ABORTED, f"starting_token: {text!r} is none of ours: start again without"
        )
    return int(text)


def path(text: str, field: str) -> pathlib.Path:
    """Read an absolute path."""
    require(text, field)
    if not text.startswith("/"):
        raise invalid(f"{field}: {text!r} is not an absolute path")
    found = pathlib.Path(text)
    if ".." in found.parts or found == pathlib.Path("/"):
        raise invalid(f"{field}: {text!r} must name a place without '..'")
    return found


def require(text: str, field: str) -> str:
    """Return ``text``, which must not be empty."""
    if not text:
        raise invalid(f"{field}: required")
    return text


def invalid(text: str) -> RpcError:
    """Return the error of a request that is wrong as it stands."""
    return RpcError(Code.INVALID_ARGUMENT, text)
