"""Leases of standing attachments: renewed with their server, then with any, until they end.

What is kept is in the journal, so a restarted daemon carries on where the last one was. A link
whose lease has ended is switched off, as the reference plugin does: to go on with an address
that may be another's by now would be worse.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import replace

from bitts.core import logs
from bitts.core.ledger import Ledger
from bitts.net import links
from bitts.net.errors import NamespaceError, NamespaceGone, NetlinkError
from bitts.net.links import Change, Link

from cni_daemon import scene
from cni_daemon.dhcp import client, leases
from cni_daemon.dhcp.client import DhcpError, RefusedError
from cni_daemon.dhcp.leases import Due, Lease
from cni_daemon.journal import Journal
from cni_daemon.model import Place
from cni_daemon.records import Entry, Key, Phase

LOOP = "leases"
"""Where the ledger keeps what became of the leases of ``network/container``."""

_AGAIN_TIMEOUT = 10.0
"""Seconds to get the same address anew after a server has refused to renew it."""


class Keeping:
    """Keeps leases. Construct and use it on the event loop."""

    def __init__(self, journal: Journal, record: Ledger) -> None:
        self._journal = journal
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._failing: set[Key] = set()
        self._ended = 0
        self._is_closed = False
        self._log = logs.get("dhcp")

    def start(self) -> None:
        """Take up what the journal has, and follow it."""
        _, entries = self._journal.watch(self._told)
        for entry in entries:
            self._follow(entry.key)

    async def close(self) -> None:
        """Let go; leases stay as they are."""
        self._journal.unwatch(self._told)
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_AGAIN_TIMEOUT)

    @property
    def states(self) -> Mapping[str, int]:
        """How many leases are kept, fail to be renewed, and have ended since the start."""
        failing = len(self._failing)
        return {
            "bound": len(self._tasks) - failing,
            "failing": failing,
            "ended": self._ended,
        }

    def _told(self, _revision: int, key: Key, entry: Entry | None) -> None:
        """Hear of a change, in whatever thread makes it."""
        if key in self._tasks or (entry is not None and entry.lease):
            self._loop.call_soon_threadsafe(self._follow, key)

    def _follow(self, key: Key) -> None:
        """Begin or end with an attachment's lease."""
        is_kept = _kept(self._journal.entry(key)) is not None and not self._is_closed
        task = self._tasks.get(key)
        if is_kept and task is None:
            task = asyncio.create_task(self._keep(key), name=f"lease {key.container_id}")
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._over(key, done))
        elif not is_kept and task is not None:
            task.cancel()

    def _over(self, key: Key, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(key, None)
        self._record.finished(LOOP, _name(key))
        self._failing.discard(key)
        if task.cancelled():
            self._follow(key)  # an ADD may have followed the DEL that ended it
        elif task.exception() is not None:
            self._log.error("A lease is kept no longer", attachment=key, err=task.exception())

    async def _keep(self, key: Key) -> None:
        tried = 0.0
        while True:
            entry = self._journal.entry(key)
            lease = _kept(entry)
            if entry is None or lease is None:
                return
            what, pause = leases.due(replace(lease, tried=tried), client.now())
            if what is Due.WAIT:
                self._record.waits(LOOP, _name(key), time.time() + pause)
                await asyncio.sleep(pause)
            elif what is Due.EXPIRE:
                await self._end(entry, lease, "nobody has renewed it")
                return
            elif not await self._renewed(entry, lease, what):
                tried = client.now()

    async def _renewed(self, entry: Entry, lease: Lease, what: Due) -> bool:
        """Try to renew once; returns whether the journal has changed by that."""
        key = entry.key
        try:
            found = await self._ask(entry, lease, what)
        except NamespaceGone:
            await asyncio.to_thread(self._journal.lease, key, {})  # with it, the link is gone
            return True
        except (DhcpError, NamespaceError, NetlinkError, OSError) as error:
            if key not in self._failing:
                self._log.warning("A lease is not renewed", attachment=str(key), err=error)
            self._failing.add(key)
            self._decided(key, f"lease of {lease.address} not renewed", str(what), str(error))
            return False
        if found is None:
            await self._end(entry, lease, "the server has given the address away")
            return True
        self._failing.discard(key)
        self._decided(key, f"lease of {found.address} renewed", f"by {found.server}")
        await asyncio.to_thread(self._journal.lease, key, found.document())
        return True

    async def _ask(self, entry: Entry, lease: Lease, what: Due) -> Lease | None:
        """Return the lease renewed, or None where the address is lost.

        Raises DhcpError, NamespaceError, OSError.
        """
        asking = client.of_lease(lease)
        try:
            opened = await asyncio.to_thread(_bound, entry, lease)
            with contextlib.closing(opened):
                is_late = what is Due.REBIND
                return await client.renew(asking, lease, opened, asks_everybody=is_late)
        except RefusedError as error:
            self._log.warning("A lease is refused", attachment=str(entry.key), err=error)
        raw = await asyncio.to_thread(_raw, entry)
        with contextlib.closing(raw):
            found = await client.acquire(asking, raw, _AGAIN_TIMEOUT, lease.address)
        return found if found.address == lease.address else None

    def _decided(self, key: Key, decision: str, reason: str, error: str = "") -> None:
        """Remember what became of a lease, for whoever asks why."""
        self._record.decided(LOOP, _name(key), decision, reason, error=error)

    async def _end(self, entry: Entry, lease: Lease, reason: str) -> None:
        self._log.error(
            "A lease has ended: its link is switched off",
            attachment=str(entry.key), address=lease.address, reason=reason,
        )  # fmt: skip
        self._ended += 1
        self._decided(entry.key, f"link off: lease of {lease.address} has ended", reason)
        with contextlib.suppress(NamespaceError, NetlinkError, OSError):
            await asyncio.to_thread(_switch_off, entry)
        await asyncio.to_thread(self._journal.lease, entry.key, {})


def _name(key: Key) -> str:
    return f"{key.network}/{key.container_id}"


def _kept(entry: Entry | None) -> Lease | None:
    """Return the lease that has to be kept for an entry."""
    if entry is None or entry.phase is not Phase.DONE or not entry.lease:
        return None
    return leases.from_document(entry.lease)


def _bound(entry: Entry, lease: Lease) -> socket.socket:
    with scene.opened(entry.netns, identity=entry.identity) as where, where.inside(Place.POD):
        return client.bound_socket(entry.key.ifname, lease.address)


def _raw(entry: Entry) -> socket.socket:
    with scene.opened(entry.netns, identity=entry.identity) as where, where.inside(Place.POD):
        return client.raw_socket(entry.key.ifname)


def _switch_off(entry: Entry) -> None:
    with scene.opened(entry.netns, identity=entry.identity) as where:
        channel = where.route(Place.POD)
        found: Link = links.decode(channel.query(links.get(name=entry.key.ifname), "looking"))
        channel.perform([links.change(found.index, Change(cleared=links.UP))])
