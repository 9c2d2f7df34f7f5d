"""The network demo: attach, talk, publish a port, be limited, outlive the daemon, and go."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping

from rich.console import Console

from bitts_console import demo_run, progress
from bitts_console.network import node, plan, traffic
from bitts_console.verify import Verdict

SERVER, CLIENT = "server", "client"
LOOPBACK = "127.0.0.1"
PROGRAMS = ("unshare", "nsenter", "sleep", "ip", "nft")
RUNTIME: Mapping[str, Mapping[str, object]] = {SERVER: plan.published(), CLIENT: {}}
"""What the runtime asks for each container."""

INTENT_TIMEOUT = 10.0
POLL = 0.02


class NetworkDemoError(Exception):
    """The demo cannot run, or saw something wrong; the message lists it."""


def check_abilities() -> None:
    """Raise NetworkDemoError where this user or machine cannot run it."""
    if os.geteuid() != 0:
        raise NetworkDemoError("--network makes network namespaces: run it as root")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise NetworkDemoError(f"--network needs {', '.join(missing)}: see debian-packages.txt")


async def run(console: Console) -> None:
    """Run the demo on a node of its own. Raises NetworkDemoError, NodeError, TrafficError."""
    check_abilities()
    await demo_run.sweep_stale()
    with progress.Board(console) as board:
        board.phase("start a node, two containers and the daemon")
        async with node.opened((SERVER, CLIENT)) as made:
            await _Demo(made, board).run()
            board.phase("end the daemon and the namespaces")
    console.print()
    console.print(progress.timings(board.phases))
    console.print(
        "\nOK: two containers were connected, reached and limited, the daemon was killed in "
        "between, and nothing is left.",
        style="bold green",
        soft_wrap=True,
    )


class _Demo:
    def __init__(self, made: node.Node, board: progress.Board) -> None:
        self._node = made
        self._board = board
        self._addresses: dict[str, str] = {}

    async def run(self) -> None:
        self._board.phase("attach")
        for name in RUNTIME:
            await self._attach(name)
        await self._talk()
        await self._lose_daemon()
        self._board.phase("detach")
        await self._detach(SERVER)
        self._board.phase("look for traces")
        self._judge(await self._traces())

    async def _attach(self, name: str) -> None:
        answer = await self._node.call("ADD", name, RUNTIME[name])
        if answer.failed:
            raise NetworkDemoError(f"ADD of {name}: {answer.document.get('msg')}")
        self._addresses[name] = plan.address(answer.document)
        took = f"{self._addresses[name]}, {answer.seconds * 1000:.1f} ms"
        self._board.state("container", name, "attached", took)

    async def _detach(self, name: str) -> None:
        answer = await self._node.call("DEL", name, RUNTIME[name])
        if answer.failed:
            raise NetworkDemoError(f"DEL of {name}: {answer.document.get('msg')}")
        self._board.state("container", name, "detached", f"{answer.seconds * 1000:.1f} ms")

    async def _talk(self) -> None:
        server, client = (self._node.containers[name] for name in (SERVER, CLIENT))
        self._board.phase("ping")
        await self._ping("ping")
        self._board.phase("reach a published port, measure the limit")
        async with (
            traffic.serving(server, plan.PORT, SERVER),
            traffic.serving(client, plan.PORT, CLIENT),
        ):
            found = await traffic.fetch(self._node.namespace, LOOPBACK, plan.HOST_PORT, 0)
            self._judge(plan.port_mapping(found, SERVER))
            addresses = self._addresses
            limited = await traffic.fetch(server, addresses[CLIENT], plan.PORT, plan.SIZE)
            free = await traffic.fetch(client, addresses[SERVER], plan.PORT, plan.SIZE)
            self._judge(plan.bandwidth(limited, free))

    async def _ping(self, subject: str) -> None:
        there = self._addresses[SERVER]
        seconds = await traffic.ping(self._node.containers[CLIENT], there)
        text = f"{SERVER} ({there}) answers {CLIENT} after {seconds * 1000:.2f} ms"
        self._judge(Verdict(subject, text, ok=True))

    async def _lose_daemon(self) -> None:
        """Kill the daemon; containers talk on and may end, and a new one finishes their end."""
        self._board.phase("kill the daemon")
        await self._node.kill_daemon()
        await self._ping("daemon away")
        self._judge(plan.refused((await self._node.call("ADD", CLIENT, {})).document.get("code")))
        await self._detach(CLIENT)
        left = await asyncio.to_thread(self._node.requests_left)
        self._board.note(f"{len(left)} addresses and requests wait for the daemon")
        self._board.phase("start it again")
        await self._node.start_daemon()
        gone = self._addresses[CLIENT]
        deadline = time.monotonic() + INTENT_TIMEOUT
        while (left := await asyncio.to_thread(self._node.requests_left)) != [
            self._addresses[SERVER]
        ]:
            if time.monotonic() > deadline:
                raise NetworkDemoError(f"the end of {CLIENT} is not finished: {', '.join(left)}")
            await asyncio.sleep(POLL)
        text = f"what {CLIENT} had is free again, {gone} too"
        self._judge(Verdict("daemon back", text, ok=True))

    async def _traces(self) -> Verdict:
        space = self._node.namespace
        links = json.loads(await self._node.inside(space, "ip", "-j", "-d", "link", "show"))
        rules = json.loads(await self._node.inside(space, "nft", "-j", "list", "ruleset"))
        return plan.traces(links, rules, await asyncio.to_thread(self._node.requests_left))

    def _judge(self, verdict: Verdict) -> None:
        word = "verified" if verdict.ok else "WRONG"
        self._board.note(f"{word}: {verdict.subject}: {verdict.text}", is_trouble=not verdict.ok)
        if not verdict.ok:
            raise NetworkDemoError(f"{verdict.subject}: {verdict.text}")
