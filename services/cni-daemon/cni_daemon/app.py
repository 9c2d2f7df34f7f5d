"""Composition root: the journal, the engine, and the sockets at which the daemon is asked."""

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bitts.core import exclusive, ledger, logs, process

from cni_daemon import faces, names, requests
from cni_daemon.alone import alone
from cni_daemon.answering import Answerer
from cni_daemon.attaching import Attacher
from cni_daemon.dhcp.keeping import Keeping
from cni_daemon.dhcp.leasing import Leasing
from cni_daemon.engine import Engine
from cni_daemon.executor import Executor
from cni_daemon.foundations import Foundations
from cni_daemon.intents import Intents
from cni_daemon.ipam.spares import Spares
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal, Loaded
from cni_daemon.options import Options
from cni_daemon.repairing import Repairs
from cni_daemon.routekeeping import Keeper
from cni_daemon.sandboxes import Sandboxes
from cni_daemon.server import Server
from cni_daemon.tally import Tally
from cni_daemon.upkeep import Upkeep

GRACE = 10.0
"""Seconds that requests under way get at the end."""

_SWITCH_INTERVAL = 0.001
"""Seconds until a thread that computes lets the event loop go on."""

_YOUNG, _GENERATIONS = 20_000, 20
"""New objects before cycles are looked for among them, and such searches before a larger one."""

_INDEX_ROOM = 1 << 30
"""Our link indexes start at random, which avoids those of an earlier life."""


def run(options: Options) -> int:
    """Serve until a signal comes; returns the exit code."""
    logs.configure(options.logs, names.PROGRAM)
    _hurry(options.niceness)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    main = functools.partial(_main, options=options)
    return process.run(main, names.PROGRAM, use_uvloop=False)


def _hurry(niceness: int) -> None:
    """Go before what the node computes: all its containers wait for us when they start."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    except OSError as error:
        logs.get(names.PROGRAM).warning("Cannot set the priority", nice=niceness, err=error)


def _leave_garbage_be() -> None:
    """Look for cycles rarely, and never among what is there from the start.

    A request makes none; each search through everything would cost as much as several ADDs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _GENERATIONS, _GENERATIONS)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the daemon is made of."""

    journal: Journal
    loaded: Loaded
    foundations: Foundations
    stores: Stores
    executor: Executor
    keeper: Keeper
    engine: Engine
    record: ledger.Ledger
    tally: Tally
    intents: Intents
    answerer: Answerer


async def _main(running: process.Process, options: Options) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(exclusive.holding(options.state, names.PROGRAM))
        await stack.enter_async_context(alone())
        parts = await _parts(running, stack, options)
        repairs = Repairs(
            parts.engine, parts.record, parts.tally, options.upkeep_interval, options.abandon_after
        )
        upkeep = Upkeep(
            parts.engine, parts.intents, parts.executor, parts.foundations, parts.keeper,
            repairs, parts.tally, options.upkeep_interval,
        )  # fmt: skip
        await asyncio.to_thread(parts.intents.prepare)
        await upkeep.recover(parts.loaded)
        keeping = Keeping(parts.journal, parts.record)
        keeping.start()
        stack.push_async_callback(keeping.close)
        await _faces(running, stack, options, parts, keeping)
        running.start("upkeep", upkeep.run())
        if options.runtime.socket:
            sandboxes = Sandboxes(options.runtime, parts.engine, parts.tally)
            running.start("sandboxes", sandboxes.run())
        running.started()
        _leave_garbage_be()
        running.log.info(
            "Serving",
            socket=options.socket,
            state=str(options.state),
            entries=len(parts.loaded.entries),
        )
        await running.stopping.wait()


async def _parts(
    running: process.Process, stack: contextlib.AsyncExitStack, options: Options
) -> Parts:
    journal = Journal(options.state)
    foundations = Foundations(options.state, journal.boot)
    try:
        loaded = await asyncio.to_thread(journal.load)
        await asyncio.to_thread(foundations.load)
    except OSError as error:
        raise process.ExitError(1, f"--state-dir {options.state}: {error}") from error
    stack.callback(journal.close)
    spares = Spares(options.state / names.SPARES)
    await asyncio.to_thread(spares.prepare)
    stores = Stores(spares)
    executor = Executor(stores, options.reached, foundations.note)
    stack.push_async_callback(asyncio.to_thread, executor.close)
    leasing = Leasing(asyncio.get_running_loop(), options.dhcp_timeout)
    attacher = Attacher(journal, executor, stores, _indexes(), options.reached, leasing)
    stack.callback(attacher.close)
    keeper = Keeper(journal, executor, options.reached)
    record = ledger.Ledger()
    engine = Engine(attacher, record)
    tally = Tally(requests.served_types())
    intents = Intents(options.intents, engine, tally)
    answerer = Answerer(engine, intents, tally)
    return Parts(
        journal, loaded, foundations, stores, executor, keeper, engine, record, tally, intents,
        answerer,
    )  # fmt: skip


def _make_folders(options: Options) -> None:
    """Make what the sockets lie in: after a reboot ``/run`` is empty. Raises ExitError."""
    for flag, path in (
        ("socket", options.socket),
        ("introspection-socket", options.introspection_socket),
    ):
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        except OSError as error:
            raise process.ExitError(1, f"--{flag} {path}: {error}") from error


async def _faces(
    running: process.Process, stack: contextlib.AsyncExitStack, options: Options, parts: Parts,
    keeping: Keeping,
) -> None:  # fmt: skip
    """Open every socket; that of the shim last, which promises that all is there."""
    await asyncio.to_thread(_make_folders, options)
    listener = Server(options.socket, parts.answerer, options.deadline)
    inside = faces.Inside(
        options=options,
        journal=parts.journal,
        stores=parts.stores,
        engine=parts.engine,
        keeper=parts.keeper,
        record=parts.record,
        tally=parts.tally,
        leases=lambda: keeping.states,
        intents=lambda: parts.intents.waiting,
        connections=lambda: listener.connections,
    )
    await stack.enter_async_context(faces.served(inside, GRACE))
    try:
        await listener.start()
    except OSError as error:
        raise process.ExitError(1, f"cannot serve at {options.socket}: {error}") from error
    stack.push_async_callback(listener.stop, GRACE)


def _indexes() -> Iterator[int]:
    return itertools.count(names.FIRST_INDEX + secrets.randbelow(_INDEX_ROOM))
