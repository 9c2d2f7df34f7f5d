"""Attachments whose container is gone although we were not told: they are released.

A DEL was lost, or somebody else carried it out (the reference plugins, on a node that moves
back to them). A port that stays published would lead the next container's callers astray. It is
certain where a link of the host was the container's: the namespace is gone from its path, and
with the namespace the link; both twice in a row, since a DEL may be under way.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence

from bitts.cni.attachments import Attachment
from bitts.core import logs
from bitts.net import links
from bitts.net.errors import NetlinkError

from cni_daemon import scene
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.model import Place
from cni_daemon.operations import DeleteLink
from cni_daemon.records import Entry, Phase
from cni_daemon.tally import Event, Tally

Name = tuple[str, Attachment]
"""A network, and who is attached to it."""


def grouped(entries: Iterable[Entry]) -> Mapping[Name, Sequence[Entry]]:
    """Return what stands, by attachment (pure): a list has an entry for each of its plugins."""
    found: dict[Name, list[Entry]] = {}
    for entry in entries:
        if entry.phase is Phase.DONE and entry.netns:
            key = entry.key
            name = key.network, Attachment(key.container_id, key.ifname)
            found.setdefault(name, []).append(entry)
    return found


def host_links(entries: Iterable[Entry]) -> Sequence[int]:
    """Return the indexes of links of the host that go with an attachment (pure)."""
    return [
        each.index
        for entry in entries
        for each in entry.undo
        if isinstance(each, DeleteLink) and each.place == Place.HOST and each.index
    ]


class Deserted:
    """Looks once a round."""

    def __init__(self, engine: Engine, tally: Tally) -> None:
        self._engine = engine
        self._tally = tally
        self._missed: frozenset[Name] = frozenset()
        self._log = logs.get("deserted")

    async def round(self) -> None:
        """Release what was deserted the last time already."""
        standing = grouped(self._engine.attacher.journal.entries())
        found = await asyncio.to_thread(_deserted, standing)
        for name in found & self._missed:
            await self._release(standing[name])
        self._missed = found - self._missed

    async def _release(self, entries: Sequence[Entry]) -> None:
        first = entries[0]
        self._log.warning("Releasing what no container has", attachment=str(first.key))
        try:
            for entry in reversed(entries):
                await self._engine.undisturbed(entry, self._engine.unwind)
        except (OperationError, OSError) as error:
            self._log.error("Cannot release", attachment=str(first.key), err=error)
        else:
            self._tally.event(Event.ORPHANED)


def _deserted(standing: Mapping[Name, Sequence[Entry]]) -> frozenset[Name]:
    return frozenset(name for name, entries in standing.items() if _is_deserted(entries))


def _is_deserted(entries: Sequence[Entry]) -> bool:
    if any(map(_is_there, entries)):
        return False
    indexes = host_links(entries)
    return bool(indexes) and not any(map(_exists, indexes))


def _is_there(entry: Entry) -> bool:
    try:
        found = os.stat(entry.netns)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):  # it may well be
        return True
    return entry.identity is None or entry.identity == (found.st_dev, found.st_ino)


def _exists(index: int) -> bool:
    try:
        scene.host_route().query(links.get(index=index), "looking for a container's link")
    except NetlinkError as error:
        return not error.is_missing
    return True
