"""Which volume a CreateVolume request gets: shape, file system and size. Pure.

Every refusal names the field or parameter that is wrong and what would be right, because its
text becomes the event on somebody's claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bitts.rpc.codes import Code, RpcError

from local_driver import names
from local_driver.volumes import AccessType, Capability, Parameters, Wish

GIB = 1 << 30
DEFAULT_SIZE = GIB
"""Bytes of a volume whose request names no size."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a backend can make on this node.

    ``filesystems`` are those it can give a volume, the default first; ``minimum`` gives the
    least bytes by file system, with "" for raw volumes. Sizes are multiples of ``granularity``.
    """

    name: str
    access: frozenset[AccessType]
    filesystems: tuple[str, ...]
    minimum: Mapping[str, int]
    granularity: int
    maximum: int


def parameters(raw: Mapping[str, str], offers: Mapping[str, Offer], default: str) -> Parameters:
    """Read a StorageClass's parameters.

    Raises RpcError INVALID_ARGUMENT that names the parameter.
    """
    backend, filesystem = default, ""
    for key, value in raw.items():
        if key == names.BACKEND_PARAMETER:
            backend = value
        elif key.lower() in names.FILESYSTEM_PARAMETERS:
            filesystem = value
        elif not key.startswith(names.KUBERNETES_PREFIX):
            raise _invalid(
                f"parameters[{key!r}]: unknown parameter; known are backend and fstype: "
                "correct the StorageClass"
            )
    if backend not in offers:
        known = ", ".join(sorted(offers))
        raise _invalid(
            f"parameters['backend']: {backend!r} is not offered here; this node has {known}"
        )
    return Parameters(backend, filesystem)


def filesystem(wish: Wish, offer: Offer, default: str = "") -> str:
    """Return the file system that a new volume gets; "" where its only access is raw.

    ``default`` is taken before the backend's own where nothing else is asked for.

    Raises RpcError INVALID_ARGUMENT when the backend has no such file system or access, or
    the capabilities contradict each other.
    """
    for index, capability in enumerate(wish.capabilities):
        if capability.access not in offer.access:
            raise _invalid(
                f"volume_capabilities[{index}]: backend {offer.name} has no {capability.access} "
                "volumes: choose another backend in the StorageClass"
            )
    if AccessType.MOUNT not in wish.access:
        return ""
    wanted = _wanted_filesystems(wish.capabilities)
    if len(wanted) > 1:
        raise _invalid(f"volume_capabilities: one volume cannot be both {' and '.join(wanted)}")
    chosen = next(iter(wanted), "") or wish.parameters.filesystem or default
    chosen = chosen or next(iter(offer.filesystems), "")
    if chosen not in offer.filesystems:
        known = ", ".join(offer.filesystems) or "none, install e2fsprogs or xfsprogs"
        raise _invalid(f"fs_type: {chosen!r} is not what backend {offer.name} has here: {known}")
    return chosen


def _wanted_filesystems(capabilities: tuple[Capability, ...]) -> list[str]:
    named = {c.filesystem for c in capabilities if c.access is AccessType.MOUNT and c.filesystem}
    return sorted(named)


def size(required: int, limit: int, offer: Offer, filesystem: str) -> int:
    """Return the bytes of a new volume: at least ``required``, at most ``limit``.

    Raises RpcError OUT_OF_RANGE when no size fits, on this node or any like it.
    """
    if limit and limit < required:
        raise _out_of_range(f"limit_bytes {limit} is below required_bytes {required}")
    least = offer.minimum[filesystem]
    step = offer.granularity
    wanted = required or min(DEFAULT_SIZE, (limit or DEFAULT_SIZE) // step * step)
    rounded = -(-max(wanted, least) // step) * step
    if limit and rounded > limit:
        raise _out_of_range(
            f"limit_bytes {limit}: backend {offer.name} makes volumes of at least {least} bytes "
            f"in steps of {step}, here {rounded}"
        )
    if rounded > offer.maximum:
        raise _out_of_range(
            f"required_bytes {required}: backend {offer.name} makes at most {offer.maximum} bytes"
        )
    return rounded


def larger(capacity: int, required: int, limit: int, offer: Offer) -> int:
    """Return the bytes that a volume of ``capacity`` bytes is to have.

    It never shrinks. Raises RpcError OUT_OF_RANGE when no size fits.
    """
    if limit and limit < max(required, capacity):
        raise _out_of_range(f"limit_bytes {limit} is below {max(required, capacity)} bytes")
    if required <= capacity:
        return capacity
    step = offer.granularity
    rounded = -(-required // step) * step
    if limit and rounded > limit:
        raise _out_of_range(f"limit_bytes {limit}: sizes go in steps of {step}, here {rounded}")
    if rounded > offer.maximum:
        raise _out_of_range(
            f"required_bytes {required}: backend {offer.name} makes at most {offer.maximum} bytes"
        )
    return rounded


def _invalid(text: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, text)


def _out_of_range(text: str) -> RpcError:
    return RpcError(Code.OUT_OF_RANGE, f"capacity_range.{text}")
