"""What is put right without being asked: at the start, and every few seconds after.

At the start: what a crash cut off is taken apart, and after a reboot everything is, since no
namespace outlived it; links of ours that no entry knows (a lost journal) are removed.
Later: intents of the shim, and entries whose removal failed before.
"""

import asyncio
from collections.abc import Iterable

from bitts.core import logs
from bitts.net import links
from bitts.net.errors import NetlinkError

from cni_daemon import scene, sweeping
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.intents import Intents
from cni_daemon.journal import Loaded
from cni_daemon.names import ALIAS
from cni_daemon.operations import DeleteLink
from cni_daemon.records import Entry, Key, Phase

INTERVAL = 5.0
"""Seconds between rounds."""

_AT_ONCE = 16


class Upkeep:
    """Keeps the journal, the kernel and the intents in line."""

    def __init__(self, engine: Engine, intents: Intents) -> None:
        self._engine = engine
        self._intents = intents
        self._stuck: dict[Key, Entry] = {}
        self._log = logs.get("upkeep")

    async def recover(self, loaded: Loaded) -> None:
        """Put right what was found at the start; what cannot be is tried again later."""
        for problem in loaded.damaged:
            self._log.error("The journal is damaged, a record is lost", problem=problem)
        broken = [
            entry
            for entry in loaded.entries.values()
            if entry.phase is not Phase.DONE or not loaded.is_from_this_boot
        ]
        if broken:
            self._log.info(
                "Taking apart what was cut off",
                entries=len(broken),
                rebooted=not loaded.is_from_this_boot,
            )
        await self._unwind(broken)
        await asyncio.to_thread(self._sweep)

    async def run(self) -> None:
        """Go round until cancelled."""
        while True:
            try:
                await self._intents.round()
            except OSError as error:
                self._log.warning("Cannot read the intents", err=error)
            await self._repair()
            await asyncio.sleep(INTERVAL)

    async def _repair(self) -> None:
        """Take apart entries that have been stuck in one phase for a whole round."""
        stuck = {
            entry.key: entry
            for entry in self._engine.attacher.journal.entries()
            if entry.phase is not Phase.DONE
        }
        for entry in stuck.values():
            if self._stuck.get(entry.key) == entry:
                try:
                    await self._engine.repair(entry)
                except (OperationError, OSError) as error:
                    self._log.error("Cannot take apart", attachment=str(entry.key), err=error)
        self._stuck = stuck

    async def _unwind(self, entries: Iterable[Entry]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(entry: Entry) -> None:
            async with limit:
                try:
                    await self._engine.unwind(entry)
                except (OperationError, OSError) as error:
                    self._log.error("Cannot take apart", attachment=str(entry.key), err=error)

        async with asyncio.TaskGroup() as tasks:
            for entry in entries:
                tasks.create_task(one(entry), name="unwind")

    def _sweep(self) -> None:
        """Remove links and elements that are ours and that no entry of the journal would remove."""
        entries = self._engine.attacher.journal.entries()
        known = {
            operation.name
            for entry in entries
            for operation in entry.undo
            if isinstance(operation, DeleteLink)
        }
        channel = scene.host_route()
        for reply in channel.dump(links.every()):
            link = links.decode(reply)
            if link.alias.startswith(ALIAS) and link.name not in known:
                self._log.warning(
                    "Removing a link that nobody owns", link=link.name, is_for=link.alias
                )
                channel.attempt([links.delete(index=link.index)])
        try:
            sweeping.remove_stale(scene.host_netfilter(), entries)
        except NetlinkError as error:
            self._log.error("Cannot sweep sets", err=error)
