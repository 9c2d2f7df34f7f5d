"""Composition root: the journal, the engine, and the sockets at which the daemon is asked."""

import asyncio
import contextlib
import functools
import itertools
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterable, Iterator

import bitts
from bitts.core import exclusive, ledger, logs, process
from bitts.net.monitor import LinkMonitor
from bitts.rpc import health, introspection, server

from cni_daemon import names
from cni_daemon.answering import Answerer
from cni_daemon.attaching import Attacher
from cni_daemon.engine import Engine
from cni_daemon.executor import Executor
from cni_daemon.intents import Intents
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.options import Options
from cni_daemon.server import Server
from cni_daemon.upkeep import Upkeep

GRACE = 10.0
"""Seconds that requests under way get at the end."""

_SWITCH_INTERVAL = 0.001
"""Seconds until a thread that computes lets the event loop go on."""

_FIRST_INDEX = 1 << 20
_INDEX_ROOM = 1 << 30
"""Link indexes are ours from the first on; a random start avoids those of an earlier life."""


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


async def _main(running: process.Process, options: Options) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(exclusive.holding(options.state, "cni-daemon"))
        journal = Journal(options.state)
        try:
            loaded = await asyncio.to_thread(journal.load)
        except OSError as error:
            raise process.ExitError(1, f"--state-dir {options.state}: {error}") from error
        stack.callback(journal.close)
        stores = Stores()
        executor = Executor(stores, options.reached)
        attacher = Attacher(journal, executor, stores, _indexes(), options.reached)
        monitor = _monitor(running)
        stack.callback(monitor.close)
        record = ledger.Ledger()
        engine = Engine(attacher, monitor, record)
        stack.push_async_callback(engine.close)
        answerer = Answerer(engine)
        intents = Intents(options.intents, answerer)
        upkeep = Upkeep(engine, intents)
        await asyncio.to_thread(intents.prepare)
        await upkeep.recover(loaded)
        await stack.enter_async_context(_inspected(journal, record, options))
        await _serve(running, stack, options, answerer)
        running.start("upkeep", upkeep.run())
        running.started()
        running.log.info(
            "Serving", socket=options.socket, state=str(options.state), entries=len(loaded.entries)
        )
        await running.stopping.wait()


async def _serve(
    running: process.Process, stack: contextlib.AsyncExitStack, options: Options,
    answerer: Answerer,
) -> None:  # fmt: skip
    listener = Server(options.socket, answerer, options.deadline)
    try:
        await listener.start()
    except OSError as error:
        raise process.ExitError(1, f"cannot serve at {options.socket}: {error}") from error
    stack.push_async_callback(listener.stop, GRACE)


def _monitor(running: process.Process) -> LinkMonitor:
    def lost() -> None:
        running.log.warning("Link events were lost, looking at links one by one")

    try:
        return LinkMonitor(_FIRST_INDEX, lost)
    except OSError as error:
        raise process.ExitError(
            1, f"cannot listen to link events: {error}; the daemon needs CAP_NET_ADMIN"
        ) from error


def _indexes() -> Iterator[int]:
    return itertools.count(_FIRST_INDEX + secrets.randbelow(_INDEX_ROOM))


@contextlib.asynccontextmanager
async def _inspected(
    journal: Journal, record: ledger.Ledger, options: Options
) -> AsyncIterator[None]:
    """Serve health and introspection."""

    def figures() -> Iterable[introspection.Figure]:
        yield introspection.Figure(
            area="journal", name="entries", value=float(len(journal.entries()))
        )

    sources = introspection.Sources(
        program=names.PROGRAM, version=bitts.__version__, ledger=record, figures=figures
    )
    services = [introspection.Introspection(sources), health.Health()]
    listener = server.Server(services, options.introspection_socket)
    try:
        await listener.start()
    except OSError as error:
        raise process.ExitError(
            1, f"cannot serve at {options.introspection_socket}: {error}"
        ) from error
    try:
        yield
    finally:
        await listener.stop(GRACE)
