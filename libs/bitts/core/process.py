"""The life of a process: its tasks, how it is asked to stop, and the exit code it ends with.

``main(process)`` composes the program and returns when its work is over, which is usually after
``await process.stopping.wait()``. Four rules:

- a task given to ``start`` lives as long as the process: its end, however it comes about, is a
  fault that cancels ``main`` and decides the exit code;
- SIGTERM or SIGINT asks: ``stopping`` is set, ``main`` ends its work in its own order;
- whoever does not end within ``grace`` seconds is cancelled, and killed a little later;
- a second signal ends the process at once.
"""

import asyncio
import functools
import gc
import os
import pathlib
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine

from bitts.core import logs

TERMINATION_LOG = pathlib.Path("/dev/termination-log")
"""What kubelet shows as a container's last message."""

GRACE = 25.0
"""Seconds to stop in; kubelet kills after 30."""

_LAST_RESORT = 3.0  # seconds between cancelling and killing ourselves, or grace if shorter
Collections = tuple[int, int, int]
"""When the garbage collector runs, as ``gc.set_threshold`` takes it."""

RARE: Collections = (50_000, 20, 100)
"""For programs with caches of live objects, which make frequent collections costly."""
OFTEN: Collections = (1_000, 10, 10)
"""For small programs: connections that ended are garbage in cycles, 45 KB each."""


