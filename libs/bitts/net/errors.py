"""Failures of the kernel, with the words and the two questions that callers ask about them."""

import errno
import os

_MISSING = {errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL, errno.ENXIO}
_TAKEN = {errno.EEXIST, errno.EBUSY}
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class NetlinkError(Exception):
    """The kernel refused a request. ``code`` is the errno, ``words`` the kernel's own text."""

    def __init__(self, code: int, what: str, words: str = "") -> None:
        said = f" ({words})" if words else ""
        super().__init__(f"{what}: {os.strerror(code).lower()}{said}")
        self.code = code
        self.words = words

    @property
    def is_missing(self) -> bool:
        """Whether what should be changed or removed is not there."""
        return self.code in _MISSING

    @property
    def is_present(self) -> bool:
        """Whether what should be made is there already."""
        return self.code == errno.EEXIST

    @property
    def is_taken(self) -> bool:
        """Whether an entry of a map is there already and leads elsewhere."""
        return self.code in _TAKEN

    @property
    def is_unreachable(self) -> bool:
        """Whether no route leads there."""
        return self.code in _UNREACHABLE


class NamespaceError(Exception):
    """A path that should be a network namespace cannot be entered."""


class NamespaceGone(NamespaceError):  # noqa: N818 - a state of the world, not a mistake
    """There is no network namespace at the path (any more)."""


class NamespaceReplaced(NamespaceError):  # noqa: N818 - a state of the world, not a mistake
    """Something is at the path that is no network namespace, and cannot become one."""


def is_disk_full(error: OSError) -> bool:
    """Say whether nothing can be written where the error comes from."""
    return error.errno in _FULL
