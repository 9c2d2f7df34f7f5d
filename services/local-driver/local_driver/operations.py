"""One operation at a time on a volume, carried through even if its client goes away.

A client's deadline cancels the call, but not the thread that is just formatting an image. So
the work runs in a task of its own, and the volume stays busy until that ends, not until the
client loses patience. Whoever comes meanwhile waits a little, as the earlier attempt mostly
ends at once and its result is then simply found; after that the answer is ABORTED, the code
that CSI has for it ("Error Scheme"), naming what is going on.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bitts.core import ledger, logs
from bitts.rpc.codes import Code, RpcError

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds to wait for the operation that is going on."""

QUEUE = 8
"""Calls that may wait for one volume."""


class _Turn:
    """Whose turn it is at one volume."""

    __slots__ = ("name", "since", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.since = time.monotonic()
        self.waiting: deque[asyncio.Future[None]] = deque()


class Operations:
    """What is being done to which volume. It is told to the ledger, for introspection."""

    def __init__(self, record: ledger.Ledger, *, patience: float = PATIENCE) -> None:
        self._turns: dict[str, _Turn] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._ledger = record
        self._patience = patience
        self._log = logs.get("operations")

    async def run(self, volume_id: str, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` when nobody else works on the volume; return or raise what it does.

        Raises RpcError ABORTED when an earlier operation does not end in time. If the caller
        is cancelled while waiting, nothing is begun; later, the work goes on without it.
        """
        await self._enter(volume_id, name)
        task = asyncio.create_task(
            self._carry_through(volume_id, name, work), name=f"{name} {volume_id}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._log_forsaken)
            raise

    def at_work(self, volume_id: str) -> str:
        """Return the name of what is being done to a volume; empty for nothing."""
        turn = self._turns.get(volume_id)
        return turn.name if turn is not None else ""

    async def finish(self, timeout: float) -> None:
        """Wait for all work in progress, at most ``timeout`` seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    async def _enter(self, volume_id: str, name: str) -> None:
        turn = self._turns.get(volume_id)
        if turn is None:
            self._turns[volume_id] = _Turn(name)
            return
        if len(turn.waiting) >= QUEUE:
            raise self._aborted(volume_id, turn)
        mine = asyncio.get_running_loop().create_future()
        turn.waiting.append(mine)
        try:
            async with asyncio.timeout(self._patience):
                await mine
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine.done() and not mine.cancelled():
                self._leave(volume_id)  # the turn came in the very moment of giving up
            else:
                with contextlib.suppress(ValueError):  # passed over already
                    turn.waiting.remove(mine)
            if isinstance(error, TimeoutError):
                raise self._aborted(volume_id, turn) from None
            raise
        turn.name, turn.since = name, time.monotonic()

    def _aborted(self, volume_id: str, turn: _Turn) -> RpcError:
        seconds = time.monotonic() - turn.since
        return RpcError(
            Code.ABORTED,
            f"{volume_id}: {turn.name} has been going on for {seconds:.1f} s: try again",
        )

    async def _carry_through(
        self, volume_id: str, name: str, work: Callable[[], Awaitable[T]]
    ) -> T:
        self._ledger.started(name, volume_id)
        try:
            result = await work()
        except Exception as error:
            self._ledger.decided(name, volume_id, "refused", str(error), error=str(error))
            raise
        else:
            self._ledger.decided(name, volume_id, "done", "asked for by a client")
            return result
        finally:
            self._ledger.finished(name, volume_id)
            self._leave(volume_id)

    def _leave(self, volume_id: str) -> None:
        waiting = self._turns[volume_id].waiting
        while waiting:
            following = waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        del self._turns[volume_id]

    def _log_forsaken(self, task: "asyncio.Task[object]") -> None:
        error = None if task.cancelled() else task.exception()
        outcome = str(error) if error else "done"
        self._log.info(
            "Operation ended after its client had gone", task=task.get_name(), outcome=outcome
        )
