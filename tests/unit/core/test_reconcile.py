"""One sync, rule by rule, and the workers around it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from bitts.core import reconcile, workqueue
from bitts.core.ledger import Ledger
from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from support.virtualtime import VirtualClock


@dataclass(frozen=True, slots=True)
class Step:
    """An action that fails if ``error`` is given."""

    name: str
    error: Exception | None = None
    reason: str = "because"


Plan = Sequence[Step | RetryLater | WaitFor]
Outcome = Done[Step] | Failed[Step]


@dataclass
class Loop:
    """A controller whose functions are given by the test, and what it did."""

    plan: Plan = ()
    judge: Callable[[Outcome], Plan] = lambda _: ()
    expected: tuple[type[Exception], ...] = (Exception,)
    performed: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        self.queue = workqueue.WorkQueue("steps", start=1, maximum=300, clock=self.clock)
        self.ledger = Ledger()
        self.controller = reconcile.Controller(
            "steps",
            queue=self.queue,
            ledger=self.ledger,
            workers=2,
            observe=self.observe,
            decide=lambda seen: self.plan,
            perform=self.perform,
            settle=self.settle,
            expected=self.expected,
        )

    def observe(self, key: str) -> str | None:
        return None if key == "gone" else key

    async def perform(self, step: Step, seen: str) -> object:
        self.performed.append(step.name)
        if step.error is not None:
            raise step.error
        return f"{step.name} of {seen}"

    def settle(self, seen: str, outcome: Outcome) -> Plan:
        self.outcomes.append(outcome)
        return self.judge(outcome)

    def decisions(self) -> list[tuple[str, str]]:
        entry = self.ledger.entry("steps", "a")
        return [] if entry is None else [(entry.decision, entry.reason)]


async def test_actions_are_performed_in_order_and_each_is_settled() -> None:
    loop = Loop([Step("one"), Step("two")])
    await loop.controller.sync("a")
    assert loop.performed == ["one", "two"]
    assert loop.outcomes == [Done(Step("one"), "one of a"), Done(Step("two"), "two of a")]


async def test_an_object_that_is_gone_is_forgotten() -> None:
    loop = Loop([Step("one")])
    loop.queue.retry("gone")
    await loop.controller.sync("gone")
    assert loop.performed == []
    assert loop.queue.failures("gone") == 0


async def test_a_plan_without_wish_forgets_the_failures() -> None:
    loop = Loop([Step("one")])
    loop.queue.retry("a")
    await loop.controller.sync("a")
    entry = loop.ledger.entry("steps", "a")
    assert loop.queue.failures("a") == 0
    assert entry is not None
    assert (entry.phase, entry.failures) == ("finished", 0)


async def test_what_settle_returns_replaces_the_rest() -> None:
    loop = Loop(
        [Step("one"), Step("never")],
        lambda outcome: [Step("instead")] if outcome.action.name == "one" else [],
    )
    await loop.controller.sync("a")
    assert loop.performed == ["one", "instead"]


async def test_a_failed_action_is_settled_with_its_error_and_ends_the_plan() -> None:
    error = OSError("no space")
    loop = Loop([Step("one", error), Step("never")])
    await loop.controller.sync("a")
    assert loop.performed == ["one"]
    assert loop.outcomes == [Failed(Step("one", error), error)]
    assert loop.queue.delayed == 0


async def test_a_failed_action_does_not_drop_the_wish_to_come_back() -> None:
    loop = Loop([Step("record", OSError("lost")), Step("never"), RetryLater("refused")])
    await loop.controller.sync("a")
    assert loop.performed == ["record"]
    assert loop.queue.failures("a") == 1


async def test_retry_later_waits_longer_each_time_and_shows_in_the_ledger() -> None:
    loop = Loop([RetryLater("driver is busy")])
    for failures, delay in ((1, 1), (2, 2), (3, 4)):
        await loop.controller.sync("a")
        assert loop.queue.due_in("a") == delay
        entry = loop.ledger.entry("steps", "a")
        assert entry is not None
        assert (entry.phase, entry.decision, entry.reason) == (
            "waiting", "RetryLater", "driver is busy",
        )  # fmt: skip
        assert (entry.failures, entry.retry_at is not None) == (failures, True)
        loop.clock.advance(delay)
        loop.queue.done(await loop.queue.get())


async def test_several_wishes_to_retry_count_as_one_failure() -> None:
    loop = Loop([RetryLater("one"), Step("in between"), RetryLater("two")])
    await loop.controller.sync("a")
    assert loop.performed == ["in between"]
    assert loop.queue.failures("a") == 1


async def test_waiting_for_an_event_leaves_failures_alone() -> None:
    loop = Loop([WaitFor("the claim is not bound")])
    loop.queue.retry("a")
    loop.clock.advance(1)
    loop.queue.done(await loop.queue.get())
    await loop.controller.sync("a")
    assert (loop.queue.failures("a"), loop.queue.delayed) == (1, 0)
    assert loop.decisions() == [("WaitFor", "the claim is not bound")]


async def test_waiting_for_a_time_comes_back_then() -> None:
    loop = Loop([WaitFor("slow retry", 300)])
    await loop.controller.sync("a")
    assert (loop.queue.failures("a"), loop.queue.due_in("a")) == (0, 300)
    entry = loop.ledger.entry("steps", "a")
    assert entry is not None
    assert entry.retry_at is not None


@pytest.mark.parametrize(
    ("wishes", "failures", "due"),
    [
        pytest.param([WaitFor("x", 5), RetryLater("y")], 1, 1, id="failure after wait"),
        pytest.param([RetryLater("y"), WaitFor("x", 0.5)], 1, 1, id="failure before wait"),
        pytest.param([WaitFor("x", 5), WaitFor("y", 3)], 0, 3, id="shorter comes last"),
        pytest.param([WaitFor("x", 3), WaitFor("y", 5)], 0, 3, id="shorter comes first"),
        pytest.param([WaitFor("x"), WaitFor("y", 5)], 0, 5, id="event or time"),
        pytest.param([WaitFor("x", 5), WaitFor("y")], 0, 5, id="time or event"),
    ],
)
async def test_the_stronger_of_two_wishes_counts(wishes: Plan, failures: int, due: float) -> None:
    loop = Loop(wishes)
    await loop.controller.sync("a")
    assert (loop.queue.failures("a"), loop.queue.due_in("a")) == (failures, due)


@pytest.mark.parametrize("place", ["observe", "decide", "perform", "settle"])
async def test_an_unexpected_error_is_logged_and_retried(
    place: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Plan:
        raise KeyError("bug")

    loop = Loop([Step("one")], expected=(OSError,))
    monkeypatch.setattr(loop.controller, f"_{place}", broken)
    await loop.controller.sync("a")
    assert loop.queue.failures("a") == 1
    assert loop.decisions() == [("RetryLater", "unexpected KeyError: 'bug'")]
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)


async def test_an_expected_error_is_not_logged_it_is_settled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop([Step("one", OSError("no space"))], lambda _: [RetryLater("no space")])
    await loop.controller.sync("a")
    assert caplog.records == []
    entry = loop.ledger.entry("steps", "a")
    assert entry is not None
    assert (entry.reason, entry.error) == ("no space", "no space")


async def test_a_plan_without_end_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop([Step("again")], lambda _: [Step("again")])
    await loop.controller.sync("a")
    assert len(loop.performed) == reconcile.LONGEST_PLAN
    assert loop.queue.failures("a") == 1
    assert len(caplog.records) == 1


async def test_each_action_is_in_the_ledger_with_its_reason() -> None:
    loop = Loop(
        [Step("one", reason="first"), Step("two", OSError("broken"), reason="second")],
        lambda outcome: [RetryLater("gave up")] if isinstance(outcome, Failed) else [],
    )
    with loop.ledger.subscribe() as stream:
        await loop.controller.sync("a")
        told = [await anext(stream) for _ in range(4)]
    assert [(each.decision, each.reason, each.error) for each in told] == [
        ("Step", "first", ""),
        ("Step", "second", ""),
        ("Step failed", "second", "broken"),
        ("RetryLater", "gave up", ""),
    ]


async def test_cancellation_passes_through_and_counts_no_failure() -> None:
    entered = asyncio.Event()

    async def hang(step: Step, seen: str) -> object:
        entered.set()
        return await asyncio.Event().wait()

    loop = Loop([Step("one")])
    loop.controller._perform = hang
    task = asyncio.create_task(loop.controller.sync("a"))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.queue.failures("a") == 0
    entry = loop.ledger.entry("steps", "a")
    assert entry is not None
    assert entry.phase == "finished"


async def test_workers_take_keys_until_the_queue_shuts_down() -> None:
    loop = Loop([Step("one")])
    running = asyncio.create_task(loop.controller.run())
    with loop.ledger.subscribe() as stream:
        for key in ("a", "b", "c"):
            loop.queue.add(key)
        assert {(await asyncio.wait_for(anext(stream), 5)).key for _ in range(3)} == set("abc")
    loop.queue.shut_down()
    await asyncio.wait_for(running, 60.0)
    assert loop.queue.processing == 0


async def test_shutting_down_lets_the_sync_in_progress_end() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(step: Step, seen: str) -> object:
        entered.set()
        await leave.wait()
        return None

    loop = Loop([Step("one")])
    loop.controller._perform = slow
    running = asyncio.create_task(loop.controller.run())
    loop.queue.add("a")
    await asyncio.wait_for(entered.wait(), 60.0)
    loop.queue.shut_down()
    await asyncio.sleep(0)
    assert not running.done()
    leave.set()
    await asyncio.wait_for(running, 60.0)
    assert len(loop.outcomes) == 1


async def test_a_cancelled_run_leaves_no_key_in_work() -> None:
    entered = asyncio.Event()

    async def hang(step: Step, seen: str) -> object:
        entered.set()
        return await asyncio.Event().wait()

    loop = Loop([Step("one")])
    loop.controller._perform = hang
    running = asyncio.create_task(loop.controller.run())
    loop.queue.add("a")
    await asyncio.wait_for(entered.wait(), 60.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert loop.queue.processing == 0


async def test_syncs_that_never_await_leave_room_for_others() -> None:
    loop = Loop([])

    def observe_and_add_again(key: str) -> str:
        loop.queue.add(key)
        return key

    loop.controller._observe = observe_and_add_again
    running = asyncio.create_task(loop.controller.run())
    loop.queue.add("a")
    for _ in range(10):
        await asyncio.sleep(0)
    assert loop.queue.figures.adds > 5
    loop.queue.shut_down()
    await asyncio.wait_for(running, 60.0)
