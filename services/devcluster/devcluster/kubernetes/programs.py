"""Supervision of the programs of a cluster: started, watched, started again, ended.

A program that ends before it was ready ends the whole start with its last words. One that
was ready is started again, as an init system does on a real machine, ever more slowly; one
that keeps failing is a fault of the cluster. All die with this process, however it dies.
"""

import asyncio
import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from bitts.core import ledger, logs
from bitts.core.process import ExitError, Process

from devcluster.kubernetes import lastwords

POLL = 0.05
"""Seconds between looks at another program's state."""

STEADY = 20.0
"""Seconds of life after which earlier failures are forgotten."""

ATTEMPTS = 6
"""Ends in a row, each sooner than ``STEADY`` after the start, that make a fault."""

LOOP = "programs"
"""By this name the ledger knows what is decided about programs."""

_TAIL = 64 * 1024
_log = logs.get("devcluster")

GARBAGE = {"GOGC": "400"}
"""Environment of Go programs, unless it is set: they collect garbage at five times what is in use.

A sixth of the processor time until the control plane is ready goes into that otherwise.
"""

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")


@dataclass(frozen=True, slots=True)
class Program:
    """One program: its command line and the file that takes its output."""

    name: str
    command: tuple[str, ...]
    log: pathlib.Path


@dataclass(frozen=True, slots=True)
class State:
    """What became of a program; ``pid`` is None while it does not run."""

    pid: int | None
    restarts: int
    log: pathlib.Path


def pause(failures: int) -> float:
    """Return the seconds before a program is started again; the first time nearly at once."""
    return float(min(0.2 * 2 ** max(failures - 1, 0), 10.0))


