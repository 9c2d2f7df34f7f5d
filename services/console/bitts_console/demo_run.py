"""The frame of a demo: a stack of its own (or the one that runs), the scenario, the last word."""

import asyncio
import contextlib
import os
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from bitts.csi import driver as drivers
from rich.console import Console

from bitts_console import (
    abilities,
    backends,
    cluster,
    demo,
    leftovers,
    progress,
    running,
    scenario,
    stack,
    state,
    supervisor,
)

STALE = 60.0
"""Seconds after which the folder of a demo that nobody owns is taken for left over."""

DRIVER_TIMEOUT = 10.0

CAPACITY = "16Gi"
"""What the demo's driver may promise: far more than it writes, so that a small disk will do."""


ALL = "all"
"""Stands for each backend that works, one after the other."""


async def on_own_stack(
    plan: scenario.Scenario, console: Console, timeout: float, *, backend: str = ""
) -> None:
    """Run the demo on a stack that lives only for it, and prove that nothing of it is left.

    ``backend`` keeps all claims there; empty: each where its class says. Raises DemoError,
    FollowError or StackError; the folder with the logs then stays.
    """
    able = await asyncio.to_thread(abilities.find)
    await sweep_stale()

    async def once(part: Part) -> None:
        offered = ("directory", "image") if able.images else ("directory",)
        await _on_own_stack(part, (part.backend,) if part.backend else offered, console, timeout)

    await _each(plan, backend, able, able.hindrance_of, console, once)


@dataclass(frozen=True, slots=True)
class Part:
    """One run: what is done on which backend (empty: on several), and what is left out."""

    backend: str
    plan: scenario.Scenario
    omissions: tuple[scenario.Omission, ...]


async def _each(
    plan: scenario.Scenario,
    backend: str,
    able: scenario.Abilities,
    hindrance: Callable[[str], str],
    console: Console,
    once: Callable[[Part], Awaitable[None]],
) -> None:
    """Do ``once`` for every chosen backend; raises DemoError for one that cannot be."""
    if backend != ALL:
        if backend and hindrance(backend):
            raise demo.DemoError(f"--backend {backend}: {hindrance(backend)}")
        await once(_part(plan, backend, able))
        return
    names, missing = backends.working(hindrance)
    tell_omissions(missing, console)
    for name in names:
        await once(_part(plan, name, able))
    left_out = "".join(f"; {one.what[0]} was left out, see above" for one in missing)
    console.print(
        f"\nOK on every backend that works here: {', '.join(names)}{left_out}.",
        style="bold green",
        soft_wrap=True,
    )


def _part(plan: scenario.Scenario, backend: str, able: scenario.Abilities) -> Part:
    kept, unfit = backends.kept_by(backend, plan) if backend else (plan, [])
    restricted, omissions = scenario.restrict(kept, able)
    return Part(backend, restricted, (*unfit, *omissions))


async def _on_own_stack(
    part: Part, offered: tuple[str, ...], console: Console, timeout: float
) -> None:
    tell_plan(part, console)
    home = pathlib.Path(await asyncio.to_thread(tempfile.mkdtemp, "", prefix(), state.TEMPORARY))
    folders = state.Folders(home / "state", home / "run")
    with progress.Board(console) as board:
        board.phase("start the processes")

        def report(notice: supervisor.Notice) -> None:
            word = "ready" if notice.text == "ready" else "starting"
            if notice.is_trouble:
                board.note(f"{notice.name}: {notice.text}", is_trouble=True)
            else:
                board.state("process", notice.name, word)

        async def on_stack(stack_running: running.Running) -> demo.Outcome:
            async with cluster.connect(folders.kubeconfig) as client:
                await cluster.install_driver(client)
                await cluster.await_registration(client)
                async with connected(stack.driver_socket(folders)) as driver:
                    place = demo.Place(client, driver, folders, is_exclusive=True)
                    outcome = await demo.Demo(part.plan, place, board, timeout).run()
            board.phase("stop the processes")
            return outcome

        options = stack.Options(backends=offered, capacity=CAPACITY)
        try:
            outcome = await running.run(options, folders, report, on_stack)
        except asyncio.CancelledError:
            await leftovers.delete(home)
            raise
        except Exception:
            board.note(f"logs: {folders.logs}", is_trouble=True)
            raise
        await _prove_gone(folders, board)
    await leftovers.delete(home)
    tell_end(part, outcome, board, console)


