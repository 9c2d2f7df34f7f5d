"""When a request may go out: never more than the API server likes, users' writes first.

Without ``--kube-api-qps`` the number of requests in flight adapts: it is halved when the server
shows trouble (429, 503, time limits) and grows back by one per round of answers. With the flag,
a token bucket with client-go's meaning obeys it exactly. Either way a ``Retry-After`` holds
everybody back.

Three lanes: URGENT (leader election) never waits, since a lost lease helps nobody; USER is
first come, first served; LATE (events) goes when no user request waits, in a quarter of the
places, and at least once every two seconds so that it is late and not never.
"""

import asyncio
import collections
import contextlib
import dataclasses
import enum
import math
from collections.abc import AsyncIterator, Callable

from bitts.kube import limiters

_LATE_SHARE = 4
_LATE_PATIENCE = 2.0
_LONGEST_PAUSE = 60.0


class Lane(enum.Enum):
    """How urgent a request is."""

    URGENT = "urgent"
    USER = "user"
    LATE = "late"

    __hash__ = object.__hash__  # Enum's own is slower, and a request asks for it nine times


@dataclasses.dataclass(slots=True)
class Permit:
    """The right to have one request in flight."""

    lane: Lane
    granted_at: float
    overloaded: bool = False
    retry_after: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """How pacing stands: for introspection and metrics. Times in seconds.

    ``in_flight`` leaves out the URGENT requests, which nothing limits.
    """

    mode: str
    limit: float
    in_flight: int
    waiting_user: int
    waiting_late: int
    granted: int
    overloads: int
    paused_for: float


@dataclasses.dataclass(slots=True)
class _Waiter:
    future: asyncio.Future[Permit]
    since: float


class Pacing:
    """Hands out permits; one instance per identity that the API server should see."""

    def __init__(
        self, limiter: limiters.Limiter, *, clock: Callable[[], float] | None = None
    ) -> None:
        self._limiter = limiter
        self._clock = clock
        self._waiting: dict[Lane, collections.deque[_Waiter]] = {
            Lane.USER: collections.deque(),
            Lane.LATE: collections.deque(),
        }
        self._in_flight = 0
        self._late_in_flight = 0
        self._last_late = -math.inf
        self._paused_until = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._granted = 0
        self._overloads = 0

    @classmethod
    def adaptive(cls) -> "Pacing":
        """No fixed rate; the requests in flight adapt to what the server bears."""
        return cls(limiters.Adaptive())

    @classmethod
    def from_flags(
        cls, qps: float | None, burst: int | None, *, clock: Callable[[], float] | None = None
    ) -> "Pacing":
        """Exact if ``--kube-api-qps`` was given, else adaptive.

        As in client-go, 0 stands for the defaults of 5 a second and bursts of 10, and a
        negative rate for no limit. A burst alone does not limit anything.
        """
        if qps is None or qps < 0:
            return cls(limiters.Adaptive(), clock=clock)
        return cls(limiters.TokenBucket(qps or 5.0, burst or 10), clock=clock)

    @contextlib.asynccontextmanager
    async def permit(self, lane: Lane = Lane.USER) -> AsyncIterator[Permit]:
        """Hold a permit; the request notes on it what the server said."""
        held = await self.acquire(lane)
        try:
            yield held
        finally:
            self.release(held)

    async def admit(self, lane: Lane = Lane.USER) -> None:
        """Wait until a request may start, without holding a place (watches last)."""
        async with self.permit(lane):
            pass

    async def acquire(self, lane: Lane = Lane.USER) -> Permit:
        """Wait for a permit, which has to be released."""
        if lane is Lane.URGENT:
            return self._grant(lane, self._now())
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.create_future(), self._now())
        self._waiting[lane].append(waiter)
        self._pump()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self.release(waiter.future.result())  # granted in the same moment
            else:
                with contextlib.suppress(ValueError):
                    self._waiting[lane].remove(waiter)
            raise

    def release(self, held: Permit) -> None:
        """Give back a permit, with what the server said noted on it."""
        now = self._now()
        self._overloads += held.overloaded
        if held.lane is not Lane.URGENT:
            self._limiter.finished(
                held.granted_at, now, in_flight=self._in_flight, overloaded=held.overloaded
            )
            self._in_flight -= 1
        self._late_in_flight -= held.lane is Lane.LATE
        if held.retry_after is not None:
            pause = min(held.retry_after, _LONGEST_PAUSE)
            self._paused_until = max(self._paused_until, now + pause)
        self._pump()

    def figures(self) -> Figures:
        """The present state."""
        now = self._now()
        return Figures(
            mode=self._limiter.mode,
            limit=self._limiter.limit,
            in_flight=self._in_flight,
            waiting_user=len(self._waiting[Lane.USER]),
            waiting_late=len(self._waiting[Lane.LATE]),
            granted=self._granted,
            overloads=self._overloads,
            paused_for=max(0.0, self._paused_until - now),
        )

    def _now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    def _grant(self, lane: Lane, now: float) -> Permit:
        self._in_flight += lane is not Lane.URGENT
        self._granted += 1
        if lane is Lane.LATE:
            self._late_in_flight += 1
            self._last_late = now
        return Permit(lane, now)

    def _pump(self) -> None:
        """Grant what may go now; if only time is in the way, come back then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while True:
            now = self._now()
            lane = self._next_lane(now)
            if lane is None:
                return
            if self._waiting[lane][0].future.done():  # cancelled
                self._waiting[lane].popleft()
                continue
            delay = max(self._paused_until - now, self._limiter.wait(now, self._in_flight))
            if delay > 0:
                if delay < math.inf:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(delay, self._pump)
                return
            self._limiter.take(now)
            self._waiting[lane].popleft().future.set_result(self._grant(lane, now))

    def _next_lane(self, now: float) -> Lane | None:
        user, late = self._waiting[Lane.USER], self._waiting[Lane.LATE]
        if user and late and now - max(late[0].since, self._last_late) >= _LATE_PATIENCE:
            return Lane.LATE
        if user:
            return Lane.USER
        places = max(1, int(self._limiter.limit) // _LATE_SHARE)
        return Lane.LATE if late and self._late_in_flight < places else None
