"""The composition root: parts are made, put together, served and taken apart here."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Coroutine, Iterable, Sequence

import bitts
from bitts.core import exclusive, ledger, logs, process
from bitts.rpc import introspection, listeners, services, tls
from bitts.rpc.codes import RpcError

from local_driver import (
    announcing,
    checking,
    faults,
    faultsocket,
    limiting,
    names,
    opening,
    serving,
    steps,
)
from local_driver.controller import Controller
from local_driver.groupcontroller import GroupController
from local_driver.identity import Identity
from local_driver.node import Node
from local_driver.operations import Operations
from local_driver.options import Options
from local_driver.roles import Role
from local_driver.storage import Storage
from local_driver.taking import Taker

GRACE = 20.0
"""Seconds that calls and operations in progress get at the end."""

THREADS = 16
"""Blocking calls at a time (mounts, mkfs, removals); a few that hang must not stop the rest."""


def run(options: Options) -> int:
    """Serve until a signal comes; returns the exit code."""
    logs.configure(options.logs, names.PROGRAM)
    work = functools.partial(_work(options), options=options)
    return process.run(work, names.PROGRAM)


def _work(options: Options) -> Callable[..., Coroutine[object, object, None]]:
    if options.roles.role is Role.CONTROLLER:
        from local_driver.cluster import app  # nodes need nothing of it

        return app.main
    return _check if options.checks else _main


async def _check(_running: process.Process, options: Options) -> None:
    async with exclusive.holding(pathlib.Path(options.storage.state), names.PROGRAM):
        code = await asyncio.to_thread(checking.run, options)
    if code:
        raise process.ExitError(code, "see above")


async def _main(running: process.Process, options: Options) -> None:
    pool = concurrent.futures.ThreadPoolExecutor(THREADS, "blocking")
    asyncio.get_running_loop().set_default_executor(pool)
    rules, methods = serving.rules(options)
    reached = faults.observer(rules) if rules is not None else steps.unobserved
    record = ledger.Ledger()
    operations = Operations(record)
    state = pathlib.Path(options.storage.state)
    async with exclusive.holding(state, names.PROGRAM):
        opened = await asyncio.to_thread(opening.opened, options, reached)
        storage = opened.storage
        options = _with_default(options, next(iter(storage.backends)))
        taker = Taker(storage, opened.archive, operations, options.node_id)
        controllers = [
            Identity(options.driver_name),
            Controller(storage, taker, operations, options),
            GroupController(taker),
        ]
        node = Node(storage, operations, options, reached)
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
            for place, served in _places(options, controllers, node):
                await stack.enter_async_context(serving.at(place, served, rules, GRACE))
            if options.registration.folder:
                running.start(
                    "registration", announcing.offer(options.driver_name, options.registration)
                )
            running.start("sweep", _sweep(running, storage, operations))
            running.start("limits of I/O", limiting.keep(storage, operations))
            _tell_ready(running, options, storage)
            await running.stopping.wait()


def _with_default(options: Options, backend: str) -> Options:
    """Return the options with the default backend filled in."""
    chosen = options.storage.default_backend or backend
    storage = dataclasses.replace(options.storage, default_backend=chosen)
    return dataclasses.replace(options, storage=storage)


def _places(
    options: Options, controllers: Sequence[services.Service], node: Node
) -> list[tuple[serving.Place, Sequence[services.Service]]]:
    """Return what is served where: with a controller elsewhere, its half is for that alone."""
    if options.roles.role is Role.ALL:
        return [(options.socket, [*controllers, node])]
    link = options.roles.link
    credentials = tls.Credentials(tls.Files(link.certificate, link.key, link.authority))
    port = listeners.TlsListener(*link.listen, credentials, link.controller_name)
    return [(port, controllers), (options.socket, [Identity(options.driver_name), node])]


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


def _tell_ready(running: process.Process, options: Options, storage: Storage) -> None:
    running.started()
    log = running.log
    if os.geteuid() != 0:
        log.warning("Not root: volumes can be made and removed, but neither staged nor published")
    log.info(
        "Serving",
        driver=options.driver_name,
        role=options.roles.role.value,
        node=options.node_id,
        socket=options.socket,
        state=options.storage.state,
        backends=list(storage.backends),
        volumes=len(storage.catalog),
    )
