"""Names that are derived, not chosen: they make a repeated CSI call the same call.

A volume's name follows from its claim's UID alone, so that every attempt, by whichever
process, asks the driver for the same volume and idempotency holds.
"""

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_UUID_DIGITS = 32


class NamingError(ValueError):
    """A name cannot be made; the text says from which setting it came."""


def volume_name(prefix: str, uid: str, length: int = -1) -> str:
    """The name of the volume for the claim with this UID.

    ``length`` -1 keeps the UID as it is; otherwise its dashes are removed and the first
    ``length`` digits are used. Raises NamingError.
    """
    if not prefix:
        raise NamingError("volume name prefix is empty: set --volume-name-prefix")
    if not uid:
        raise NamingError("claim has no metadata.uid")
    if length == -1:
        return f"{prefix}-{uid}"
    return f"{prefix}-{uid.replace('-', '')[:length]}"


def check_uuid_length(length: int) -> None:
    """Raise NamingError unless ``length`` gives usable names (-1 or 1..32)."""
    if length != -1 and not 1 <= length <= _UUID_DIGITS:
        raise NamingError(
            f"--volume-name-uuid-length={length}: use -1 for the whole UID, or 1 to {_UUID_DIGITS}"
        )


def is_label(name: str) -> bool:
    """Whether ``name`` is an RFC 1123 label, as namespaces are."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Whether ``name`` is an RFC 1123 subdomain, as Secret and PersistentVolume names are."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None
