"""Versions of the CNI specification: order, membership, and what each one allows.

Two different questions are asked of a version string, and Go's library answers them
differently: *comparing* is lenient (missing parts are zero, the empty string is 0.1.0), while
a plugin *accepts* only the exact strings of its list, so ``"1.0"`` compares fine and is refused.
"""

import enum
from collections.abc import Sequence

CURRENT = "1.1.0"
"""What a VERSION reply names, whatever was asked."""

ALL = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
FROM_0_3_0 = ALL[2:]
FROM_0_3_1 = ALL[3:]
FROM_0_4_0 = ALL[4:]

CHECK_SINCE = "0.4.0"
GC_SINCE = "1.1.0"
STATUS_SINCE = "1.1.0"

_OLDEST = "0.1.0"
_PARTS = 3


class Family(enum.Enum):
    """The three shapes that a result has had on the wire."""

    FLAT = "ip4 and ip6"
    LISTED = "lists, with a version in each address"
    CURRENT = "lists"


_FAMILIES = {
    "0.1.0": Family.FLAT,
    "0.2.0": Family.FLAT,
    "0.3.0": Family.LISTED,
    "0.3.1": Family.LISTED,
    "0.4.0": Family.LISTED,
    "1.0.0": Family.CURRENT,
    "1.1.0": Family.CURRENT,
}


def parse(version: str) -> tuple[int, int, int]:
    """Return major, minor, micro; missing ones are zero, nothing at all is 0.1.0.

    Raises ValueError for more than three parts or a part that is no number.
    """
    parts = (version or _OLDEST).split(".")
    if len(parts) > _PARTS:
        raise ValueError(f'invalid version "{version}": too many parts')
    try:
        numbers = [_part(part) for part in parts]
    except ValueError:
        raise ValueError(f'failed to convert a part of version "{version}" to a number') from None
    major, minor, micro = (*numbers, 0, 0)[:_PARTS]
    return major, minor, micro


def _part(text: str) -> int:
    if not text.isascii() or not text.lstrip("+-").isdigit():
        raise ValueError(text)
    return int(text)


def at_least(version: str, floor: str) -> bool:
    """Say whether ``version`` is ``floor`` or later. Raises ValueError for a malformed one."""
    return parse(version) >= parse(floor)


def family(version: str) -> Family | None:
    """Return the result shape of a version, None for one that has never existed."""
    return _FAMILIES.get(version or _OLDEST)


def chosen(version: str, offered: Sequence[str]) -> str:
    """Return the version libcni speaks for a list with ``cniVersion`` and ``cniVersions``.

    Of those that the library knows the highest wins; with none of them, or without
    ``cniVersions``, it is ``version`` as it is written. Raises ValueError for a malformed one.
    """
    if not offered:
        return version
    candidates = [*offered, version] if version else [*offered]
    known = [each for each in candidates if parse(each) <= parse(CURRENT)]
    return max(known, key=parse) if known else version
