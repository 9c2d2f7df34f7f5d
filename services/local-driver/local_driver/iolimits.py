"""Limits of a volume's I/O, as a VolumeAttributesClass sets them, and cgroups that keep them.

The kernel limits I/O by device and control group (io.max of cgroup v2), so a volume needs a
device of its own, and its pods' groups have to be found: kubelet names them by the pod's UID,
which is in the volume's target path. Without cgroup v2 the limits are recorded only. What
touches cgroups blocks; call it in a thread.
"""

import pathlib
import re
from collections.abc import Collection, Iterable, Mapping

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

Limits = tuple[tuple[str, str], ...]


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


def groups(uids: Collection[str], root: pathlib.Path = CGROUPS) -> list[pathlib.Path]:
    """Return the control groups of pods, where their I/O can be limited."""
    names = {f"pod{uid}" for uid in uids} | {f"pod{uid.replace('-', '_')}" for uid in uids}
    if not names or not (root / "cgroup.controllers").exists():
        return []
    return [
        path.parent
        for path in root.glob("kubepods*/**/io.max")
        if _pod_name(path.parent.name) in names
    ]


def _pod_name(name: str) -> str:
    """Return ``pod<uid>`` of a group named for systemd (kubepods-burstable-pod<uid>.slice)."""
    plain = name.removesuffix(".slice")
    return plain[plain.rfind("-pod") + 1 :] if "-pod" in plain else plain


def apply(
    limits: Limits, devices: Iterable[str], uids: Collection[str], root: pathlib.Path = CGROUPS
) -> int:
    """Have the kernel keep the limits for some pods; return in how many groups it does so.

    Raises OSError.
    """
    found = groups(uids, root)
    for group in found:
        for device in devices:
            (group / "io.max").write_text(line(device, limits))
    return len(found)


def _invalid(text: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, text)
