"""Mount options as people write them (``noatime,discard``) as the kernel wants them. Pure.

Generic words become flags; what is left is text for the file system. Words that would change
what is mounted, or where, are refused: they come from a StorageClass, not from the node's
administrator.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bitts.rpc.codes import Code, RpcError

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_SYNCHRONOUS = 1, 2, 4, 8, 16
MS_DIRSYNC, MS_NOATIME, MS_NODIRATIME = 128, 1024, 2048
MS_RELATIME, MS_STRICTATIME, MS_LAZYTIME = 1 << 21, 1 << 24, 1 << 25

MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
MOUNT_ATTR_NOATIME, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR_NODIRATIME = 0x10, 0x20, 0x80
MOUNT_ATTR_ATIME_MASK = 0x70

_PER_MOUNT = {
    "ro": (MS_RDONLY, MOUNT_ATTR_RDONLY),
    "nosuid": (MS_NOSUID, MOUNT_ATTR_NOSUID),
    "nodev": (MS_NODEV, MOUNT_ATTR_NODEV),
    "noexec": (MS_NOEXEC, MOUNT_ATTR_NOEXEC),
    "noatime": (MS_NOATIME, MOUNT_ATTR_NOATIME),
    "nodiratime": (MS_NODIRATIME, MOUNT_ATTR_NODIRATIME),
    "relatime": (MS_RELATIME, 0),
    "strictatime": (MS_STRICTATIME, MOUNT_ATTR_STRICTATIME),
}
_PER_FILESYSTEM = {"sync": MS_SYNCHRONOUS, "dirsync": MS_DIRSYNC, "lazytime": MS_LAZYTIME}
_SEEN = ("nosuid", "nodev", "noexec", "noatime", "nodiratime")
"""Words that mountinfo has for a mount that is so, whatever else was asked for."""

_DEFAULTS = frozenset({"defaults", "rw", "suid", "dev", "exec", "async", "atime", "diratime"})
_REFUSED = frozenset(
    {"bind", "rbind", "move", "remount", "shared", "rshared", "slave", "rslave", "private"}
    | {"rprivate", "unbindable", "runbindable", "loop", "offset", "sizelimit"}
)


@dataclass(frozen=True, slots=True)
class MountFlags:
    """``flags`` (MS_*) and ``data`` are for mount(2), ``attributes`` for mount_setattr(2)."""

    flags: int = 0
    attributes: int = 0
    data: str = ""

    @property
    def is_read_only(self) -> bool:
        """Whether writing is forbidden."""
        return bool(self.flags & MS_RDONLY)

    @property
    def changes_access_time(self) -> bool:
        """Whether a rule for access times is among the attributes."""
        return bool(self.attributes & MOUNT_ATTR_ATIME_MASK)

    def absent_from(self, options: Collection[str]) -> list[str]:
        """Return the words that a mount with such ``options`` (mountinfo) does not follow."""
        wanted = [word for word in _SEEN if self.flags & _PER_MOUNT[word][0]]
        return [word for word in wanted if word not in options]


def parse(options: Iterable[str], *, read_only: bool = False) -> MountFlags:
    """Sort options out; each item may itself be a comma-separated list.

    Raises RpcError INVALID_ARGUMENT that names the option.
    """
    flags, attributes, rest = 0, 0, []
    words = [word.strip() for option in options for word in option.split(",")]
    for word in [*words, *(["ro"] if read_only else [])]:
        if word in _PER_MOUNT:
            flags |= _PER_MOUNT[word][0]
            attributes |= _PER_MOUNT[word][1]
        elif word in _PER_FILESYSTEM:
            flags |= _PER_FILESYSTEM[word]
        elif word.partition("=")[0] in _REFUSED:
            raise RpcError(
                Code.INVALID_ARGUMENT, f"mount_flags: {word!r} is not allowed: correct mountOptions"
            )
        elif word and word not in _DEFAULTS:
            rest.append(word)
    return MountFlags(flags, attributes, ",".join(dict.fromkeys(rest)))


def require_generic(flags: MountFlags, backend: str) -> None:
    """Refuse options that only a file system of its own could follow.

    Raises RpcError INVALID_ARGUMENT.
    """
    if flags.data or flags.flags & (MS_SYNCHRONOUS | MS_DIRSYNC | MS_LAZYTIME):
        shown = flags.data or "sync, dirsync and lazytime"
        raise RpcError(
            Code.INVALID_ARGUMENT,
            f"mount_flags: {shown}: volumes of backend {backend} share the node's file system "
            "and take only options of a single mount (ro, noexec, noatime, …)",
        )
