"""Faults put into effect: between the wire and the service, so that the service knows of none.

Without ``--fault`` and ``--fault-socket`` nothing here is in the way of a call.
"""

import asyncio
import contextvars
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from bitts.core import logs
from bitts.csi import v1
from bitts.rpc import server, stubs
from bitts.rpc.codes import RpcError

from local_driver import faultrules, steps
from local_driver.faultrules import Kind, Rule

HANG = 24 * 3600.0
"""Seconds of a hang that no client's deadline ends."""

_HUGE = 4 << 20
"""Bytes of a context that no client takes: gRPC's default limit for an answer."""

_log = logs.get("faults")

_call: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("call", default=("", ""))
"""The RPC that work is done for, and its subject; tasks and threads inherit it."""

Answer = Callable[[Any], Awaitable[stubs.Message]]


def die() -> None:
    """End as by kill -9: nothing is flushed, closed or cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def observer(rules: faultrules.FaultSet) -> steps.Reached:
    """Return what to call at each step: it dies where a rule says so."""

    def reached(step: steps.Step) -> None:
        if rules.kills_at(step, *_call.get()):
            die()

    return reached


def shaken(rpc: str, answer: Answer, rules: faultrules.FaultSet) -> Answer:
    """Return ``answer`` with the faults of ``rules`` around it."""

    async def shaken_answer(request: Any) -> stubs.Message:
        subject = _subject(request)
        _call.set((rpc, subject))
        fired = rules.draw(rpc, subject)
        if not fired:
            return await answer(request)
        _log.at(2).info("Fault", rpc=rpc, rules=[rule.text for rule in fired])
        for rule in fired:
            if rule.kind is Kind.LATENCY:
                await asyncio.sleep(rules.latency(rule))
        await _before([rule for rule in fired if not rule.is_after])
        reply = await answer(request)
        after = [rule for rule in fired if rule.is_after]
        for rule in after:
            reply = spoil(rule, request, reply)
        await _after(after)
        return reply

    return shaken_answer


def _subject(request: object) -> str:
    fields = ("name", "volume_id", "snapshot_id", "group_snapshot_id")
    found = (getattr(request, field, "") for field in fields)
    return " ".join(text for text in found if text)


async def _before(fired: list[Rule]) -> None:
    for rule in fired:
        match rule.kind:
            case Kind.CRASH:
                die()
            case Kind.HANG:
                await asyncio.sleep(HANG)
            case Kind.CODE:
                raise RpcError(rule.code, "fault: this answer was asked for")
            case _:
                pass


async def _after(fired: list[Rule]) -> None:
    for rule in fired:
        match rule.kind:
            case Kind.CRASH:
                die()
            case Kind.HANG:
                await asyncio.sleep(HANG)
            case Kind.LOST:
                server.current().drop_connection()
            case _:
                pass


def spoil(rule: Rule, request: object, reply: stubs.Message) -> stubs.Message:
    """Return the wrong answer of a rule, or ``reply`` where the rule is about something else."""
    if rule.kind is Kind.EMPTY:
        return type(reply)()
    if rule.kind is Kind.WITHOUT:
        _take_away(rule.value, reply)
    elif rule.kind is Kind.NOT_READY:
        _unready(reply)
    elif rule.kind in faultrules.VOLUME_ANSWERS:
        assert isinstance(request, v1.CreateVolumeRequest)
        assert isinstance(reply, v1.CreateVolumeResponse)
        assert reply.volume is not None
        _spoil_volume(rule.kind, request, reply.volume)
    return reply


def _take_away(name: str, reply: Any) -> None:
    reply.capabilities = [one for one in reply.capabilities if name not in _names(one)]


def _names(capability: Any) -> set[str]:
    """Return what a capability of any of the services is called."""
    parts = (getattr(capability, part, None) for part in ("rpc", "service", "volume_expansion"))
    return {part.type.name for part in parts if part is not None}


def _unready(reply: object) -> None:
    if isinstance(reply, v1.CreateSnapshotResponse) and reply.snapshot is not None:
        reply.snapshot.ready_to_use = False
    elif isinstance(reply, v1.CreateVolumeGroupSnapshotResponse):
        assert reply.group_snapshot is not None
        reply.group_snapshot.ready_to_use = False
        for member in reply.group_snapshot.snapshots:
            member.ready_to_use = False


def _spoil_volume(kind: Kind, request: v1.CreateVolumeRequest, volume: v1.Volume) -> None:
    match kind:
        case Kind.MISSING_ID:
            volume.volume_id = ""
        case Kind.CAPACITY_TOO_SMALL:
            required = request.capacity_range.required_bytes if request.capacity_range else 0
            volume.capacity_bytes = max(1, (required or volume.capacity_bytes) // 2)
        case Kind.OTHER_TOPOLOGY:
            elsewhere = {
                key: f"not-{value}"
                for topology in volume.accessible_topology
                for key, value in topology.segments.items()
            }
            volume.accessible_topology = [v1.Topology(segments=elsewhere)]
        case Kind.HUGE_CONTEXT:
            volume.volume_context = {**volume.volume_context, "padding": "x" * _HUGE}
        case _:
            source = v1.VolumeContentSourceVolumeSource(volume_id="another-volume")
            volume.content_source = v1.VolumeContentSource(volume=source)
