"""Limits of a volume's I/O, as a VolumeAttributesClass sets them, and cgroups that keep them.

The kernel limits I/O by device and control group (io.max of cgroup v2), so a volume needs a
device of its own, and its pods' groups have to be found: kubelet names them by the pod's UID,
which is in the volume's target path. Without cgroup v2 the limits are recorded only. What
touches cgroups blocks; call it in a thread.
"""

import pathlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from bitts.rpc.codes import Code, RpcError

CGROUPS = pathlib.Path("/sys/fs/cgroup")

KEYS = {
    "readBytesPerSecond": "rbps",
    "writeBytesPerSecond": "wbps",
    "readIops": "riops",
    "writeIops": "wiops",
}
"""Mutable parameters and the kernel's words for them (cgroup-v2, io.max)."""

UNLIMITED = "max"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_POD = re.compile(r"/pods/([0-9a-f-]{36})/")

_DEPTHS = ("kubepods*/*/io.max", "kubepods*/*/*/io.max")
"""Pods of the class Guaranteed are one level higher than others."""

Limits = tuple[tuple[str, str], ...]
Index = Mapping[str, Sequence[pathlib.Path]]


def parse(given: Mapping[str, str], backend: str, *, has_device: bool) -> Limits:
    """Read mutable parameters; raises RpcError INVALID_ARGUMENT that names the parameter."""
    for key, value in given.items():
        if key not in KEYS:
            raise _invalid(f"mutable_parameters[{key!r}]: unknown; known are {', '.join(KEYS)}")
        if value != UNLIMITED and not _NUMBER.fullmatch(value):
            raise _invalid(
                f"mutable_parameters[{key!r}]: {value!r} must be a positive number, or max"
            )
        if not has_device:
            raise _invalid(
                f"mutable_parameters[{key!r}]: volumes of backend {backend} have no device of "
                "their own whose I/O could be limited: use backend image"
            )
    return tuple(sorted(given.items()))


def merged(old: Limits, new: Limits) -> Limits:
    """Return the limits after a change; what it does not name stays as it is."""
    return tuple(sorted({**dict(old), **dict(new)}.items()))


def line(device: str, limits: Limits) -> str:
    """Return what to write to io.max for ``device`` ("major:minor"), unlimited where not named."""
    wanted = dict(limits)
    words = [f"{word}={wanted.get(key, UNLIMITED)}" for key, word in KEYS.items()]
    return f"{device} {' '.join(words)}"


def pods(targets: Iterable[str]) -> set[str]:
    """Return the UIDs of the pods whose target paths these are."""
    return {found[1] for found in map(_POD.search, targets) if found}


def index(root: pathlib.Path = CGROUPS) -> Index:
    """Return the control groups of all pods by UID; none without cgroup v2.

    To look at all takes milliseconds on a node with many pods, so a caller does it once.
    """
    found: dict[str, list[pathlib.Path]] = {}
    if (root / "cgroup.controllers").exists():
        for pattern in _DEPTHS:
            for path in root.glob(pattern):
                name = _pod_name(path.parent.name).replace("_", "-")
                if name.startswith("pod"):
                    found.setdefault(name.removeprefix("pod"), []).append(path.parent)
    return found


def _pod_name(name: str) -> str:
    """Return ``pod<uid>`` of a group named for systemd (kubepods-burstable-pod<uid>.slice)."""
    plain = name.removesuffix(".slice")
    return plain[plain.rfind("-pod") + 1 :] if "-pod" in plain else plain


def apply(
    limits: Limits, devices: Collection[str], uids: Iterable[str], groups: Index
) -> tuple[int, int]:
    """Have the kernel keep the limits for some pods.

    Returns in how many groups it does so, and in how many it did not before. Raises OSError.
    """
    found = [group for uid in uids for group in groups.get(uid, ())]
    return len(found), sum(_limited(group / "io.max", limits, devices) for group in found)


def _limited(kept: pathlib.Path, limits: Limits, devices: Collection[str]) -> bool:
    """Give one group its limits; whether it had others."""
    present = kept.read_text().splitlines()
    wanted = [(device, line(device, limits)) for device in devices]
    others = [
        text
        for device, text in wanted
        if text not in present and (not _is_unlimited(limits) or _names(present, device))
    ]
    for text in others:
        kept.write_text(text)
    return bool(others)


def _is_unlimited(limits: Limits) -> bool:
    return all(value == UNLIMITED for _, value in limits)


def _names(lines: Iterable[str], device: str) -> bool:
    """Whether io.max has a line of a device: the kernel drops those without any limit."""
    return any(text.partition(" ")[0] == device for text in lines)


def _invalid(text: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, text)
