"""The queue against a model that is too simple to be wrong, in random sequences of calls."""

import math

from bitts.core import workqueue
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.virtualtime import VirtualClock

KEYS = st.sampled_from(["a", "b", "c", "d"])
DELAYS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 20.0])
START, MAXIMUM = 1.0, 8.0


def take(queue: workqueue.WorkQueue) -> str:
    """Get a key from a queue that has one, which never awaits."""
    try:
        queue.get().send(None)
    except StopIteration as handed_out:
        return str(handed_out.value)
    raise AssertionError("the queue has no key")


class QueueMachine(RuleBasedStateMachine):
    """Lists and linear searches; one rule per public operation."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.queue = workqueue.WorkQueue("q", start=START, maximum=MAXIMUM, clock=self.clock)
        self.ready: list[str] = []
        self.processing: list[str] = []
        self.again: set[str] = set()
        self.own: set[str] = set()
        self.deadlines: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def wanted(self, key: str) -> bool:
        return key in self.ready or key in self.again

    def enqueue(self, key: str) -> None:
        if self.wanted(key):
            return
        self.deadlines.pop(key, None)
        self.own.discard(key)
        if key in self.processing:
            self.again.add(key)
        else:
            self.ready.append(key)

    def delay(self, key: str, seconds: float) -> None:
        if self.wanted(key):
            return
        if seconds <= 0:
            self.enqueue(key)
        else:
            when = self.clock.time() + seconds
            self.deadlines[key] = min(when, self.deadlines.get(key, math.inf))

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.enqueue(key)

    @rule(key=KEYS)
    def add_own_write(self, key: str) -> None:
        self.queue.add(key, own_write=True)
        if self.wanted(key) or key in self.deadlines:
            return
        if key in self.processing:
            self.own.add(key)
        else:
            self.enqueue(key)

    @rule(key=KEYS, seconds=DELAYS)
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        self.delay(key, seconds)

    @rule(key=KEYS)
    def retry(self, key: str) -> None:
        failures = self.failures.get(key, 0)
        expected = min(START * 2**failures, MAXIMUM)
        assert self.queue.retry(key) == expected
        self.failures[key] = failures + 1
        self.delay(key, expected)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @precondition(lambda self: self.ready)
    @rule()
    def get(self) -> None:
        key = self.ready.pop(0)
        assert take(self.queue) == key
        self.processing.append(key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.processing))
        self.queue.done(key)
        self.processing.remove(key)
        own = key in self.own
        self.own.discard(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append(key)
        elif own and key not in self.deadlines:
            self.enqueue(key)

    @rule(seconds=DELAYS)
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for key, when in sorted(self.deadlines.items(), key=lambda item: item[::-1]):
            if when <= self.clock.time():
                self.enqueue(key)

    @invariant()
    def agrees(self) -> None:
        now = self.clock.time()
        assert list(self.queue.ready_keys()) == self.ready
        assert self.queue.processing == len(self.processing)
        assert self.queue.delayed == len(self.deadlines)
        for key in ("a", "b", "c", "d"):
            assert self.queue.failures(key) == self.failures.get(key, 0)
            when = self.deadlines.get(key)
            assert self.queue.due_in(key) == (None if when is None else when - now)

    @invariant()
    def needs_one_timer_at_most(self) -> None:
        assert self.clock.timers <= 1
        assert self.clock.timers == 1 or not self.deadlines


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
