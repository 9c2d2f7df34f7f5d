"""Asks the driver how it is: over one long-lived connection, one Probe at a time.

However many probes come in, and however slow the driver is, there is never more than one Probe
on its way: whoever asks meanwhile gets that one's result. A hung driver sees one cancelled call
after the other instead of a growing heap of them.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable

from bitts.core import backoff, ledger, logs
from bitts.csi import calllog, identity
from bitts.rpc import calls, channel
from bitts.rpc.codes import RpcError

from livenessprobe import decide
from livenessprobe.model import History, Result, Rules, State, Verdict

LOOP = "driver"
"""Under what the ledger keeps changes of the driver's state."""
PAUSE_START, PAUSE_MAX = 0.1, 5.0
"""Seconds between two tries to learn the driver's name."""
NAMELESS = "the driver's name is empty: GetPluginInfo has to answer with one"
"""What the CSI specification requires of the field, and why the driver does not count as there."""

Metric = Callable[[str, str, str, float], None]


class Checker:
    """Knows the driver's health. ``timeout`` is the time of one check, connecting included."""

    def __init__(
        self,
        address: str,
        timeout: float,
        rules: Rules,
        *,
        metric: Metric | None = None,
        book: ledger.Ledger,
    ) -> None:
        self.history = History()
        self.driver_name = ""
        self._address = address
        self._timeout = timeout
        self._rules = rules
        self._metric = metric
        self._book = book
        self._started = time.monotonic()
        self._state: State | None = None
        self._check: asyncio.Task[None] | None = None
        self._log = logs.get("driver").bind(address=address)
        observers: list[calls.Observer] = [
            calllog.CallLog(self._log),
            calls.MetricsObserver(self._measured),
        ]
        self._channel = channel.Channel(address, observers=observers, on_lost=self._lost)

    async def introduce(self) -> None:
        """Learn the driver's name, however long that takes, and rest then until cancelled.

        An empty one ends upstream's process; here it is an obstacle like any other.
        """
        failures = 0
        while not (name := await self._name()):
            await asyncio.sleep(backoff.delay(failures, PAUSE_START, PAUSE_MAX))
            failures += 1
        self.driver_name = name
        self.history = dataclasses.replace(self.history, is_known=True)
        self._log.info("The driver answers", driver=name)
        await asyncio.Event().wait()

    async def _name(self) -> str:
        """Ask for the driver's name; "" where something stands in the way, which is noted."""
        try:
            await self._channel.connect(None, report=self._obstructed)
            stub = identity.IdentityStub(self._channel)
            request = identity.GetPluginInfoRequest()
            reply = await stub.get_plugin_info(request, timeout=self._timeout)
        except RpcError as error:
            self._obstructed(error.message)
            return ""
        if not reply.name:
            self._obstructed(NAMELESS)
        return reply.name

    async def verdict(self) -> Verdict:
        """Check the driver, or take part in the check under way, and return the judgement."""
        now = time.monotonic()
        if self.history.is_known and not decide.is_fresh(self.history, self._rules, now):
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._once(), name="check")
            await asyncio.shield(self._check)  # whoever leaves must not take it from the others
        return self._noted()

    def judged(self) -> Verdict:
        """Return the judgement from what is known."""
        return decide.judge(self.history, self._rules, time.monotonic() - self._started)

    def is_healthy(self) -> bool:
        """Whether a probe would be answered 200 by what is known."""
        return self.judged().status == decide.OK

    async def close(self) -> None:
        """Close the connection."""
        if self._check is not None:
            self._check.cancel()
        await self._channel.close()

    async def _once(self) -> None:
        problem = ""
        end = time.monotonic() + self._timeout
        try:
            if not self._channel.is_connected:
                await self._channel.connect(self._timeout)
            stub = identity.IdentityStub(self._channel)
            left = max(end - time.monotonic(), 0.001)
            reply = await stub.probe(identity.ProbeRequest(), timeout=left)
        except RpcError as error:
            problem = str(error)
        else:
            if reply.ready is not None and not reply.ready.value:
                problem = "the driver is not ready"
        self.history = decide.count(self.history, Result(time.monotonic(), problem))

    def _noted(self) -> Verdict:
        """Tell of a change of state, and of nothing else: a line per check is millions a day."""
        found = self.judged()
        if found.state is self._state:
            return found
        self._state = found.state
        self._book.decided(LOOP, self._address, found.state.name.lower(), found.text)
        match found.state:
            case State.HEALTHY:
                self._log.info("The driver is healthy", driver=self.driver_name)
            case State.FAILING:
                self._log.error("The driver fails its probes", err=found.text)
            case State.ABSENT | State.STARTING:
                self._log.warning("The driver is not there yet", answer=found.text)
            case State.DOUBTFUL:
                self._log.warning("The driver failed, not yet held against it", answer=found.text)
        return found

    def _obstructed(self, obstacle: str) -> None:
        self.history = dataclasses.replace(self.history, obstacle=obstacle)
        self._noted()

    def _lost(self, text: str) -> None:
        self._log.warning("Lost the connection to the driver", driver=self.driver_name)

    def _measured(self, method: str, code: str, seconds: float) -> None:
        if self._metric is not None:
            self._metric(self.driver_name, method, code, seconds)
