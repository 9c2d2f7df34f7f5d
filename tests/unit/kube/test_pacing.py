"""Pacing: the arithmetic as tables, the lanes on a clock that the test moves."""

import asyncio
import math

import pytest
from bitts.kube import errors, limiters, pacing, retries
from support import waiting


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = limiters.TokenBucket(5, 3)
    for _ in range(3):
        assert bucket.wait(0.0, 0) == 0.0
        bucket.take(0.0)
    assert bucket.wait(0.0, 0) == pytest.approx(0.2)
    assert bucket.wait(0.1, 0) == pytest.approx(0.1)
    assert bucket.wait(0.2, 0) == 0.0
    bucket.take(0.2)
    assert bucket.wait(100.0, 0) == 0.0
    for _ in range(3):
        bucket.take(100.0)
    assert bucket.wait(100.0, 0) > 0, "no more is saved than the burst"
    assert bucket.wait(200.0, 64) == math.inf


def test_the_adaptive_limit_grows_when_it_is_used_and_halves_on_trouble() -> None:
    limit = limiters.Adaptive(start=4, maximum=6)
    limit.finished(0.0, 1.0, in_flight=1, overloaded=False)
    assert limit.limit == 4, "not used, not grown"
    for _ in range(4):
        limit.finished(0.0, 1.0, in_flight=4, overloaded=False)
    assert 4.9 < limit.limit < 5.1, "one more after a round"
    for _ in range(99):
        limit.finished(0.0, 1.0, in_flight=6, overloaded=False)
    assert limit.limit == 6
    limit.finished(1.0, 2.0, in_flight=6, overloaded=True)
    limit.finished(1.5, 2.0, in_flight=5, overloaded=True)
    assert limit.limit == 3, "one crowd, one cut"
    for started in (3.0, 4.0, 5.0):
        limit.finished(started, started, in_flight=1, overloaded=True)
    assert limit.limit == 1
    assert limit.wait(9.0, 0) == 0.0
    assert limit.wait(9.0, 1) == math.inf


@pytest.mark.parametrize(
    ("qps", "burst", "mode", "at_once"),
    [
        (None, None, "adaptive", 64),
        (None, 100, "adaptive", 64),
        (-1, 5, "adaptive", 64),
        (0, 0, "exact", 10),
        (20, None, "exact", 10),
        (20, 3, "exact", 3),
        (1e6, 1000, "exact", 64),
    ],
)
async def test_flags_as_client_go_reads_them(
    qps: float | None, burst: int | None, mode: str, at_once: int
) -> None:
    pace = pacing.Pacing.from_flags(qps, burst, clock=Clock())
    asked = [asyncio.create_task(hold(pace)) for _ in range(100)]
    await waiting.until(lambda: pace.figures().in_flight == at_once, "as many as may")
    assert pace.figures().mode == mode
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert pace.figures().in_flight == 0
    assert pace.figures().waiting_user == 0


async def hold(pace: pacing.Pacing, lane: pacing.Lane = pacing.Lane.USER) -> None:
    async with pace.permit(lane):
        await asyncio.Event().wait()


async def test_users_go_before_events() -> None:
    clock = Clock()
    pace = pacing.Pacing(limiters.Adaptive(start=1), clock=clock)
    order: list[str] = []

    async def one(name: str, lane: pacing.Lane) -> None:
        async with pace.permit(lane):
            order.append(name)

    async with pace.permit():
        tasks = [
            asyncio.create_task(one(name, lane))
            for name, lane in [
                ("event", pacing.Lane.LATE),
                ("claim", pacing.Lane.USER),
                ("volume", pacing.Lane.USER),
                ("lease", pacing.Lane.URGENT),
            ]
        ]
        await waiting.until(lambda: pace.figures().waiting_user == 2, "both wait")
        assert order == ["lease"], "leases wait for nobody"
    await asyncio.gather(*tasks)
    assert order == ["lease", "claim", "volume", "event"]


