"""What a runtime tells a plugin through the environment, checked in Go's order.

Values that are wrong are refused at once, in the order in which they are read; values that are
missing are collected into one error. What follows (configuration, version) is in ``config``.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from bitts.cni import validation
from bitts.cni.errors import CniError, Code


class Command(enum.StrEnum):
    """The verbs of the specification."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a plugin, as far as the environment says it.

    ``container_id``, ``netns`` and ``ifname`` are empty where the command is about none: what
    stands in the environment then is not checked.
    """

    command: Command
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: str = ""
    path: tuple[str, ...] = ()
    allows_own_netns: bool = False


_ATTACHMENT = {Command.ADD, Command.DEL, Command.CHECK}
_REQUIRED: Mapping[str, frozenset[Command]] = {
    "CNI_CONTAINERID": frozenset(_ATTACHMENT),
    "CNI_NETNS": frozenset({Command.ADD, Command.CHECK}),
    "CNI_IFNAME": frozenset(_ATTACHMENT),
    "CNI_PATH": frozenset({*_ATTACHMENT, Command.GC, Command.STATUS}),
}


def read(environment: Mapping[str, str]) -> Invocation:
    """Return the call that an environment describes. Raises CniError as Go's skeleton does."""
    text = environment.get("CNI_COMMAND", "")
    if not text:
        raise CniError(Code.INVALID_ENVIRONMENT, "required env variables [CNI_COMMAND] missing")
    try:
        command = Command(text)
    except ValueError:
        command = None
    if command is not None:
        _check(environment, command)
    else:
        raise CniError(Code.INVALID_ENVIRONMENT, f"unknown CNI_COMMAND: {text}")
    attached = environment if command in _ATTACHMENT else {}
    return Invocation(
        command=command,
        container_id=attached.get("CNI_CONTAINERID", ""),
        netns=attached.get("CNI_NETNS", ""),
        ifname=attached.get("CNI_IFNAME", ""),
        args=environment.get("CNI_ARGS", ""),
        path=tuple(filter(None, environment.get("CNI_PATH", "").split(":"))),
        allows_own_netns=environment.get("CNI_NETNS_OVERRIDE", "").lower() in {"1", "true"},
    )


def _check(environment: Mapping[str, str], command: Command) -> None:
    missing: list[str] = []
    for name, commands in _REQUIRED.items():
        if command not in commands:
            continue
        value = environment.get(name, "")
        if not value:
            missing.append(name)
        elif name == "CNI_CONTAINERID":
            validation.container_id(value)
        elif name == "CNI_IFNAME":
            validation.interface_name(value)
    if missing:
        raise CniError(
            Code.INVALID_ENVIRONMENT, f"required env variables [{','.join(missing)}] missing"
        )
