"""The composition root: parts are made, put together, served and taken apart here."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import AsyncIterator, Iterable, Sequence

import bitts
from bitts.core import exclusive, ledger, logs, process
from bitts.csi import redact, v1
from bitts.rpc import introspection, server, services
from bitts.rpc.codes import RpcError

from local_driver import (
    announcing,
    checking,
    dispatch,
    faultrules,
    faults,
    faultsocket,
    names,
    opening,
    steps,
)
from local_driver.controller import Controller
from local_driver.groupcontroller import GroupController
from local_driver.identity import Identity
from local_driver.node import Node
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.storage import Storage
from local_driver.taking import Taker

GRACE = 20.0
"""Seconds that calls and operations in progress get at the end."""

THREADS = 16
"""Blocking calls at a time (mounts, mkfs, removals); a few that hang must not stop the rest."""


def run(options: Options) -> int:
    """Serve until a signal comes; returns the exit code."""
    logs.configure(options.logs, names.PROGRAM)
    work = _check if options.checks else _main
    return process.run(functools.partial(work, options=options), names.PROGRAM)


async def _check(_running: process.Process, options: Options) -> None:
    async with exclusive.holding(pathlib.Path(options.storage.state), names.PROGRAM):
        code = await asyncio.to_thread(checking.run, options)
    if code:
        raise process.ExitError(code, "see above")


async def _main(running: process.Process, options: Options) -> None:
    pool = concurrent.futures.ThreadPoolExecutor(THREADS, "blocking")
    asyncio.get_running_loop().set_default_executor(pool)
    methods = _method_names(
        [v1.IdentityBase(), v1.ControllerBase(), v1.GroupControllerBase(), v1.NodeBase()]
    )
    rules = _rules(options, methods)
    reached = faults.observer(rules) if rules is not None else steps.unobserved
    record = ledger.Ledger()
    operations = Operations(record)
    state = pathlib.Path(options.storage.state)
    async with exclusive.holding(state, names.PROGRAM):
        opened = await asyncio.to_thread(opening.opened, options, reached)
        storage = opened.storage
        options = _with_default(options, next(iter(storage.backends)))
        taker = Taker(storage, opened.archive, operations, options.node_id)
        csi: list[services.Service] = [
            Identity(options.driver_name),
            Controller(storage, taker, operations, options),
            GroupController(taker),
            Node(storage, operations, options, reached),
        ]
        dispatched = [dispatch.Dispatched(service, rules) for service in csi]
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(opened.close)
            stack.push_async_callback(operations.finish, GRACE)
            asked = await introspection.serve(
                _sources(storage, record), options.introspection_socket, {}, is_required=False
            )
            stack.push_async_callback(asked.stop)
            if rules is not None and options.faults.socket:
                running.start(
                    "fault socket", faultsocket.serve(options.faults.socket, rules, methods)
                )
            await stack.enter_async_context(_serving(dispatched, options.socket))
            if options.registration.folder:
                running.start(
                    "registration", announcing.offer(options.driver_name, options.registration)
                )
            running.start("sweep", _sweep(running, storage, operations))
            _tell_ready(running, options, storage)
            await running.stopping.wait()


def _with_default(options: Options, backend: str) -> Options:
    """Return the options with the default backend filled in."""
    chosen = options.storage.default_backend or backend
    storage = dataclasses.replace(options.storage, default_backend=chosen)
    return dataclasses.replace(options, storage=storage)


def _rules(options: Options, methods: Sequence[str]) -> faultrules.FaultSet | None:
    if not options.faults.rules and not options.faults.socket:
        return None
    try:
        given = [faultrules.parse(text, methods) for text in options.faults.rules]
    except ValueError as error:
        raise process.ExitError(1, f"--fault {error}") from error
    return faultrules.FaultSet(given)


async def _sweep(running: process.Process, storage: Storage, operations: Operations) -> None:
    """Remove content that a crash left without metadata; then rest until the end."""
    log = logs.get("storage")
    for volume_id in await asyncio.to_thread(storage.leftovers):
        try:
            work = functools.partial(storage.sweep, volume_id)
            if await operations.run(volume_id, "Sweep", work):
                log.info("Removed what a crash left", volume=volume_id)
        except (OSError, RpcError) as error:
            log.warning("What a crash left cannot be removed", volume=volume_id, err=error)
    await running.stopping.wait()


def _sources(storage: Storage, record: ledger.Ledger) -> introspection.Sources:
    def figures() -> Iterable[introspection.Figure]:
        yield introspection.Figure(
            area="storage", name="volumes", value=float(len(storage.catalog))
        )
        yield introspection.Figure(
            area="storage", name="promised_bytes", value=float(storage.catalog.promised)
        )
        yield introspection.Figure(
            area="storage", name="snapshots", value=float(len(storage.shelf.snapshots))
        )

    return introspection.Sources(
        program=names.PROGRAM, version=bitts.__version__, ledger=record, figures=figures
    )


@contextlib.asynccontextmanager
async def _serving(served: Sequence[services.Service], path: str) -> AsyncIterator[None]:
    listener = server.Server(served, path, scrub=redact.scrub)
    try:
        await listener.start()
    except OSError as error:
        raise process.ExitError(1, f"--endpoint={path}: {error}") from error
    try:
        yield
    finally:
        await listener.stop(GRACE)


def _method_names(served: Sequence[services.Service]) -> list[str]:
    return [dispatch.short_name(method.name) for one in served for method in one.rpc_methods()]


def _tell_ready(running: process.Process, options: Options, storage: Storage) -> None:
    running.started()
    log = running.log
    if os.geteuid() != 0:
        log.warning("Not root: volumes can be made and removed, but neither staged nor published")
    log.info(
        "Serving",
        driver=options.driver_name,
        node=options.node_id,
        socket=options.socket,
        state=options.storage.state,
        backends=list(storage.backends),
        volumes=len(storage.catalog),
    )
