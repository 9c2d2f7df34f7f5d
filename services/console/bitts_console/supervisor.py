"""Runs the processes of a stack: starts, watches, restarts and stops them.

What to do is decided in ``lifecycle``; here it is only done. Each process has a session of
its own, so that Ctrl-C in the terminal reaches the supervisor alone, which then stops the
others in order. Should the supervisor itself be killed, the kernel ends its children.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitts_console import lifecycle, stack

POLL = 0.02
"""Seconds between looks at a file or socket of another process, which cannot be awaited."""

STOP_TIMEOUT = 8.0
"""Seconds that one process has after SIGTERM."""

BIN = pathlib.Path(sys.executable).parent


class StackError(Exception):
    """The stack cannot run; the message names the process and shows its last words."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user may want to see: which process, and what happened to it."""

    name: str
    text: str
    is_trouble: bool = False


class Supervisor:
    """Keeps the processes of ``specs`` running until told to stop.

    ``report`` is called for every start, readiness and end; it must not block.
    """

    def __init__(
        self, specs: Sequence[stack.Spec], logs: pathlib.Path, report: Callable[[Notice], None]
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._logs = logs
        self._report = report
        self._children = {
            spec.name: lifecycle.Child(spec.name, spec.after, spec.loss) for spec in specs
        }
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._stopping = False
        self.ready = asyncio.Event()

    @property
    def children(self) -> Mapping[str, lifecycle.Child]:
        """The state of every process."""
        return self._children

    def pids(self) -> dict[str, int]:
        """Return the process IDs of what runs."""
        return {name: process.pid for name, process in self._processes.items()}

    def log(self, name: str) -> pathlib.Path:
        """Return the log file of a process."""
        return self._logs / f"{name}.log"

    async def run(self) -> None:
        """Supervise until cancelled; then stop everything.

        Raises StackError when a process cannot be brought up at all.
        """
        try:
            while True:
                self._changed.clear()
                for action in lifecycle.decide(self._children, time.monotonic()):
                    await self._perform(action)
                if lifecycle.all_ready(self._children.values()):
                    self.ready.set()
                await self._next_change()
        finally:
            await self._stop()

    async def _next_change(self) -> None:
        wake = lifecycle.wake_at(self._children.values())
        timeout = None if wake is None else max(0.0, wake - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    async def _perform(self, action: lifecycle.Action) -> None:
        match action:
            case lifecycle.Start(name, reason):
                await self._start(self._specs[name], reason)
            case lifecycle.Kill(name, reason):
                self._report(Notice(name, f"{reason}: killed", is_trouble=True))
                self._processes[name].kill()
                self._children[name] = lifecycle.killed(self._children[name], time.monotonic())
            case lifecycle.GiveUp(name, reason):
                words = await asyncio.to_thread(last_lines, self.log(name))
                raise StackError(f"{name} {reason}; the end of {self.log(name)}:\n{words}")

    async def _start(self, spec: stack.Spec, reason: str) -> None:
        await asyncio.to_thread(forget_readiness, spec.ready)
        process = await spawn(spec, self.log(spec.name))
        self._processes[spec.name] = process
        self._children[spec.name] = lifecycle.started(self._children[spec.name], time.monotonic())
        self._report(Notice(spec.name, f"started ({reason}), pid {process.pid}"))
        self._watchers[spec.name] = asyncio.create_task(
            self._watch(spec, process), name=f"watch-{spec.name}"
        )

    async def _watch(self, spec: stack.Spec, process: asyncio.subprocess.Process) -> None:
        """Follow one run of one process from its start to its end."""
        readiness = asyncio.create_task(self._await_ready(spec), name=f"ready-{spec.name}")
        try:
            code = await process.wait()
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)
        del self._processes[spec.name]
        if self._stopping:
            return
        child = lifecycle.ended(self._children[spec.name], time.monotonic(), code)
        self._children[spec.name] = child
        again = f"; again in {child.resume_at - child.since:.2g} s"
        resting = child.phase is lifecycle.Phase.RESTING
        text = f"{child.reason}{again if resting else ''} (log: {self.log(spec.name)})"
        self._report(Notice(spec.name, text, is_trouble=True))
        self._changed.set()

    async def _await_ready(self, spec: stack.Spec) -> None:
        while not await is_ready(spec.ready):  # noqa: ASYNC110  # a file of another process
            await asyncio.sleep(POLL)
        self._children[spec.name] = lifecycle.became_ready(
            self._children[spec.name], time.monotonic()
        )
        self._report(Notice(spec.name, "ready"))
        self._changed.set()

    async def _stop(self) -> None:
        """SIGTERM in reverse order of dependence, then SIGKILL for what does not go."""
        self._stopping = True
        for wave in stopping_order(list(self._specs.values())):
            names = [name for name in wave if name in self._processes]
            for name in names:
                with contextlib.suppress(ProcessLookupError):
                    self._processes[name].send_signal(signal.SIGTERM)
            await self._await_end(names)

    async def _await_end(self, names: Sequence[str]) -> None:
        watchers = [self._watchers[name] for name in names]
        if not watchers:
            return
        _, late = await asyncio.wait(watchers, timeout=STOP_TIMEOUT)
        for name in names:
            if self._watchers[name] in late:
                self._report(Notice(name, "does not end: killed", is_trouble=True))
                self._processes[name].kill()
        if late:
            await asyncio.wait(late, timeout=STOP_TIMEOUT)


def stopping_order(specs: Sequence[stack.Spec]) -> list[list[str]]:
    """Return waves of names: what others depend on stops last, everything else first."""
    needed = {name for spec in specs for name in spec.after}
    waves = [
        [s.name for s in specs if s.name not in needed],
        [s.name for s in specs if s.name in needed],
    ]
    return [wave for wave in waves if wave]


async def spawn(spec: stack.Spec, log: pathlib.Path) -> asyncio.subprocess.Process:
    """Start a process with its output appended to ``log``.

    Raises StackError when the program is missing.
    """
    program = BIN / spec.program
    if not await asyncio.to_thread(program.exists):
        raise StackError(f"{program} is missing: install the services beside the console")
    output = await asyncio.to_thread(os.open, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *await asyncio.to_thread(death_signal),
            str(program),
            *spec.arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **spec.environ},
        )
    finally:
        os.close(output)


def death_signal() -> list[str]:
    """Return the prefix that makes a program end with us, where util-linux is installed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


async def is_ready(readiness: stack.Readiness) -> bool:
    """Whether a process answers."""
    match readiness:
        case stack.FileReady(path):
            return await asyncio.to_thread(path.exists)
        case stack.SocketReady(path):
            try:
                async with asyncio.timeout(1):
                    _, writer = await asyncio.open_unix_connection(path)
            except (OSError, TimeoutError):
                return False
            writer.close()
            return True


def forget_readiness(readiness: stack.Readiness) -> None:
    """Remove what an earlier run left behind, so that it is not taken for this one's."""
    readiness.path.unlink(missing_ok=True)


def last_lines(log: pathlib.Path, count: int = 15) -> str:
    """Return the end of a log file."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    except OSError as error:
        return f"(no log: {error.strerror})"
