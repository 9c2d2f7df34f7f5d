"""A stack from its start to its last trace: the frame in which ``up`` and ``demo`` do their work.

Whoever runs a stack holds its lock; what an earlier owner left is removed before anything
starts, and everything that must not last is removed at the end, also when the work failed.
"""

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from bitts_console import leftovers, stack, state, supervisor

T = TypeVar("T")

READY_TIMEOUT = 60.0
"""Seconds for all processes together to become ready."""

Report = Callable[[supervisor.Notice], None]


@dataclass(frozen=True, slots=True)
class Running:
    """A stack all of whose processes are ready."""

    options: stack.Options
    folders: state.Folders
    supervisor: supervisor.Supervisor


async def run(
    options: stack.Options,
    folders: state.Folders,
    report: Report,
    work: Callable[[Running], Awaitable[T]],
) -> T:
    """Start a stack, do the work once it is ready, stop it and remove what must not last.

    Raises StateError when the folders are in use, StackError when a process cannot run, and
    what the work raises.
    """
    await asyncio.to_thread(state.prepare, folders)
    async with _locked(folders):
        await _sweep(options, folders, report)
        await asyncio.to_thread(_make_folders, options, folders)
        supervising = supervisor.Supervisor(stack.specs(options, folders), folders.logs, report)
        running = Running(options, folders, supervising)
        await write_record(running, is_ready=False)
        try:
            return await _supervised(running, work)
        finally:
            await clear(folders, keep_data=options.store != "memory")


async def _supervised(running: Running, work: Callable[[Running], Awaitable[T]]) -> T:
    """Do the work beside the supervisor; the end of either ends the other."""
    supervising = asyncio.create_task(running.supervisor.run(), name="supervisor")
    working = asyncio.create_task(_when_ready(running, work), name="work")
    try:
        await asyncio.wait({supervising, working}, return_when=asyncio.FIRST_COMPLETED)
        if supervising.done():
            supervising.result()  # raises: a supervisor never ends by itself
        return await working
    finally:
        for task in (working, supervising):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _when_ready(running: Running, work: Callable[[Running], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await running.supervisor.ready.wait()
    except TimeoutError:
        children = running.supervisor.children.values()
        late = [f"{child.name} ({child.phase})" for child in children if not child.was_ready]
        raise supervisor.StackError(
            f"not ready within {READY_TIMEOUT:g} s: {', '.join(late)}; logs: {running.folders.logs}"
        ) from None
    return await work(running)


async def write_record(running: Running, *, is_ready: bool) -> None:
    """Write down what runs, for scripts and for ``bitts demo --use``.

    Whether it is still true is told by the lock, which the owner holds as long as it lives.
    """
    record = {
        "pid": os.getpid(),
        "ready": is_ready,
        "kubeconfig": str(running.folders.kubeconfig),
        "driver": {"name": stack.DRIVER_NAME, "socket": str(stack.driver_socket(running.folders))},
        "options": {
            "nodes": running.options.nodes,
            "backends": list(running.options.backends),
            "store": running.options.store,
            "kind": running.options.kind,
        },
        "processes": running.supervisor.pids(),
    }
    await asyncio.to_thread(_replace, running.folders, json.dumps(record, indent=2) + "\n")


def _replace(folders: state.Folders, text: str) -> None:
    temporary = folders.record.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(folders.record)


def read_record(folders: state.Folders) -> dict[str, Any] | None:
    """Return what was written down about a stack, None if there is nothing. Blocking."""
    try:
        record = json.loads(folders.record.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


@contextlib.asynccontextmanager
async def _locked(folders: state.Folders) -> AsyncIterator[None]:
    handle = await asyncio.to_thread(acquire, folders)
    if handle is None:
        pid = await asyncio.to_thread(owner, folders)
        raise state.StateError(
            f"a stack already runs in {folders.state} (process {pid}): use it, end it with "
            "`bitts down`, or choose another folder with --dir"
        )
    try:
        yield
    finally:
        os.close(handle)


def acquire(folders: state.Folders) -> int | None:
    """Take the stack's lock; None if its owner is alive. The kernel frees it with the owner."""
    handle = os.open(folders.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


def is_owned(folders: state.Folders) -> bool:
    """Whether the stack's owner is alive. Blocking, but never waits."""
    try:
        handle = os.open(folders.lock, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def owner(folders: state.Folders) -> int | None:
    """Return the process that last took the lock, None if nobody ever did."""
    try:
        return int(folders.lock.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def store(folders: state.Folders) -> str:
    """Return which store the cluster in these folders has, "" if there is none."""
    record = read_record(folders)
    return str(record["options"]["store"]) if record else ""


def kind(folders: state.Folders) -> str:
    """Return of which kind the cluster in these folders is, "" if there is none."""
    record = read_record(folders)
    return str(record["options"]["kind"]) if record else ""


async def _sweep(options: stack.Options, folders: state.Folders, report: Report) -> None:
    """Remove what a killed stack left. A cluster in memory is gone, and with it its volumes."""
    if options.store == "memory" and await asyncio.to_thread(store, folders) == "sqlite":
        raise state.StateError(
            f"{folders.state} holds a cluster with its volumes: continue it with --store sqlite, "
            "or remove it with `bitts down --purge`"
        )
    removed = await clear(folders, keep_data=options.store != "memory")
    for line in removed:
        report(supervisor.Notice("bitts", f"removed what an earlier stack left: {line}"))


def _make_folders(options: stack.Options, folders: state.Folders) -> None:
    state.prepare(folders)
    for folder in stack.runtime_folders(options, folders):
        folder.mkdir(parents=True, exist_ok=True)


async def clear(folders: state.Folders, *, keep_data: bool) -> list[str]:
    """Remove everything of a stack whose supervisor has ended; return what was found, in words.

    The logs stay until the next start, and the lock file for ever, as long as somebody may
    hold it. With ``keep_data`` the cluster's store and the volumes stay too.
    """
    found = await leftovers.end([folders.state, folders.runtime])
    if await asyncio.to_thread(kind, folders) == "kubernetes":
        await leftovers.run(*stack.clear_cluster(folders))
    doomed = [folders.runtime]
    if not keep_data:
        doomed += [folders.record, folders.cluster, folders.volumes]
    for path in doomed:
        await leftovers.delete(path)
    return found.lines()
