"""From a frame to a checked request (pure), with the refusals in Go's order."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitts.cni import config, environment, validation, versions
from bitts.cni.config import PluginConfig
from bitts.cni.environment import Command, Invocation
from bitts.cni.errors import CniError, Code

from cni_daemon.ipam import registry as ipam
from cni_daemon.names import CHAIN_TYPE
from cni_daemon.plugins import registry as plugins
from cni_daemon.protocol import Frame

_REMEMBERED = 128
_REMEMBERED_SIZE = 16384
"""Bytes of a configuration that is worth remembering: pods of a network share theirs."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call to carry out. ``nonce`` stays the same when the shim repeats itself."""

    nonce: str
    plugin: str
    invocation: Invocation
    config: PluginConfig
    environment: Mapping[str, str]
    stdin: bytes


def served_types() -> tuple[str, ...]:
    """Return every name under which the shim is installed."""
    return (*plugins.ALL, *ipam.ALL, CHAIN_TYPE)


def supported_versions(plugin: str) -> Sequence[str]:
    """Return the versions of the specification that a plugin speaks. Raises CniError."""
    if plugin in plugins.ALL:
        return plugins.ALL[plugin].versions
    if plugin in ipam.ALL or plugin == CHAIN_TYPE:
        return versions.ALL
    raise CniError(Code.INVALID_CONFIG, f"no plugin {plugin!r} is served here")


def read(frame: Frame) -> Request:
    """Check a frame. Raises CniError."""
    validation.plugin_type(frame.plugin)
    supported = supported_versions(frame.plugin)
    invocation = environment.read(frame.environment)
    reads = config.read_request
    if invocation.command is Command.DEL:
        reads = _to_remove
    if len(frame.stdin) < _REMEMBERED_SIZE and b"prevResult" not in frame.stdin:
        reads = _remembered
    found = reads(frame.stdin, invocation.command, tuple(supported))
    return Request(frame.nonce, frame.plugin, invocation, found, frame.environment, frame.stdin)


def version_document(plugin: str) -> dict[str, object]:
    """Return the answer to VERSION. Raises CniError."""
    return {
        "cniVersion": versions.CURRENT,
        "supportedVersions": list(supported_versions(plugin)),
    }


def is_version(frame: Frame) -> bool:
    """Say whether a frame asks for versions only: nothing else in it is looked at then."""
    return frame.environment.get("CNI_COMMAND") == Command.VERSION


_remembered = functools.lru_cache(_REMEMBERED)(config.read_request)
_to_remove = functools.partial(config.read_request, leaves_previous=True)
"""Whoever knows the attachment knows its result: ``Engine.remove`` compares it, or has it read."""
