"""The one control loop: observe, decide, perform, settle.

``observe(key)`` takes a frozen view from caches, without awaiting. ``decide(seen)`` is pure and
returns what should happen now, each action with its reason. ``perform`` alone has effects.
``settle(seen, outcome)`` is pure again: what a result or an error means. So everything worth
testing is a function from data to data, and this module is the only one that drives it.

Rules of one ``sync``:

- actions are performed in order; each outcome is settled before the next action begins;
- what ``settle`` returns replaces the rest of the plan, unless it is empty;
- after a failed action the remaining actions are dropped, the wish to come back is kept;
- a plan with RetryLater makes the key wait exponentially longer; one with WaitFor leaves its
  failures alone; any other plan forgets them.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from bitts.core import logs, workqueue
from bitts.core.ledger import Ledger
from bitts.core.plans import Action, Done, Failed, RetryLater, WaitFor

LONGEST_PLAN = 1_000
"""Actions in one sync. A settle that never comes to an end must not become a hot loop."""


S = TypeVar("S")
A = TypeVar("A", bound=Action)


class Controller(Generic[S, A]):
    """Keeps the objects of one kind as they should be.

    ``expected`` are the errors that ``settle`` can judge. Whatever else is raised, by any of the
    four functions, is a fault of ours: it is logged with its trace and the key is retried.
    """

    def __init__(
        self,
        name: str,
        *,
        queue: workqueue.WorkQueue,
        ledger: Ledger,
        workers: int,
        observe: Callable[[str], S | None],
        decide: Callable[[S], Sequence[A | RetryLater | WaitFor]],
        perform: Callable[[A, S], Awaitable[object]],
        settle: Callable[[S, Done[A] | Failed[A]], Sequence[A | RetryLater | WaitFor]],
        expected: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        self.name = name
        self._queue = queue
        self._ledger = ledger
        self._workers = workers
        self._observe = observe
        self._decide = decide
        self._perform = perform
        self._settle = settle
        self._expected = expected
        self._log = logs.get(name)

    async def run(self) -> None:
        """Work on the queue's keys until it shuts down; the syncs then in progress are ended."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name} worker {number}")

    async def sync(self, key: str) -> None:
        """Bring one object a step nearer to what it should be. Raises nothing but cancellation."""
        self._ledger.started(self.name, key)
        try:
            wish = await self._carry_out(key)
        except asyncio.CancelledError:
            self._ledger.finished(self.name, key)
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one object must not end the others
            self._log.exception("Unexpected error, the object is retried", key=key)
            wish = RetryLater(f"unexpected {type(error).__name__}: {error}")
        self._conclude(key, wish)

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except workqueue.ShutDown:
                return
            try:
                await self.sync(key)
            finally:
                self._queue.done(key)
            await asyncio.sleep(0)  # a sync may not have awaited anything: let others have a turn

    async def _carry_out(self, key: str) -> RetryLater | WaitFor | None:
        """Perform the plan for ``key``; return how it wants to come back."""
        seen = self._observe(key)
        if seen is None:
            return None
        wish: RetryLater | WaitFor | None = None
        plan = deque(self._decide(seen))
        for _ in range(LONGEST_PLAN):
            if not plan:
                return wish
            step = plan.popleft()
            if isinstance(step, RetryLater | WaitFor):
                wish = _stronger(wish, step)
                continue
            outcome = await self._attempt(key, step, seen)
            if follow_up := self._settle(seen, outcome):
                plan = deque(follow_up)
            elif isinstance(outcome, Failed):
                plan = deque(step for step in plan if isinstance(step, RetryLater | WaitFor))
        raise RuntimeError(f"the plan has not ended after {LONGEST_PLAN} steps")

    async def _attempt(self, key: str, action: A, seen: S) -> Done[A] | Failed[A]:
        decision = type(action).__name__
        self._ledger.decided(self.name, key, decision, action.reason)
        try:
            return Done(action, await self._perform(action, seen))
        except self._expected as error:
            self._ledger.decided(
                self.name, key, f"{decision} failed", action.reason, error=str(error)
            )
            return Failed(action, error)

    def _conclude(self, key: str, wish: RetryLater | WaitFor | None) -> None:
        match wish:
            case RetryLater(reason):
                self._ledger.decided(self.name, key, "RetryLater", reason)
                when = time.time() + self._queue.retry(key)
                failures = self._queue.failures(key)
                self._ledger.retry_at(self.name, key, when, failures=failures)
            case WaitFor(reason, delay):
                self._ledger.decided(self.name, key, "WaitFor", reason)
                if delay is not None:
                    self._queue.add_after(key, delay)
                until = None if delay is None else time.time() + delay
                self._ledger.waits(self.name, key, until)
            case _:
                self._queue.forget(key)
                self._ledger.finished(self.name, key)


def _stronger(
    one: RetryLater | WaitFor | None, other: RetryLater | WaitFor
) -> RetryLater | WaitFor:
    """Choose between two wishes of one plan: a failure counts more, then the shorter wait."""
    if one is None or isinstance(other, RetryLater):
        return other
    if isinstance(one, RetryLater):
        return one
    return min(one, other, key=lambda wait: math.inf if wait.delay is None else wait.delay)