class Supervisor:
    """The programs of one cluster. What it decides about them, and why, goes into ``noted``."""

    def __init__(self, process: Process, noted: ledger.Ledger) -> None:
        self.noted = noted
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._logs: dict[str, pathlib.Path] = {}
        self._restarts: dict[str, int] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        process.start("programs", self._watch())

    async def _watch(self) -> None:
        """End with the first fault of a keeper, which ends the process."""
        await self._fault

    def keep(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run ``work``, which never ends by itself, until ``retire`` or the end of all."""

        def judge(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and not self._stopping and not self._fault.done():
                error = task.exception() or ExitError(1, f"nobody looks after {name} any more")
                self._fault.set_exception(error)

        task = asyncio.create_task(work, name=name)
        self._keepers[name] = task
        task.add_done_callback(judge)

    async def retire(self, names: Sequence[str]) -> None:
        """Look after programs no longer, and end them where they still run."""
        for name in names:
            if keeper := self._keepers.pop(name, None):
                keeper.cancel()
        await self.stop(names)
        for name in names:
            if name in self._running:
                self.noted.decided(LOOP, name, "Retire", "its node has ended")
                self.noted.finished(LOOP, name)

    def pids(self) -> Mapping[str, int]:
        """Return the process IDs of what runs (of those in nodes: of what entered for them)."""
        return {name: child.pid for name, child in self._running.items()}

    def states(self) -> Mapping[str, State]:
        """Return what became of every program that was started."""
        return {
            name: State(
                child.pid if child.returncode is None else None,
                self._restarts.get(name, 0),
                self._logs[name],
            )
            for name, child in self._running.items()
        }

    async def start(
        self, program: Program, ready: Callable[[], Awaitable[bool]], timeout: float
    ) -> None:
        """Start a program and wait until it is ready; from then on it is kept running.

        Raises ExitError with its last words if it ends before, or takes too long.
        """
        child = await self.spawn(program)
        await self.wait(program, child, ready, timeout)
        self.keep(program.name, self._keep(program, child))

    async def wait(
        self,
        program: Program,
        child: asyncio.subprocess.Process,
        ready: Callable[[], Awaitable[bool]],
        timeout: float,
    ) -> None:
        """Wait until a program is ready. Raises ExitError as ``start`` does."""
        deadline = time.monotonic() + timeout
        while not await ready():
            if child.returncode is not None or time.monotonic() > deadline:
                raise await _failure(program, child.returncode, timeout)
            await asyncio.sleep(POLL)
        self.noted.decided(LOOP, program.name, "Keep", "it is ready")
        self.noted.finished(LOOP, program.name)

    async def spawn(self, program: Program) -> asyncio.subprocess.Process:
        """Start a program once."""
        self.noted.started(LOOP, program.name)
        output = await asyncio.to_thread(_open_log, program.log)
        try:
            child = await asyncio.create_subprocess_exec(
                *DIES_WITH_US,
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**GARBAGE, **os.environ},
            )
        finally:
            os.close(output)
        self._running[program.name] = child
        self._logs[program.name] = program.log
        self.noted.decided(
            LOOP, program.name, "Start", f"the cluster needs it: process {child.pid}"
        )
        return child

    async def _keep(self, program: Program, child: asyncio.subprocess.Process) -> None:
        failures, begin = 0, time.monotonic()
        while True:
            code = await child.wait()
            if self._stopping:
                return
            failures = 1 if time.monotonic() - begin > STEADY else failures + 1
            if failures >= ATTEMPTS:
                raise await _failure(program, code, 0)
            _log.warning("Program ended, starting it again", program=program.name, code=code)
            self._note_end(program, code, failures)
            await asyncio.sleep(pause(failures))
            child, begin = await self.spawn(program), time.monotonic()
            self.noted.finished(LOOP, program.name)

    def _note_end(self, program: Program, code: int, failures: int) -> None:
        name, delay = program.name, pause(failures)
        self._restarts[name] = self._restarts.get(name, 0) + 1
        reason = f"it {_ended(code)}; {failures} of {ATTEMPTS} ends in a row that end the cluster"
        self.noted.decided(LOOP, name, "StartAgain", reason, error=f"it {_ended(code)}")
        self.noted.retry_at(LOOP, name, time.time() + delay, failures=failures)

    def stopping(self) -> None:
        """From now on nothing is started again."""
        self._stopping = True
        for keeper in self._keepers.values():
            keeper.cancel()

    async def stop(self, names: Sequence[str], grace: float = 0.0) -> None:
        """End programs: SIGTERM and, after ``grace`` seconds, SIGKILL; without grace at once."""
        children = [self._running[name] for name in names if name in self._running]
        if grace:
            _signal(children, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await asyncio.gather(*(child.wait() for child in children))
        _signal(children, signal.SIGKILL)
        await asyncio.gather(*(child.wait() for child in children))


def _signal(children: Sequence[asyncio.subprocess.Process], number: signal.Signals) -> None:
    for child in children:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)


async def _failure(program: Program, code: int | None, timeout: float) -> ExitError:
    words = lastwords.explain(await asyncio.to_thread(_tail, program.log))
    ended = f"is not ready within {timeout:g} s" if code is None else _ended(code)
    return ExitError(1, f"{program.name} {ended}; from {program.log}:\n{words}")


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _open_log(path: pathlib.Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _tail(path: pathlib.Path) -> str:
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - _TAIL))
        return handle.read().decode(errors="replace")


async def accepts(path: str) -> bool:
    """Whether somebody listens on a unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


def _as_file(words: bytes) -> int:
    """Return words as a file in memory: a command that ends early breaks no pipe."""
    handle = os.memfd_create("stdin", os.MFD_CLOEXEC)
    os.write(handle, words)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


async def run(command: Sequence[str], *, words: bytes = b"", timeout: float = 30.0) -> str:
    """Run a command to its end and return its output. Raises ExitError with what it said."""
    given = _as_file(words)
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    finally:
        os.close(given)
    try:
        async with asyncio.timeout(timeout):
            output, _ = await child.communicate()
    except TimeoutError:
        raise ExitError(1, f"{' '.join(command)}: no end within {timeout:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        text = output.decode(errors="replace").strip()
        raise ExitError(1, f"{' '.join(command)}: exit code {child.returncode}: {text}")
    return output.decode(errors="replace")