async def test_an_event_that_waited_long_has_its_turn() -> None:
    clock = Clock()
    pace = pacing.Pacing(limiters.Adaptive(start=1), clock=clock)
    order: list[str] = []

    async def one(name: str, lane: pacing.Lane) -> None:
        async with pace.permit(lane):
            order.append(name)

    async with pace.permit():
        tasks = [asyncio.create_task(one("event", pacing.Lane.LATE))]
        await waiting.until(lambda: pace.figures().waiting_late == 1, "the event waits")
        clock.now += 2.5
        tasks.append(asyncio.create_task(one("claim", pacing.Lane.USER)))
        await waiting.until(lambda: pace.figures().waiting_user == 1, "the claim waits")
    await asyncio.gather(*tasks)
    assert order == ["event", "claim"]


async def test_events_take_a_quarter_of_the_places() -> None:
    pace = pacing.Pacing(limiters.Adaptive(start=16))
    tasks = [asyncio.create_task(hold(pace, pacing.Lane.LATE)) for _ in range(9)]
    await waiting.until(lambda: pace.figures().in_flight == 4, "a quarter")
    assert pace.figures().waiting_late == 5
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_retry_after_holds_everybody_back() -> None:
    pace = pacing.Pacing(limiters.Adaptive())
    async with pace.permit() as permit:
        permit.overloaded, permit.retry_after = True, 30.0
    waiting_one = asyncio.create_task(hold(pace))
    await waiting.until(lambda: pace.figures().waiting_user == 1, "held back")
    assert 29 < pace.figures().paused_for <= 30
    async with pace.permit(pacing.Lane.URGENT):
        pass
    waiting_one.cancel()
    await asyncio.gather(waiting_one, return_exceptions=True)


async def test_a_permit_given_to_someone_who_left_is_given_on() -> None:
    pace = pacing.Pacing(limiters.Adaptive(start=1))
    async with pace.permit():
        leaver = asyncio.create_task(hold(pace))
        stayer = asyncio.create_task(hold(pace))
        await waiting.until(lambda: pace.figures().waiting_user == 2, "both wait")
    leaver.cancel()  # in the very moment in which it was granted
    await waiting.until(lambda: leaver.done() and pace.figures().waiting_user == 0, "given on")
    assert pace.figures().in_flight == 1
    stayer.cancel()
    await asyncio.gather(leaver, stayer, return_exceptions=True)
    assert pace.figures().in_flight == 0


THROTTLED = errors.Throttled("t", status=429)
LATER = errors.Throttled("t", status=429, retry_after=3)
STARTING = errors.ServerError("s", status=503, retry_after=2)
SLOW = errors.ServerError("s", status=504, retry_after=2)
BROKEN = errors.ServerError("s", status=500)
NOBODY = errors.Unreachable("u", reason="Unreachable")
UNTRUSTED = errors.Unreachable("u", reason="Certificate")
LOST = errors.AnswerLost("l", reason="ConnectionLost")
TIMEOUT = errors.AnswerLost("l", reason="Timeout")


@pytest.mark.parametrize(
    ("error", "attempt", "read", "write"),
    [
        (THROTTLED, 1, 1.0, 1.0),
        (THROTTLED, 4, 8.0, 8.0),
        (THROTTLED, 5, None, None),
        (LATER, 1, 3.0, 3.0),
        (STARTING, 1, 2.0, 2.0),
        (SLOW, 1, 2.0, None),
        (BROKEN, 1, None, None),
        (NOBODY, 1, 0.1, 0.1),
        (NOBODY, 2, 0.4, 0.4),
        (NOBODY, 3, None, None),
        (UNTRUSTED, 1, None, None),
        (LOST, 1, 0.1, None),
        (TIMEOUT, 1, None, None),
        (errors.NotFound("n", status=404), 1, None, None),
    ],
)
def test_only_what_is_safe_is_repeated(
    error: errors.ApiError, attempt: int, read: float | None, write: float | None
) -> None:
    assert retries.delay(error, is_read=True, attempt=attempt) == read
    assert retries.delay(error, is_read=False, attempt=attempt) == write


def test_what_shows_overload() -> None:
    assert [retries.is_overload(one) for one in (THROTTLED, STARTING, SLOW, TIMEOUT)] == [True] * 4
    assert [retries.is_overload(one) for one in (BROKEN, NOBODY, LOST)] == [False] * 3
