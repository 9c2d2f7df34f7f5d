"""What the commands do: find folders and abilities, run the work, say how it ended."""

import asyncio
import contextlib
import os
import pathlib
import signal
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

from bitts.csi import driver as drivers
from bitts.kube import config, errors
from bitts.rpc import codes
from rich.console import Console

from bitts_console import (
    abilities,
    cluster,
    demo_run,
    follow,
    leftovers,
    scenario,
    stack,
    state,
    supervisor,
)
from bitts_console import demo as demonstration
from bitts_console import up as ups
from bitts_console.network import demo as networks
from bitts_console.network import node, traffic

EXPECTED = (
    ups.UsageError,
    state.StateError,
    supervisor.StackError,
    cluster.ClusterError,
    scenario.ManifestError,
    leftovers.LeftoverError,
    demonstration.DemoError,
    follow.FollowError,
    networks.NetworkDemoError,
    node.NodeError,
    traffic.TrafficError,
    config.ConfigError,
    errors.ApiError,
    codes.RpcError,
    drivers.DriverError,
)
"""Failures whose message is all a user needs; anything else is our bug and shows a traceback."""


def up(directory: str, *, nodes: int, backend: str, store: str, detach: bool, kind: str) -> None:
    """``bitts up``."""
    folders = state.locate(directory, os.environ, os.geteuid())
    console = Console(highlight=False)
    with explained():
        offered = ups.backends(backend, abilities.find())
        if detach:
            arguments = [f"--dir={folders.state}", f"--nodes={nodes}", f"--backend={backend}"]
            arguments += [f"--store={store}", *(["--kubernetes"] if kind == "kubernetes" else [])]
            ups.up_detached(arguments, folders, console)
            return
        if kind == "kubernetes" and os.geteuid() != 0:
            console.print("Without root there are no nodes: only the control plane is started.")
            nodes = 0
        options = stack.Options(nodes=nodes, backends=offered, store=store, kind=kind)
        run(ups.up(options, folders, console))


def down(directory: str, *, purge: bool) -> None:
    """``bitts down``."""
    folders = state.locate(directory, os.environ, os.geteuid())
    console = Console(highlight=False)
    with explained():
        removed = run(ups.down(folders, purge=purge)) or []
        for line in removed:
            console.print(f"removed {line}", style="dim", markup=False, soft_wrap=True)
        kept = (
            f"; its cluster and volumes stay in {folders.state}" if folders.record.exists() else ""
        )
        console.print(f"The stack is down and nothing runs{kept}.", markup=False, soft_wrap=True)


def demo(
    directory: str, *, use: bool, manifests: pathlib.Path | None, backend: str, timeout: float
) -> None:
    """``bitts demo``."""
    console = Console(highlight=False)
    with explained():
        plan = demonstration.read_manifests(manifests)
        if use:
            folders = state.locate(directory, os.environ, os.geteuid())
            run(demo_run.on_running_stack(plan, folders, console, timeout, backend=backend))
        else:
            run(demo_run.on_own_stack(plan, console, timeout, backend=backend))


def network_demo() -> None:
    """``bitts demo --network``."""
    with explained():
        run(networks.run(Console(highlight=False)))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; Ctrl-C and SIGTERM cancel it, so that it can clean up."""

    async def main() -> Any:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(main())


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn expected failures into one message on stderr and an exit code."""
    try:
        yield
    except EXPECTED as error:
        message = str(error) or type(error).__name__
        Console(stderr=True, highlight=False).print(
            f"bitts: {message}", style="bold red", markup=False, soft_wrap=True
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
