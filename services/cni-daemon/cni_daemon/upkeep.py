"""What is put right without being asked: at the start, and every few seconds after.

At the start: what a crash cut off is taken apart, and after a reboot everything is, since no
namespace outlived it; of what no entry knows (a lost journal), what nobody uses is removed.
Later: intents of the shim, entries whose removal failed before or whose container is gone, and
rules and elements that somebody has flushed.
"""

import asyncio
from collections.abc import Iterable

from bitts.core import logs
from bitts.net.errors import NetlinkError

from cni_daemon import callers, relaying, routekeeping, zones
from cni_daemon.deserted import Deserted
from cni_daemon.engine import Engine
from cni_daemon.executor import Executor, OperationError
from cni_daemon.foundations import Foundations
from cni_daemon.intents import Intents
from cni_daemon.journal import Loaded
from cni_daemon.records import Entry, Phase
from cni_daemon.repairing import Repairs
from cni_daemon.routekeeping import Keeper, RouteError
from cni_daemon.tally import Event, Tally

THOROUGH = 12
"""Every so many rounds each element is looked for, not only the sets."""

_AT_ONCE = 16


class Upkeep:
    """Keeps the journal, the kernel and the intents in line."""

    def __init__(
        self, engine: Engine, intents: Intents, executor: Executor, foundations: Foundations,
        keeper: Keeper, repairs: Repairs, tally: Tally, interval: float,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._intents = intents
        self._executor = executor
        self._foundations = foundations
        self._keeper = keeper
        self._repairs = repairs
        self._deserted = Deserted(engine, tally)
        self._tally = tally
        self._interval = interval
        self._rounds = 0
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
        self._tally.event(Event.RECOVERED, await self._unwind(broken))
        await self._sweep()
        await self._relay(thoroughly=True)

    async def _sweep(self) -> None:
        """Remove what no entry of the journal would, and nobody can be using."""
        try:
            count = await asyncio.to_thread(self._engine.strays.sweep)
        except (NetlinkError, OSError) as error:
            self._log.error("Cannot look for what nobody owns", err=error)
        else:
            self._tally.event(Event.SWEPT, count)

    async def run(self) -> None:
        """Go round until cancelled."""
        while True:
            try:
                await asyncio.to_thread(self._intents.round)
            except OSError as error:
                self._log.warning("Cannot read the intents", err=error)
            await self._repairs.round()
            await self._deserted.round()
            if self._engine.strays.is_due:
                await self._sweep()
            await asyncio.sleep(self._interval)
            self._rounds += 1
            await self._relay(thoroughly=self._rounds % THOROUGH == 0)

    async def _relay(self, *, thoroughly: bool) -> None:
        """Put back what somebody has flushed."""
        try:
            await self._put_back(thoroughly=thoroughly)
            await self._put_back_routes()
            await self._put_back_sources()
        except (NetlinkError, OSError) as error:
            self._log.error("Cannot look at the rules", err=error)

    async def _put_back(self, *, thoroughly: bool) -> None:
        entries = self._engine.attacher.journal.entries()
        is_lost = self._executor.was_flushed
        self._executor.was_flushed = False
        known = self._foundations.known

        def are_rules_lost() -> bool:
            is_lost = relaying.has_lost_sets(entries)
            return is_lost or relaying.has_lost_rules(known, thoroughly=thoroughly)

        if await asyncio.to_thread(are_rules_lost):
            self._log.warning("Somebody has flushed our rules, laying them anew")
            await asyncio.to_thread(relaying.lay, self._executor, known)
            is_lost = True
        if not (is_lost or thoroughly):
            return
        restored = 0
        for entry in await asyncio.to_thread(relaying.incomplete, entries):
            restored += await self._engine.undisturbed(entry, self._restore)
        if is_lost or restored:
            self._tally.event(Event.RELAID)
            self._log.warning("Laid elements anew", attachments=restored)

    async def _put_back_sources(self) -> None:
        """Put addresses back into zones of a firewalld that has started anew."""
        entries = await asyncio.to_thread(zones.incomplete, self._engine.attacher.journal.entries())
        if not entries:
            return
        for entry in entries:
            await self._engine.undisturbed(entry, self._restore_sources)
        self._tally.event(Event.RELAID)
        self._log.warning("firewalld had forgotten addresses", attachments=len(entries))

    async def _restore_sources(self, entry: Entry) -> None:
        await asyncio.to_thread(zones.restore, entry)

    async def _put_back_routes(self) -> None:
        """Make routes of callers again that went, for instance with their link."""
        if not any(map(callers.is_route, self._engine.attacher.journal.entries())):
            return
        present = await asyncio.to_thread(routekeeping.held)
        for entry in self._keeper.missing(present):
            await self._engine.undisturbed(entry, self._restore_route)

    async def _restore_route(self, entry: Entry) -> None:
        try:
            await asyncio.to_thread(self._keeper.restore, entry)
        except (RouteError, OperationError) as error:  # as long as its link is away
            self._log.at(2).info("A route has to wait", route=entry.key.ifname, err=error)

    async def _restore(self, entry: Entry) -> None:
        try:
            await asyncio.to_thread(relaying.restore, entry)
        except NetlinkError as error:
            self._log.error("Cannot restore", attachment=str(entry.key), err=error)

    async def _unwind(self, entries: Iterable[Entry]) -> int:
        """Take entries apart; returns how many it was possible for."""
        limit = asyncio.Semaphore(_AT_ONCE)
        count = 0

        async def one(entry: Entry) -> None:
            nonlocal count
            async with limit:
                try:
                    await self._engine.unwind(entry)
                    count += 1
                except (OperationError, OSError) as error:
                    self._log.error("Cannot take apart", attachment=str(entry.key), err=error)

        async with asyncio.TaskGroup() as tasks:
            for entry in entries:
                tasks.create_task(one(entry), name="unwind")
        return count
