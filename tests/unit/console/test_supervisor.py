"""Supervision of real processes."""

import asyncio
import contextlib
import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest
from bitts_console import supervisor
from bitts_console.stack import FileReady, Spec
from bitts_console.supervisor import Notice, Supervisor
from support import waiting


def lasting(name: str, folder: pathlib.Path, *after: str) -> Spec:
    """A process that makes a file and then lasts."""
    ready = folder / f"{name}.ready"
    script = "touch $0 && exec sleep 1000"
    return Spec(name, "/bin/sh", ("-c", script, str(ready)), FileReady(ready), after)


def failing(name: str, folder: pathlib.Path, code: int) -> Spec:
    script = f"echo last words of {name}; exit {code}"
    return Spec(name, "/bin/sh", ("-c", script), FileReady(folder / "never"))


@contextlib.asynccontextmanager
async def supervised(
    folder: pathlib.Path, *specs: Spec
) -> AsyncIterator[tuple[Supervisor, list[Notice]]]:
    told: list[Notice] = []
    running = Supervisor(specs, folder, told.append)
    task = asyncio.create_task(running.run())
    try:
        yield running, told
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, supervisor.StackError):
            await task


async def test_everything_becomes_ready_in_order_of_need(tmp_path: pathlib.Path) -> None:
    specs = [lasting("second", tmp_path, "first"), lasting("first", tmp_path)]
    async with supervised(tmp_path, *specs) as (running, told):
        async with asyncio.timeout(60):
            await running.ready.wait()
        pids = running.pids()
    started = [notice.name for notice in told if notice.text.startswith("started")]
    assert started == ["first", "second"]
    assert [_command(pid) for pid in pids.values()] == [b"", b""]


async def test_what_is_killed_comes_back_and_is_told(tmp_path: pathlib.Path) -> None:
    async with supervised(tmp_path, lasting("a", tmp_path)) as (running, told):
        async with asyncio.timeout(60):
            await running.ready.wait()
        first = running.pids()["a"]
        os.kill(first, signal.SIGKILL)
        await waiting.until(lambda: running.pids().get("a", first) != first, "a new process")
        await waiting.until(lambda: running.children["a"].phase == "ready", "readiness")
    trouble = [notice.text for notice in told if notice.is_trouble]
    assert trouble[0].startswith("killed by signal 9; again in 0.25 s (log: ")


async def test_what_cannot_start_ends_everything_with_its_last_words(
    tmp_path: pathlib.Path,
) -> None:
    running = Supervisor(
        [lasting("good", tmp_path), failing("bad", tmp_path, 2)], tmp_path, lambda _: None
    )
    with pytest.raises(supervisor.StackError) as caught:
        async with asyncio.timeout(60):
            await running.run()
    assert "bad ended with exit code 2" in str(caught.value)
    assert "last words of bad" in str(caught.value)
    assert running.pids() == {}


async def test_attempts_of_what_never_was_ready_are_counted(tmp_path: pathlib.Path) -> None:
    told: list[Notice] = []
    running = Supervisor([failing("bad", tmp_path, 1)], tmp_path, told.append)
    with pytest.raises(supervisor.StackError, match="ended with exit code 1"):
        async with asyncio.timeout(60):
            await running.run()
    assert len([notice for notice in told if notice.text.startswith("started")]) == 3


async def test_a_missing_program_is_named(tmp_path: pathlib.Path) -> None:
    spec = Spec("x", "no-such-program", (), FileReady(tmp_path / "x"))
    running = Supervisor([spec], tmp_path, lambda _: None)
    with pytest.raises(supervisor.StackError, match="no-such-program is missing"):
        await running.run()


async def test_processes_learn_their_own_environment(tmp_path: pathlib.Path) -> None:
    ready = tmp_path / "seen"
    script = 'echo "$WORD" >$0 && exec sleep 1000'
    spec = Spec("a", "/bin/sh", ("-c", script, str(ready)), FileReady(ready), (), {"WORD": "hi"})
    async with supervised(tmp_path, spec) as (running, _):
        async with asyncio.timeout(60):
            await running.ready.wait()
        assert ready.read_text() == "hi\n"


async def test_the_end_of_the_supervisors_process_ends_its_children(
    tmp_path: pathlib.Path,
) -> None:
    """A supervisor that is killed cannot stop anybody: the kernel does."""
    prefix = await asyncio.to_thread(supervisor.death_signal)
    program = ["/bin/sh", "-c", f"{' '.join(prefix)} sleep 1000 & echo $!; wait"]
    parent = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    await waiting.until(lambda: b"sleep" in _command(child), "exec of the child")
    parent.kill()
    await parent.wait()
    await waiting.until(lambda: not _command(child), "end of the child")


def _command(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:6]
    except OSError:
        return b""


def test_last_lines_of_a_missing_log_say_so(tmp_path: pathlib.Path) -> None:
    assert supervisor.last_lines(tmp_path / "x") == "(no log: No such file or directory)"
