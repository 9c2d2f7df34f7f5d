"""The IPAM interface: one file per IPAM plugin, which ends in ``IPAM = Ipam(...)``.

Unlike plugins, IPAM plugins act when they are asked: an address must be taken durably before a
plan can be made with it. What takes it back is known before (``undo``), is written to the
journal first, and must bear that nothing was ever allocated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bitts.cni.attachments import Attachment
from bitts.cni.config import PluginConfig
from bitts.cni.results import Result

from cni_daemon.ipam.stores import Stores
from cni_daemon.model import Call
from cni_daemon.operations import Operation

O = TypeVar("O")  # noqa: E741 - the one type parameter: an IPAM plugin's options


def _keeps_nothing(_stores: Stores, _call: Call, _valid: frozenset[Attachment]) -> int:
    return 0


def _is_ready(_options: object, _stores: Stores) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Ipam(Generic[O]):
    """An IPAM plugin as functions. All run in worker threads and may touch the disk.

    ``parse`` reads the whole configuration; ``check`` raises CniError if a reservation is gone;
    ``ready`` raises CniError with code 50 if no address could be given. ``collect`` frees what
    no valid attachment owns and returns how much; like ``undo`` it works without options, for a
    configuration that has become invalid must not keep anything from being freed.
    """

    type: str
    parse: Callable[[PluginConfig, Call], O]
    undo: Callable[[Call], tuple[Operation, ...]]
    allocate: Callable[[O, Stores, Call], Result]
    check: Callable[[O, Stores, Call], None]
    collect: Callable[[Stores, Call, frozenset[Attachment]], int] = _keeps_nothing
    ready: Callable[[O, Stores], None] = _is_ready


AnyIpam = Ipam[Any]
