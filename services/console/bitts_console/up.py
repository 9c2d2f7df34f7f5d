"""``bitts up`` and ``bitts down``: a stack to work with, and its end."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from bitts_console import cluster, leftovers, running, scenario, stack, state, supervisor

DETACH_TIMEOUT = 90.0
"""Seconds for a stack in the background to become ready."""

OWNER_TIMEOUT = 30.0
"""Seconds for the owner of a stack to end it after SIGTERM."""

POLL = 0.05


class UsageError(Exception):
    """What was asked for cannot be; the message says what can."""


def backends(default: str, abilities: scenario.Abilities) -> tuple[str, ...]:
    """Return the backends that the driver offers here, the default one first.

    btrfs is among them only when it is chosen, as the driver makes a file system for it then.
    Raises UsageError when the chosen default cannot work on this machine.
    """
    if hindrance := abilities.hindrance_of(default):
        raise UsageError(f"--backend {default}: {hindrance}")
    possible = ["directory", *(["image"] if abilities.images else [])]
    return (default, *(name for name in possible if name != default))


async def up(options: stack.Options, folders: state.Folders, console: Console) -> None:
    """Run a stack until cancelled."""
    changed = asyncio.Event()

    def report(notice: supervisor.Notice) -> None:
        changed.set()
        style = "bold red" if notice.is_trouble else "dim"
        console.print(f"{notice.name}: {notice.text}", style=style, markup=False, soft_wrap=True)

    async def serve(stack_running: running.Running) -> None:
        async with cluster.connect(folders.kubeconfig) as client:
            await cluster.install_driver(client)
            if options.nodes:
                await cluster.await_registration(client)
        console.print(advice(stack_running), markup=False, soft_wrap=True, highlight=False)
        while True:
            changed.clear()
            await running.write_record(stack_running, is_ready=True)
            await changed.wait()

    await running.run(options, folders, report, serve)


def advice(stack_running: running.Running) -> str:
    """Return what to tell somebody whose stack has just become ready."""
    kubeconfig = stack_running.folders.kubeconfig
    default = " ".join(stack_running.options.backends)
    return "\n".join(
        [
            "",
            f"The stack is ready. Backends: {default}. Logs: {stack_running.folders.logs}",
            f"  export KUBECONFIG={kubeconfig}",
            "Things to try:",
            "  kubectl apply -f examples/",
            "  kubectl get pvc,pv,pods -n bitts-examples --watch",
            f"  bitts demo --use --dir {stack_running.folders.state}",
            "Ctrl-C, or `bitts down`, ends it.",
        ]
    )


def up_detached(arguments: Sequence[str], folders: state.Folders, console: Console) -> None:
    """Start ``bitts up`` in the background and return once its stack is ready. Blocking.

    Raises StackError with the last words of a stack that does not come up.
    """
    state.prepare(folders)
    log = folders.logs / "up.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "bitts_console", "up", "--foreground", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await_ready(child, folders, log)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    console.print(log.read_text().partition("\n\n")[2], markup=False, soft_wrap=True, end="")
    console.print(f"It runs in the background, as process {child.pid}.")


def _await_ready(
    child: "subprocess.Popen[bytes]", folders: state.Folders, log: pathlib.Path
) -> None:
    deadline = time.monotonic() + DETACH_TIMEOUT
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise supervisor.StackError(supervisor.last_lines(log, 30))
        record = running.read_record(folders)
        if record and record["pid"] == child.pid and record["ready"]:
            return
        time.sleep(POLL)
    raise supervisor.StackError(f"not ready within {DETACH_TIMEOUT:g} s; see {log}")


async def down(folders: state.Folders, *, purge: bool) -> list[str]:
    """End a stack, however it was left, and return what had to be removed by force.

    A cluster in memory goes with its volumes; one in a file stays for the next ``bitts up``,
    unless ``purge``. Raises LeftoverError naming what does not go.
    """
    if not await asyncio.to_thread(folders.state.exists):
        return await running.clear(folders, keep_data=False)
    handle = await _take_over(folders)
    try:
        kept = await asyncio.to_thread(running.store, folders) == "sqlite" and not purge
        found = await running.clear(folders, keep_data=kept)
        if not kept:
            await leftovers.delete(folders.state)
        return found
    finally:
        os.close(handle)


async def _take_over(folders: state.Folders) -> int:
    """Ask the owner to end, wait until it has let go of the lock, and hold that ourselves."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        handle = await asyncio.to_thread(running.acquire, folders)
        if handle is not None:
            return handle
        pid = await asyncio.to_thread(running.owner, folders)
        if pid is not None:
            _signal(pid, number)
        deadline = time.monotonic() + OWNER_TIMEOUT
        while handle is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL)
            handle = await asyncio.to_thread(running.acquire, folders)
        if handle is not None:
            if pid is not None:
                await _gone(pid, deadline)
            return handle
    raise leftovers.LeftoverError(f"process {pid} holds {folders.lock} and does not end: kill it")


async def _gone(pid: int, deadline: float) -> None:
    """Wait until the owner, who has let go of the lock, has ended too: it is about to."""
    while await asyncio.to_thread(_is_running, pid):
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(POLL)


def _is_running(pid: int) -> bool:
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise leftovers.LeftoverError(
            f"process {pid} is somebody else's: {error.strerror}"
        ) from error