class ExitError(Exception):
    """The process must end with ``code``; ``message`` says why and what to do.

    ``termination_log`` has kubelet show the message as the container's last words.
    """

    def __init__(self, code: int, message: str, *, termination_log: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.termination_log = termination_log


class Process:
    """What the parts of a running program share; made by ``run``."""

    def __init__(
        self, program: str, main: asyncio.Task[object], tasks: asyncio.TaskGroup, grace: float
    ) -> None:
        self.program = program
        self.stopping = asyncio.Event()
        self.log = logs.get(program)
        self._grace = grace
        self._group = tasks
        self._main = main
        self._tasks: list[asyncio.Task[None]] = []
        self._signals = 0
        self._last_resort: threading.Timer | None = None

    def start(self, name: str, work: Coroutine[object, object, object]) -> asyncio.Task[None]:
        """Run ``work`` for as long as the process lives, as a task called ``name``."""
        task = self._group.create_task(self._guard(name, work), name=name)
        task.add_done_callback(lambda _: work.close())  # if cancelled before it began
        self._tasks.append(task)
        return task

    def fail(self, error: ExitError) -> None:
        """End the process with ``error`` from a callback, which has nobody to raise it to."""

        async def end() -> None:
            raise error

        if not self.stopping.is_set():
            self.start("fault", end())

    def stop(self, reason: str) -> None:
        """Ask ``main`` to end; ``reason`` is logged. Asking again changes nothing."""
        if self.stopping.is_set():
            return
        self.log.info("Stopping", reason=reason)
        self.stopping.set()
        asyncio.get_running_loop().call_later(self._grace, self._lose_patience)
        self._limit()

    def started(self) -> None:
        """Tell that start-up is over: what lives now is kept out of later collections."""
        gc.collect()
        gc.freeze()

    async def _guard(self, name: str, work: Coroutine[object, object, object]) -> None:
        try:
            await work
        except ExitError:
            self._limit()
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # raised, not asked for
                raise self._fault(f"{name} was cancelled from within") from None
            raise
        except Exception as error:
            self.log.exception("Task failed", task=name)
            raise self._fault(f"{name} failed: {str(error) or type(error).__name__}") from error
        if not self.stopping.is_set():
            raise self._fault(f"{name} ended although the process goes on")

    def _fault(self, message: str) -> ExitError:
        self._limit()  # main is cancelled now, and may be slow to end
        return ExitError(1, message)

    def _lose_patience(self) -> None:
        self.log.warning("Still working after the grace time, cancelling", grace=self._grace)
        self._main.cancel()

    def _limit(self) -> None:
        """Kill the process a little after the grace time, even if the loop or a thread hangs."""
        if self._last_resort is None:
            seconds = self._grace + min(_LAST_RESORT, self._grace)
            self._last_resort = threading.Timer(seconds, _die, (self.program,))
            self._last_resort.daemon = True
            self._last_resort.start()

    def _end(self) -> None:
        """Cancel what was started, the latest first, once ``main`` is over."""
        self.stopping.set()
        self._limit()
        for task in reversed(self._tasks):
            task.cancel()

    def _signalled(self, number: signal.Signals) -> None:
        if self._signals:
            self.log.warning("Second signal, exiting at once", signal=number.name)
            logs.flush()
            os._exit(1)
        self._signals += 1
        self.stop(f"received {number.name}")

    def _release(self) -> None:
        if self._last_resort is not None:
            self._last_resort.cancel()


def run(
    main: Callable[[Process], Awaitable[None]],
    program: str,
    *,
    use_uvloop: bool = True,
    collections: Collections = RARE,
    grace: float = GRACE,
    termination_log: pathlib.Path = TERMINATION_LOG,
) -> int:
    """Run ``main`` to its end and return the exit code of the process.

    ``use_uvloop=False`` is for programs whose netlink library needs asyncio's own loop, and for
    those that do so little that a megabyte less is worth more.

    A program may load its modules without the garbage collector: it is switched on here.
    """
    gc.set_threshold(*collections)
    gc.enable()
    with asyncio.Runner(loop_factory=_uvloop() if use_uvloop else None) as runner:
        fault, release = runner.run(_live(main, program, grace))
    release()
    code = 0
    if fault is not None:
        code = _report(fault, logs.get(program), termination_log)
    logs.flush()
    return code


def _uvloop() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop  # only where it is used

    return uvloop.new_event_loop


async def _live(
    main: Callable[[Process], Awaitable[None]], program: str, grace: float
) -> tuple[BaseException | None, Callable[[], None]]:
    """Run ``main`` and the tasks it starts; return what went wrong, and how to disarm the limit."""
    fault: BaseException | None = None
    tasks = asyncio.TaskGroup()
    task = asyncio.current_task()
    assert task is not None
    process = Process(program, task, tasks, grace)
    _listen(process)
    try:
        async with tasks:
            try:
                await main(process)
            finally:
                process._end()  # noqa: SLF001 - run and Process are one mechanism
    except BaseExceptionGroup as group:
        fault = _first(group)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - judged by the caller
        fault = error
    return fault, process._release  # noqa: SLF001 - as above


def _listen(process: Process) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, functools.partial(process._signalled, number))  # noqa: SLF001


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the fault that counts: the first one that names an exit code, else the first."""
    flat: list[BaseException] = []
    rest: list[BaseException] = [group]
    while rest:
        error = rest.pop()
        if isinstance(error, BaseExceptionGroup):
            rest.extend(reversed(error.exceptions))
        else:
            flat.append(error)
    return next((error for error in flat if isinstance(error, ExitError)), flat[0])


def _report(fault: BaseException, log: logs.Logger, termination_log: pathlib.Path) -> int:
    """Log why the process ends; return its exit code."""
    if isinstance(fault, asyncio.CancelledError):
        log.error("Exiting, work was cut off by the grace time")
        return 1
    if not isinstance(fault, ExitError):
        try:
            raise fault
        except Exception:
            log.exception("Exiting, unexpected error")
        return 1
    log.error("Exiting", err=fault, code=fault.code)
    if fault.termination_log:
        try:
            termination_log.write_text(str(fault))
        except OSError as error:
            log.warning("Cannot write the termination log", err=error, path=termination_log)
    return fault.code


def _die(program: str) -> None:
    logs.get(program).error("Does not end by itself, exiting at once")
    logs.flush()
    os._exit(1)
