"""Our console scripts as real processes: started, watched, killed and always reaped.

Every process gets a session of its own (so a whole tree can be killed), dies with the test
run (parent-death signal), writes its output to a file, and carries ``MARK`` in its
environment, by which a leak check finds descendants that left the process group.
"""

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO

from support import waiting

BIN = pathlib.Path(sys.executable).parent
MARK = "BITTS_TEST_RUN"
RUN = f"run-{os.getpid()}"
RUNTIME = f"/tmp/b-{os.getpid():x}-r"
"""Where stacks of ``bitts up`` that tests start put their sockets: one of the short directories,
so that what is left there is known to be ours."""
TAIL = 4000
"""Characters of log shown when something goes wrong."""


class ProcessError(AssertionError):
    """A process ended or stayed silent when it should not have; carries the end of its log."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a spawned process sees: ours, without what slows or redirects it."""
    dropped = {"PYTHONDONTWRITEBYTECODE", "PYTHONASYNCIODEBUG", "KUBECONFIG"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, MARK: RUN, "XDG_RUNTIME_DIR": RUNTIME, **(extra or {})}


def script(name: str) -> str:
    """Return the path of one of our console scripts, beside the running interpreter."""
    path = BIN / name
    if not path.exists():
        raise ProcessError(f"{path} is missing: run `make setup`")
    return str(path)


class Process:
    """One running program. Start it with ``spawn``; ``close`` is safe to call twice."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
        self.name = name
        self.log = log
        self.pid = popen.pid
        self._popen = popen

    @property
    def alive(self) -> bool:
        """Whether the process still runs (reaps it when it does not)."""
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit status (negative: the signal that ended it), or None while running."""
        return self._popen.poll()

    def output(self) -> str:
        """Return everything written to stdout and stderr so far."""
        return self.log.read_text(errors="replace")

    def failure(self, reason: str) -> ProcessError:
        """Return an error that shows the end of the log."""
        return ProcessError(f"{self.name} (pid {self.pid}) {reason}\n{self.output()[-TAIL:]}")

    async def wait_ready(
        self,
        check: Callable[[], object] | Callable[[], Awaitable[object]],
        what: str,
        timeout: float = 20.0,
    ) -> None:
        """Wait until ``check`` is truthy; fails at once when the process ends before."""
        try:
            await waiting.until(self._or_dead(check), what, timeout)
        except waiting.DeadlineError as error:
            raise self.failure(f"is not ready: {error}") from error

    def wait_ready_blocking(
        self, check: Callable[[], object], what: str, timeout: float = 20.0
    ) -> None:
        """As ``wait_ready``, outside an event loop."""

        def ready() -> object:
            if not self.alive:
                raise self.failure(f"ended with {self.exit_code} before: {what}")
            return check()

        try:
            waiting.until_blocking(ready, what, timeout)
        except waiting.DeadlineError as error:
            raise self.failure(f"is not ready: {error}") from error

    def _or_dead(
        self, check: Callable[[], object] | Callable[[], Awaitable[object]]
    ) -> Callable[[], Awaitable[object]]:
        async def ready() -> object:
            if not self.alive:
                raise self.failure(f"ended with {self.exit_code} while it was waited for")
            found = check()
            return await found if isinstance(found, Awaitable) else found

        return ready

    async def wait_for_output(self, text: str, timeout: float = 15.0) -> str:
        """Wait until ``text`` stands in the log, and return the log."""
        await self.wait_ready(lambda: text in self.output(), f"{text!r} in its log", timeout)
        return self.output()

    async def wait(self, timeout: float = 15.0) -> int:
        """Wait for the end and return the exit status."""
        try:
            await waiting.until(lambda: not self.alive, "end of the process", timeout)
        except waiting.DeadlineError as error:
            raise self.failure(str(error)) from error
        code = self.exit_code
        assert code is not None
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process alone, not its descendants."""
        self._popen.send_signal(number)

    async def stop(self, timeout: float = 15.0) -> int:
        """SIGTERM, wait for the orderly end, return the exit status."""
        self.send_signal(signal.SIGTERM)
        return await self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL the process alone and reap it: what a crash looks like to the others."""
        self._popen.kill()
        self._popen.wait()

    def close(self) -> None:
        """Kill the whole session (the process and what it started) and reap."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


class Processes:
    """Every process of one test: spawns them and ends them all, whatever happened."""

    def __init__(self, logs: pathlib.Path) -> None:
        self._logs = logs
        self._started: list[Process] = []

    def spawn(
        self,
        command: Sequence[str],
        *,
        name: str = "",
        environ: Mapping[str, str] | None = None,
        cwd: pathlib.Path | None = None,
    ) -> Process:
        """Start a program; the first word is one of our console scripts or an absolute path.

        Call it from the main thread only: the parent-death signal is bound to the thread.
        """
        program = command[0] if "/" in command[0] else script(command[0])
        name = name or pathlib.Path(program).name
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{len(self._started):02d}-{name}.log"
        with log.open("wb") as output:
            popen = _start([program, *command[1:]], output, environment(environ), cwd)
        process = Process(name, popen, log)
        self._started.append(process)
        return process

    def report(self) -> str:
        """Return the end of every log, for the report of a failed test."""
        return "\n".join(
            f"--- {process.log}\n{process.output()[-TAIL:]}" for process in self._started
        )

    def close(self) -> None:
        """Terminate in reverse order of start, then kill what did not go within a moment."""
        for process in reversed(self._started):
            if process.alive:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a frozen one would not hear it
        for process in reversed(self._started):
            with contextlib.suppress(waiting.DeadlineError):
                waiting.until_blocking(lambda p=process: not p.alive, "end", timeout=3)  # type: ignore[misc]
            process.close()
        self._started.clear()


def _start(
    command: Sequence[str],
    output: IO[bytes],
    environ: Mapping[str, str],
    cwd: pathlib.Path | None,
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        # A run in the background ignores SIGINT, and so would all that it starts.
        ["env", "--default-signal=INT", "setpriv", "--pdeathsig", "KILL", "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        cwd=cwd,
        start_new_session=True,
    )


async def run(command: Sequence[str], *, timeout: float = 60.0, check: bool = True) -> str:
    """Run a program to its end and return its stdout; raise with its output when it fails."""
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        async with asyncio.timeout(waiting.patient(timeout)):
            stdout, stderr = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if check and child.returncode:
        raise ProcessError(
            f"{' '.join(command)}: exit {child.returncode}\n{stdout.decode()}{stderr.decode()}"
        )
    return stdout.decode()
