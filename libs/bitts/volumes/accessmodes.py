"""Which CSI access mode a Kubernetes access mode asks for.

CSI 1.5 split "single node writer" into single and multi writer. A driver that reports
SINGLE_NODE_MULTI_WRITER gets the exact modes; an older one gets SINGLE_NODE_WRITER for both,
as sidecars have always sent. Values are the numbers of ``VolumeCapability.AccessMode.Mode`` so
that pure decisions can carry them without loading generated messages.
"""

from collections.abc import Sequence
from enum import IntEnum


class AccessMode(IntEnum):
    """``VolumeCapability.AccessMode.Mode`` of the CSI specification, same numbers."""

    SINGLE_NODE_WRITER = 1
    SINGLE_NODE_READER_ONLY = 2
    MULTI_NODE_READER_ONLY = 3
    MULTI_NODE_SINGLE_WRITER = 4
    MULTI_NODE_MULTI_WRITER = 5
    SINGLE_NODE_SINGLE_WRITER = 6
    SINGLE_NODE_MULTI_WRITER = 7


class AccessModeError(ValueError):
    """An access mode that no CSI mode stands for; the text names it."""


_SHARED = {
    "ReadOnlyMany": AccessMode.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": AccessMode.MULTI_NODE_MULTI_WRITER,
}
_COARSE = _SHARED | {
    "ReadWriteOnce": AccessMode.SINGLE_NODE_WRITER,
    "ReadWriteOncePod": AccessMode.SINGLE_NODE_WRITER,
}
_EXACT = _SHARED | {
    "ReadWriteOnce": AccessMode.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": AccessMode.SINGLE_NODE_SINGLE_WRITER,
}


def to_csi(modes: Sequence[str], *, multi_writer: bool) -> tuple[AccessMode, ...]:
    """Map each Kubernetes mode on its own, keeping order and repetitions.

    ``multi_writer``: the driver reports SINGLE_NODE_MULTI_WRITER. Raises AccessModeError.
    """
    table = _EXACT if multi_writer else _COARSE
    try:
        return tuple(table[mode] for mode in modes)
    except KeyError as error:
        known = ", ".join(sorted(table))
        raise AccessModeError(
            f"spec.accessModes: unsupported access mode {error.args[0]!r}, use one of {known}"
        ) from None
