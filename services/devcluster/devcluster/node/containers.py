"""Runs containers through ``sandbox`` and tells how they fare, across restarts of the agent.

What is true stands in a container's folder (see ``sandbox``); here is a copy of it in memory,
refreshed after every start and end. Ends are noticed through a pidfd, for children of an
earlier agent just the same.
"""

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from devcluster.node import model, paths, sandbox

START_TIMEOUT = 30.0  # seconds for a root to be built
KILLED = 137  # exit code of a container that left none
STARTER_CHECK = 0.05  # seconds between looks at a container that an earlier agent is starting
Note = TypeVar("Note")


class StartError(Exception):
    """A container could not be started."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder, file or device that a container sees somewhere."""

    source: str
    target: str
    readonly: bool


@dataclass(frozen=True, slots=True)
class Command:
    """What to run and in which surroundings; turned into ``spec.json`` as it is."""

    attempt: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    mounts: Sequence[Bind]
    uid: int
    gid: int
    groups: Sequence[int]
    log: str
    hostname: str
    last_words: str


class Containers:
    """All containers of the node; ``on_end(uid)`` is called when one of a pod's ends."""

    def __init__(self, layout: paths.Layout, on_end: Callable[[str], None]) -> None:
        self._layout = layout
        self._on_end = on_end
        self._known: dict[str, dict[str, model.Container]] = {}
        self._handles: dict[tuple[str, str], int] = {}  # pidfds of those that run
        self._endings: set[asyncio.Task[None]] = set()

    def of(self, uid: str) -> Mapping[str, model.Container]:
        """A pod's containers that were ever started."""
        return dict(self._known.get(uid, {}))

    async def load(self, uid: str) -> None:
        """Take over what an earlier agent started for a pod."""
        folder = self._layout.pod(uid) / "containers"
        for name in await asyncio.to_thread(_names, folder):
            await self._refresh(uid, name)

    async def start(self, uid: str, name: str, command: Command) -> None:
        """Start a container; raises StartError, and the run then counts as ended."""
        folder = self._layout.container(uid, name)
        await asyncio.to_thread(_prepare, folder, msgspec.json.encode(command))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", sandbox.__file__, str(folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT):
                _, problem = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            problem = b"building its root took too long"
        finally:
            await self._refresh(uid, name)
        if child.returncode:
            raise StartError(problem.decode(errors="replace").strip()[-1000:])

    def kill(self, uid: str, name: str, number: signal.Signals) -> None:
        """Signal a container; one that has ended is left in peace."""
        handle = self._handles.get((uid, name))
        if handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            state = self._known[uid][name]
            self._known[uid][name] = dataclasses.replace(state, asked=True)

    def forget(self, uid: str) -> None:
        """Drop a pod whose containers have all ended."""
        self._known.pop(uid, None)

    async def _refresh(self, uid: str, name: str) -> None:
        folder = self._layout.container(uid, name)
        state, pid = await asyncio.to_thread(_inspect, folder)
        while state.running and not pid:  # an earlier agent's starter is at work
            await asyncio.sleep(STARTER_CHECK)
            state, pid = await asyncio.to_thread(_inspect, folder)
        if state.running and (uid, name) not in self._handles:
            try:
                self._follow(uid, name, pid)
            except ProcessLookupError:
                state, _ = await asyncio.to_thread(_inspect, folder)
        self._known.setdefault(uid, {})[name] = state

    def _follow(self, uid: str, name: str, pid: int) -> None:
        handle = os.pidfd_open(pid)
        self._handles[uid, name] = handle
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, self._gone, uid, name, pid, handle)

    def _gone(self, uid: str, name: str, pid: int, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        self._handles.pop((uid, name), None)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # ours as its subreaper, unless an earlier agent's
        task = asyncio.get_running_loop().create_task(
            self._refresh(uid, name), name=f"end of {name}"
        )
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        task.add_done_callback(lambda _: self._on_end(uid))


def _names(folder: pathlib.Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.exists() else []


def _prepare(folder: pathlib.Path, spec: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_bytes(spec)


class Run(msgspec.Struct, frozen=True):
    """``run.json``: the init of the current attempt, written before its command starts."""

    attempt: int
    pid: int
    start: str
    started: float


class End(msgspec.Struct, frozen=True):
    """``exit.json``: how an attempt ended."""

    attempt: int
    code: int
    message: str
    finished: float


def _inspect(folder: pathlib.Path) -> tuple[model.Container, int]:
    """A container's state and the pid of its init (0 if none), by its notes and its lock."""
    run = _read(folder / "run.json", Run)
    if run is None:
        end = _read(folder / "exit.json", End)
        if end is not None:
            return _ended(end, 0.0), 0
        return model.Container(running=_is_locked(folder / "lock")), 0
    alive = sandbox.start_time(run.pid) == run.start
    end = _read(folder / "exit.json", End)  # looked for after the process: its last deed
    if end is not None:
        return _ended(end, run.started), 0
    if alive:
        return model.Container(run.attempt, running=True, started=run.started), run.pid
    gone = model.Container(run.attempt, code=KILLED, message="killed", started=run.started)
    return gone, 0


def _ended(end: End, started: float) -> model.Container:
    return model.Container(
        end.attempt, code=end.code, message=end.message, started=started, finished=end.finished
    )


def _read(path: pathlib.Path, kind: type[Note]) -> Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _is_locked(path: pathlib.Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