async def on_running_stack(
    plan: scenario.Scenario,
    folders: state.Folders,
    console: Console,
    timeout: float,
    *,
    backend: str = "",
) -> None:
    """Run the demo on the stack of ``bitts up``, which stays as it was before.

    ``backend`` as for on_own_stack(). Raises StateError where none runs, and what ``Demo.run``
    raises.
    """
    record = await asyncio.to_thread(running.read_record, folders)
    if (
        record is None
        or not record["ready"]
        or not await asyncio.to_thread(running.is_owned, folders)
    ):
        raise state.StateError(f"no stack runs in {folders.state}: start one with `bitts up`")
    able = await asyncio.to_thread(abilities.find)
    offered = record["options"]["backends"]
    if "image" not in offered:
        able = replace(able, filesystems=frozenset(), hindrance="the running stack has none")

    def hindrance(name: str) -> str:
        known = ", ".join(offered)
        again = f"start it with `bitts up --backend {name}`"
        return "" if name in offered else f"the running stack offers {known}: {again}"

    async def once(part: Part) -> None:
        tell_plan(part, console)
        with progress.Board(console) as board:
            async with (
                cluster.connect(pathlib.Path(record["kubeconfig"])) as client,
                connected(pathlib.Path(record["driver"]["socket"])) as driver,
            ):
                place = demo.Place(client, driver, folders, is_exclusive=False)
                outcome = await demo.Demo(part.plan, place, board, timeout).run()
        tell_end(part, outcome, board, console)

    await _each(plan, backend, able, hindrance, console, once)


@contextlib.asynccontextmanager
async def connected(socket: pathlib.Path) -> AsyncIterator[drivers.Driver]:
    """Open the driver's CSI socket for looking, beside the sidecars that work on it."""
    driver = await drivers.Driver.connect(f"unix://{socket}", timeout=DRIVER_TIMEOUT)
    try:
        yield driver
    finally:
        await driver.close()


def prefix() -> str:
    """Return how the folders of this user's demos begin."""
    return f"bitts-demo-{os.geteuid()}-"


async def sweep_stale() -> None:
    """Remove what demos that were killed left behind."""
    for home in await asyncio.to_thread(lambda: list(state.TEMPORARY.glob(f"{prefix()}*"))):
        folders = state.Folders(home / "state", home / "run")
        if await asyncio.to_thread(_is_stale, home, folders):
            await running.clear(folders, keep_data=False)
            await leftovers.delete(home)


def _is_stale(home: pathlib.Path, folders: state.Folders) -> bool:
    found = home.lstat()
    old = time.time() - found.st_mtime > STALE
    return found.st_uid == os.geteuid() and old and not running.is_owned(folders)


async def _prove_gone(folders: state.Folders, board: progress.Board) -> None:
    """After the end: no process, mount, loop device or socket.

    Raises DemoError naming what is still there.
    """
    found = await asyncio.to_thread(leftovers.find, [folders.state, folders.runtime])
    left = [line for line in found.lines() if line != f"folder {folders.state}"]
    if left:
        raise demo.DemoError(f"still there after the end: {'; '.join(left)}")
    board.note("verified: end: no process, socket, mount or loop device is left")


def tell_plan(part: Part, console: Console) -> None:
    """Say what is going to happen, and what is not, and why."""
    plan = part.plan
    pods = f"{len(plan.pods)} pods write and read them, " if plan.pods else ""
    console.print(
        f"bitts demo{_on(part)}: {len(plan.claims)} claims become volumes, {pods}all goes again.",
        style="bold",
        soft_wrap=True,
    )
    tell_omissions(part.omissions, console)


def tell_omissions(omissions: Iterable[scenario.Omission], console: Console) -> None:
    """Say what is left out, and why."""
    for omission in omissions:
        console.print(
            f"left out: {', '.join(omission.what)}\n     because {omission.reason}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )


def tell_end(part: Part, outcome: demo.Outcome, board: progress.Board, console: Console) -> None:
    """Print the timings and the one sentence that sums it up."""
    console.print()
    console.print(progress.timings(board.phases))
    data = f", {outcome.pods} pods wrote and read them, the bytes are right" if outcome.pods else ""
    left_out = sum(len(omission.what) for omission in part.omissions)
    partly = f" ({left_out} steps were left out, see above)" if left_out else ""
    console.print(
        f"\nOK: {outcome.claims} claims became volumes{_on(part)}{data}, and nothing is left."
        f"{partly}",
        style="bold green",
        markup=False,
        soft_wrap=True,
    )


def _on(part: Part) -> str:
    return f" on {part.backend}" if part.backend else ""
