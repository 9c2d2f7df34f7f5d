"""One queue and one worker per loop: keys are de-duplicated, failures back off by key.

A pass over a key is synchronous (the API is in the same process), so nothing can change under
it and no key is ever worked on twice at once. The worker yields to the API server's requests
every few milliseconds. What it did with a key, and why it waits, stands in its ledger.
"""

import asyncio
import time
from collections.abc import Callable

from bitts.core import backoff, ledger, logs

from devcluster import errors

SLICE = 0.005  # seconds of work before others on the event loop get their turn
RETRY_START, RETRY_MAX = 0.1, 30.0  # seconds


class KeyedLoop:
    """Calls ``sync(key)`` for every key added; a returned delay (seconds) asks for another pass."""

    def __init__(self, name: str, sync: Callable[[str], float | None]) -> None:
        self.name = name
        self.ledger = ledger.Ledger()
        """Where passes are noted; all loops of a process may share one."""
        self._sync = sync
        self._current = ""
        self._ready: dict[str, None] = {}
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._log = logs.get(f"devcluster.{name}")

    def add(self, key: str) -> None:
        """Ask for a pass over the key as soon as possible."""
        if timer := self._delayed.pop(key, None):
            timer.cancel()
        self._ready[key] = None
        self._wake.set()

    def add_after(self, key: str, delay: float) -> None:
        """Ask for a pass after a delay in seconds; an earlier one that is due stays."""
        clock = asyncio.get_running_loop()
        waiting = self._delayed.get(key)
        if key in self._ready or (waiting and waiting.when() <= clock.time() + delay):
            return
        if waiting:
            waiting.cancel()
        self._delayed[key] = clock.call_later(delay, self.add, key)

    @property
    def ready(self) -> int:
        """How many keys wait for their pass."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return len(self._delayed)

    def decided(self, decision: str, reason: str) -> None:
        """Note a decision of the pass in progress."""
        self.ledger.decided(self.name, self._current, decision, reason)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            started = time.monotonic()
            while self._ready:
                self._once(next(iter(self._ready)))
                if time.monotonic() - started > SLICE:
                    await asyncio.sleep(0)
                    started = time.monotonic()
            self._wake.clear()

    def _once(self, key: str) -> None:
        del self._ready[key]
        self._current = key
        self.ledger.started(self.name, key)
        try:
            again = self._sync(key)
        except errors.ApiError as error:
            self._retry(key, str(error))
        except Exception as error:  # noqa: BLE001 - a bad object must not stop the loop for all
            self._log.error("Loop failed on an object", key=key, err=repr(error))
            self._retry(key, repr(error))
        else:
            self._failures.pop(key, None)
            if again is None:
                self.ledger.finished(self.name, key)
            else:
                self.ledger.waits(self.name, key, time.time() + again)
                self.add_after(key, again)

    def _retry(self, key: str, reason: str) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = backoff.delay(failures, RETRY_START, RETRY_MAX)
        self._log.info("Trying again", key=key, reason=reason, delay=delay)
        self.ledger.decided(self.name, key, "Retry", f"in {delay:g} s", error=reason)
        self.ledger.retry_at(self.name, key, time.time() + delay, failures=failures + 1)
        self.add_after(key, delay)
