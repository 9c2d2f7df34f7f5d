"""The composition root: parts are made, put together, served and taken apart here."""

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Iterable

import bitts
from bitts.core import ledger, logs, reconcile, workqueue
from bitts.core.process import Process
from bitts.rpc import introspection, server

from node_driver_registrar import decide, health, names
from node_driver_registrar.following import Follower
from node_driver_registrar.model import Action, Seen
from node_driver_registrar.offering import Offering
from node_driver_registrar.options import Options

RETRY_START, RETRY_MAX = 1.0, 60.0
"""Seconds between a refusal and the next offer."""


async def main(running: Process, options: Options) -> None:
    """Serve until a signal comes."""
    logs.configure(options.logs, names.PROGRAM)
    for warning in options.warnings:
        running.log.warning(warning)
    # Looks at files only: two threads do, and the default would keep six.
    pool = concurrent.futures.ThreadPoolExecutor(2, "files")
    asyncio.get_running_loop().set_default_executor(pool)
    registrar = Registrar(running, options)
    async with contextlib.AsyncExitStack() as stack:
        if options.http.endpoint:
            listener = registrar.health.listener(registrar.ledger)
            await listener.start()
            stack.push_async_callback(registrar.health.close)
            stack.push_async_callback(listener.stop)
        stack.push_async_callback((await registrar.introspect()).stop, 0.5)
        # Whichever way this ends, the kubelet must not find a socket that nobody answers at.
        stack.push_async_callback(registrar.offering.withdraw)
        registrar.start()
        running.started()
        await running.stopping.wait()
        await registrar.stop()


class Registrar:
    """The parts of the program and the loop that drives them."""

    def __init__(self, running: Process, options: Options) -> None:
        self.ledger = ledger.Ledger(waiting=10, finished=10)
        self._running = running
        self._options = options
        self._key = options.csi_address
        self._queue = workqueue.WorkQueue("registration", start=RETRY_START, maximum=RETRY_MAX)
        wake = functools.partial(self._queue.add, self._key)
        self._follower = Follower(options.csi_address, options.timeout, options.ready_timeout, wake)
        self.offering = Offering(options.endpoint, options.folder, wake, running.fail)
        self.health = health.Health(options, self._follower, self.offering)
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the tasks."""
        controller = reconcile.Controller[Seen, Action](
            "registration",
            queue=self._queue,
            ledger=self.ledger,
            workers=1,
            observe=self._observe,
            decide=lambda seen: decide.decide(seen, self._options.limits),
            perform=self.offering.perform,
            settle=decide.settle,
            expected=(OSError, ValueError),
        )
        self._loop = self._running.start("registration", controller.run())
        self._running.start("driver", self._follower.run())
        self._running.start("socket", self.offering.watch())
        self._queue.add(self._key)

    async def stop(self) -> None:
        """End the loop, so that nothing is offered any more."""
        self._queue.shut_down()
        if self._loop is not None:
            await asyncio.wait([self._loop], timeout=2.0)

    async def introspect(self) -> server.Server:
        """Serve the reasons."""
        sources = introspection.Sources(
            program=names.PROGRAM,
            version=bitts.__version__,
            ledger=self.ledger,
            queues=[self._queue],
            figures=self._figures,
            explain=self._explain,
        )
        chosen = self._options.introspection
        checks = {"kubelet": self.health.is_ready}
        return await introspection.serve(
            sources, chosen.path, checks, is_required=chosen.is_required
        )

    def _observe(self, key: str) -> Seen:
        return Seen(self._follower.driver, self.offering.offered, self._queue.failures(key))

    def _figures(self) -> Iterable[introspection.Figure]:
        found = [
            ("offers", float(self.offering.offers)),
            ("refusals in a row", float(self._queue.failures(self._key))),
            ("registered", float(self.health.is_ready())),
        ]
        return [introspection.Figure(area="registration", name=name, value=v) for name, v in found]

    def _explain(self, key: str) -> Iterable[introspection.Finding]:
        driver = self._follower.driver
        if key not in (self._key, driver.name if driver else ""):
            return
        if driver is None:
            text = f"the driver at {self._key} has not answered yet"
            yield introspection.Finding(subject=key, text=text, blocks=True)
        problem = self.health.problem()
        text = problem or "the kubelet registered the driver"
        yield introspection.Finding(subject=key, text=text, blocks=bool(problem))
