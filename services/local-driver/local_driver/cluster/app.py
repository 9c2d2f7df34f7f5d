"""The composition root of the controller's role: it has no volumes, it knows who has them."""

import asyncio
import contextlib
import pathlib
from collections.abc import Iterable

import bitts
from bitts.core import exclusive, ledger, process
from bitts.rpc import introspection, services

from local_driver import faultsocket, identity, names, serving
from local_driver.cluster.book import Book
from local_driver.cluster.controller import Controller
from local_driver.cluster.creating import Creator
from local_driver.cluster.fleet import Fleet
from local_driver.cluster.groups import GroupController
from local_driver.cluster.lists import Lists
from local_driver.cluster.roster import Roster
from local_driver.cluster.taking import Taker
from local_driver.operations import Operations
from local_driver.options import Options

GRACE = 20.0
"""Seconds that calls in progress get at the end."""


async def main(running: process.Process, options: Options) -> None:
    """Serve all nodes until a signal comes; raises ExitError that names the flag."""
    rules, methods = serving.rules(options)
    record = ledger.Ledger()
    operations = Operations(record)
    roster = _roster(options)
    state = pathlib.Path(options.storage.state)
    async with (
        exclusive.holding(state, names.PROGRAM),
        contextlib.AsyncExitStack() as stack,
    ):
        book = await _opened(state)
        stack.push_async_callback(book.close)
        fleet = Fleet(options, roster, book, record, running)
        asked = await introspection.serve(
            _sources(fleet, book, record), options.introspection_socket, {}, is_required=False
        )
        stack.push_async_callback(asked.stop)
        if rules is not None and options.faults.socket:
            running.start("fault socket", faultsocket.serve(options.faults.socket, rules, methods))
        try:
            await fleet.begin()
        except OSError as error:
            raise process.ExitError(1, f"--tls-cert, --tls-key, --tls-ca: {error}") from error
        running.start("list of nodes", fleet.watch())
        running.start("accounts of nodes", book.keep_saved())
        stack.push_async_callback(operations.finish, GRACE)
        served = _services(options, fleet, book, operations)
        await stack.enter_async_context(serving.at(options.socket, served, rules, GRACE))
        _tell_ready(running, options, fleet)
        await running.stopping.wait()


def _roster(options: Options) -> Roster:
    try:
        return Roster(options.roles.nodes)
    except ValueError as error:
        raise process.ExitError(1, str(error)) from error


async def _opened(state: pathlib.Path) -> Book:
    def opened() -> Book:
        for name in ("nodes", "intents"):
            (state / name).mkdir(mode=0o700, exist_ok=True)
        book = Book(state)
        book.load()
        return book

    return await asyncio.to_thread(opened)


def _services(
    options: Options, fleet: Fleet, book: Book, operations: Operations
) -> list[services.Service]:
    creator = Creator(fleet, book, operations)
    taker = Taker(fleet, book, operations)
    lists = Lists(fleet, book, has_health_rpcs=options.services.has_health_rpcs)
    return [
        identity.Identity(options.driver_name),
        Controller(fleet, book, creator, taker, lists, options.services),
        GroupController(fleet, book, taker),
    ]


def _sources(fleet: Fleet, book: Book, record: ledger.Ledger) -> introspection.Sources:
    def figures() -> Iterable[introspection.Figure]:
        here = sum(link.is_here for link in fleet.links)
        volumes = sum(len(book.volumes(node)) for node in fleet.nodes)
        for name, value in (
            ("listed", len(fleet.nodes)),
            ("here", here),
            ("volumes", volumes),
            ("unsettled", float(len(book.intents))),
        ):
            yield introspection.Figure(area="nodes", name=name, value=float(value))

    return introspection.Sources(
        program=names.PROGRAM, version=bitts.__version__, ledger=record, figures=figures
    )


def _tell_ready(running: process.Process, options: Options, fleet: Fleet) -> None:
    running.started()
    running.log.info(
        "Serving",
        driver=options.driver_name,
        role=options.roles.role.value,
        socket=options.socket,
        nodes=fleet.nodes,
        here=[link.node for link in fleet.links if link.is_here],
    )
