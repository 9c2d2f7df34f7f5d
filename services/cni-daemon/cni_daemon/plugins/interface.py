"""The plugin interface: one file per plugin, which ends in ``PLUGIN = Plugin(...)``.

What to write for a new plugin, say ``sbr``:

1. ``Options``: a frozen dataclass, and ``parse(config, call)`` that reads it with
   ``config.fields`` (Go's JSON habits are in there) and refuses with ``CniError``. It runs for
   every verb, so it must not look at the machine; a DEL of something the journal knows does
   not even ask it.
2. ``looks(options, call)``: which links, addresses, settings and routes you want to see.
3. ``foundation(options, call, observed)``: things that attachments share and that stay (a
   bridge, its address, forwarding, rule sets). Return only what is missing; it runs under a
   lock and everything is looked at again afterwards. Nothing here is ever undone.
4. ``plan(options, call, observed)``: the steps of this attachment, each with its undo, and the
   result. No effects, no clock, no chance but ``call.draws``. Undo operations run in reverse
   on DEL, on a failed ADD, and after a crash, whatever had been done by then.
5. ``check(options, call, observed)``: raise ``CniError`` if the attachment is broken for good.
6. ``remove(options, call, observed)``: only for attachments that our journal does not know
   (made by the reference plugins, or the journal was lost): what to do, in order. ``options``
   is None where ``parse`` refuses: a pod's end must not depend on what we serve.

Then add the module to ``registry.ALL``; the shim's name is installed from there. Operations that
you miss go into ``operations`` (the value) and ``executor`` (the effect), 10 lines each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bitts.cni import versions
from bitts.cni.config import PluginConfig

from cni_daemon.model import Call, Look, Observed, Plan
from cni_daemon.operations import Operation

O = TypeVar("O")  # noqa: E741 - the one type parameter: a plugin's options


def _looks_nowhere(_options: object, _call: Call) -> Look:
    return Look()


def _needs_no_foundation(
    _options: object, _call: Call, _observed: Observed
) -> tuple[Operation, ...]:
    return ()


def _is_content(_options: object, _call: Call, _observed: Observed) -> None:
    return None


def _uses_no_ipam(_options: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Plugin(Generic[O]):
    """A plugin as six functions; only ``parse`` and ``plan`` are always needed.

    ``uses_ipam`` says whether the IPAM plugin named in the configuration is to be asked; its
    answer is in ``call.addressing`` when ``foundation`` and ``plan`` run. ``is_meta`` marks
    plugins that need the result of an earlier one.
    """

    type: str
    parse: Callable[[PluginConfig, Call], O]
    plan: Callable[[O, Call, Observed], Plan]
    looks: Callable[[O, Call], Look] = _looks_nowhere
    foundation: Callable[[O, Call, Observed], tuple[Operation, ...]] = _needs_no_foundation
    check: Callable[[O, Call, Observed], None] = _is_content
    remove: Callable[[O | None, Call, Observed], tuple[Operation, ...]] = _needs_no_foundation
    uses_ipam: Callable[[O], bool] = _uses_no_ipam
    versions: tuple[str, ...] = versions.ALL
    is_meta: bool = False


AnyPlugin = Plugin[Any]
