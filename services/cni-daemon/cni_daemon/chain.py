"""A request as stages: one per plugin, of which most requests have one.

Runtimes call the plugins of a list one by one. A configuration of type ``bitts`` holds several
under ``plugins`` and has them carried out as one: planned one after the other, acted on in one
pass. What a stage's plugin would see on stdin is derived as libcni derives it.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bitts.cni import config, conversion, documents, results
from bitts.cni.config import NetworkList, PluginConfig
from bitts.cni.conversion import ConversionError
from bitts.cni.documents import DocumentError, OutOfRangeError
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.core import logs

from cni_daemon.ipam import registry as ipam_registry
from cni_daemon.model import Call, Draws, Plan
from cni_daemon.names import CHAIN_TYPE
from cni_daemon.plugins import registry
from cni_daemon.plugins.interface import AnyPlugin, Plugin
from cni_daemon.records import Key
from cni_daemon.requests import Request

_NOT_IDENTITY = {"prevResult", "runtimeConfig", "cniVersion", "cni.dev/valid-attachments",
                 "cni.dev/attachments"}  # fmt: skip


_REMEMBERED = 128
_VERSION = "1.1.0"


@dataclass(frozen=True, slots=True)
class Stage:
    """One plugin with its options. ``ipam`` is the type of its IPAM plugin, or empty."""

    plugin: AnyPlugin
    options: object
    call: Call
    ipam: str

    def with_call(self, call: Call) -> "Stage":
        """Return the stage with another call."""
        return Stage(self.plugin, self.options, call, self.ipam)

    def after(self, previous: Result | None) -> "Stage":
        """Return the stage with the result of the one before it."""
        return self if previous is None else self.with_call(self.call.after(previous))


Staging = Callable[[Request, str, PluginConfig, Draws], Stage]


def stages(request: Request, draws: Draws) -> tuple[Stage, ...]:
    """Return the stages of a request, in order. Raises CniError for a wrong configuration."""
    return _staged(request, draws, _stage)


def stages_to_remove(request: Request, draws: Draws) -> tuple[Stage, ...]:
    """Return the stages of a DEL, in order; one that is refused has None for its options.

    Raises CniError only where it cannot be told which plugins are meant.
    """
    return _staged(request, draws, _stage_to_remove)


def stages_to_ask(request: Request, draws: Draws) -> tuple[Stage, ...]:
    """Return the stages of a GC or a STATUS, which say nothing of any attachment.

    Only their IPAM plugins matter; of one that is refused the options are None. Raises CniError.
    """
    return _staged(request, draws, _stage_to_ask)


def _staged(request: Request, draws: Draws, stage: Staging) -> tuple[Stage, ...]:
    if request.plugin != CHAIN_TYPE:
        return (stage(request, request.plugin, request.config, draws),)
    try:
        given = [
            documents.as_object(each, "plugins") for each in request.config.fields.items("plugins")
        ]
        runtime = request.config.fields.mapping("runtimeConfig")
    except DocumentError as error:
        raise CniError(Code.INVALID_CONFIG, str(error)) from None
    if not given:
        raise CniError(Code.INVALID_CONFIG, f"type {CHAIN_TYPE!r} needs a list of plugins")
    network = NetworkList(request.config.name, request.config.version, tuple(given))
    found: list[Stage] = []
    for plugin in given:
        derived = config.derive(network, plugin, runtime=runtime)
        kind = documents.Fields(plugin).text("type")
        inner = _inner(documents.render(derived, compact=True), network.version, network.name, kind)
        if request.config.previous is not None:
            inner = inner.after(request.config.previous)
        found.append(stage(request, kind, inner, draws))
    return tuple(found)


@functools.lru_cache(_REMEMBERED)
def _inner(text: str, version: str, name: str, kind: str) -> PluginConfig:
    """Return the configuration of a plugin in a chain; most are those of the pod before."""
    return PluginConfig(documents.as_object(json.loads(text), "plugins"), version, name, kind)


def _stage(request: Request, kind: str, inner: PluginConfig, draws: Draws) -> Stage:
    call = Call(request.invocation, inner, draws, inner.previous)
    plugin = registry.ALL.get(kind)
    if plugin is None and kind in ipam_registry.ALL:
        return Stage(_alone(kind), None, call, kind)
    if plugin is None:
        raise CniError(Code.INVALID_CONFIG, f"no plugin {kind!r} is served here")
    return _with_ipam(plugin, _parsed(plugin, inner, call), call)


def _parsed(plugin: AnyPlugin, inner: PluginConfig, call: Call) -> object:
    try:
        return plugin.parse(inner, call)
    except OutOfRangeError as error:
        raise CniError(Code.INVALID_CONFIG, str(error)) from None
    except DocumentError as error:
        raise CniError(Code.INTERNAL, f"failed to load netconf: {error}") from None


def _with_ipam(plugin: AnyPlugin, options: object, call: Call) -> Stage:
    uses_ipam = plugin.uses_ipam(options)
    ipam = call.config.ipam_type if uses_ipam else ""
    if uses_ipam and not ipam:
        raise CniError(Code.INTERNAL, "no plugin name provided")
    return Stage(plugin, options, call, ipam)


def _stage_to_ask(request: Request, kind: str, inner: PluginConfig, draws: Draws) -> Stage:
    plugin = registry.ALL.get(kind)
    if plugin is None:
        return _stage(request, kind, inner, draws)
    call = Call(request.invocation, inner, draws, inner.previous)
    try:
        options = _parsed(plugin, inner, call)
    except CniError:  # it may need what only an attachment's runtimeConfig says
        return Stage(plugin, None, call, "" if plugin.is_meta else _ipam_type(inner))
    return _with_ipam(plugin, options, call)


def _stage_to_remove(request: Request, kind: str, inner: PluginConfig, draws: Draws) -> Stage:
    try:
        return _stage(request, kind, inner, draws)
    except CniError as error:
        plugin = registry.ALL.get(kind)
        if plugin is None:
            raise
        logs.get("chain").warning(
            "Removing what is not served", plugin=kind, network=request.config.name, err=error
        )
    call = Call(request.invocation, inner, draws, inner.previous)
    return Stage(plugin, None, call, "" if plugin.is_meta else _ipam_type(inner))


def _ipam_type(inner: PluginConfig) -> str:
    try:
        return inner.ipam_type
    except DocumentError:
        return ""


def ipam_types(configured: PluginConfig) -> frozenset[str]:
    """Return the IPAM plugins that a configuration names, for itself or for its list."""
    fields = [configured.fields]
    with contextlib.suppress(DocumentError):
        fields += configured.fields.objects("plugins")
    found: set[str] = set()
    for each in fields:
        with contextlib.suppress(DocumentError):
            found.add(each.nested("ipam").text("type"))
    return frozenset(found)


def _alone(kind: str) -> AnyPlugin:
    """Return an IPAM plugin that was called by itself: its answer is the result."""

    def plan(_options: object, call: Call, _observed: object) -> Plan:
        return Plan((), call.addressing or Result())

    return Plugin(type=kind, parse=lambda _config, _call: None, plan=plan)


def document(result: Result, version: str) -> Mapping[str, object]:
    """Return a result as a request of a version is answered. Raises CniError."""
    try:
        current = results.relabelled(result, _VERSION) if not result.version else result
        return results.encode(conversion.convert(current, version))
    except ConversionError as error:
        raise CniError(Code.INTERNAL, str(error)) from None


def key(request: Request) -> Key:
    """Return what names the request's part of the attachment in the journal."""
    digest = _digest(request.config)
    invocation = request.invocation
    return Key(
        request.config.name,
        invocation.container_id,
        invocation.ifname,
        f"{request.plugin}#{digest}",
    )


@functools.lru_cache(_REMEMBERED)
def _digest(config: PluginConfig) -> str:
    """Return what tells two configurations of one type in a chain apart."""
    identity = {name: value for name, value in config.document.items() if name not in _NOT_IDENTITY}
    text = json.dumps(identity, sort_keys=True, default=str).encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()
