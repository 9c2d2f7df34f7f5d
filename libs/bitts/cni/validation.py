"""Names that come from outside: which are acceptable, and the words of refusal.

They end up in file names, interface names and rule comments, so nothing else is let in. The
rules and texts are those of Go's skeleton; the interface name is counted in bytes.
"""

import re

from bitts.cni.errors import CniError, Code

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_INTERFACE_LIMIT = 15
NAME_LIMIT = 250
"""Bytes of a network name, container ID or plugin type: each becomes one file name."""


def container_id(value: str) -> None:
    """Refuse an empty or odd container ID."""
    if not value:
        raise CniError(Code.UNKNOWN_CONTAINER, "missing containerID")
    if not _NAME.fullmatch(value) or len(value) > NAME_LIMIT:
        raise CniError(Code.INVALID_ENVIRONMENT, "invalid characters in containerID", value)


def network_name(value: str) -> None:
    """Refuse an empty or odd network name."""
    if not value:
        raise CniError(Code.INVALID_CONFIG, "missing network name:")
    if not _NAME.fullmatch(value) or len(value) > NAME_LIMIT:
        raise CniError(Code.INVALID_CONFIG, "invalid characters found in network name", value)


def interface_name(value: str) -> None:
    """Refuse what the kernel would not take as an interface's name."""
    if not value:
        raise CniError(Code.INVALID_ENVIRONMENT, "interface name is empty")
    if len(value.encode(errors="surrogateescape")) > _INTERFACE_LIMIT:
        raise CniError(
            Code.INVALID_ENVIRONMENT,
            "interface name is too long",
            "interface name should be less than 16 characters",
        )
    if value in {".", ".."}:
        raise CniError(Code.INVALID_ENVIRONMENT, "interface name is . or ..")
    if any(mark in "/:" or mark.isspace() for mark in value) or not value.isprintable():
        raise CniError(
            Code.INVALID_ENVIRONMENT, "interface name contains / or : or whitespace characters"
        )


def plugin_type(value: str) -> None:
    """Refuse a plugin type that is no plain file name."""
    if not value:
        raise CniError(Code.INVALID_CONFIG, "no plugin name provided")
    if "/" in value or "\0" in value or value in {".", ".."} or len(value) > NAME_LIMIT:
        raise CniError(Code.INVALID_CONFIG, f"invalid plugin name: {value}")
