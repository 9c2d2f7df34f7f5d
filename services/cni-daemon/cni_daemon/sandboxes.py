"""What the container runtime knows: attachments whose sandbox it has forgotten are released.

A runtime that crashes between making a sandbox and writing it down, or that gives up a failing
DEL, leaves attachments that nobody will ever ask about again. Three things must be true before
one is released: the runtime lists its sandboxes and this one is not among them, its network
namespace is gone (or its path leads to another one by now), and both were so a while ago
already. A runtime that is down, restarts or answers with an error gives no verdict, and
everything said before is forgotten.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from bitts.core import logs
from bitts.net.errors import NamespaceError, NamespaceGone
from bitts.rpc import channel, codes, cri

from cni_daemon import scene
from cni_daemon.engine import Engine
from cni_daemon.executor import OperationError
from cni_daemon.options import RuntimeOptions
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.tally import Event, Tally

TIMEOUT = 10.0
"""Seconds for the runtime to list its sandboxes."""

_RECEIVE_LIMIT = 64 << 20
"""Bytes of a list: a sandbox has a few kilobytes of annotations that are not even read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to release now, and whom to look at again, each with when it was first missed."""

    release: tuple[Entry, ...] = ()
    missed: Mapping[Key, float] = field(default_factory=dict)


def suspects(entries: Iterable[Entry], known: frozenset[str]) -> list[Entry]:
    """Return standing attachments whose sandbox is not listed (pure).

    Those without a namespace belong to callers of the IPAM service, not to sandboxes.
    """
    return [
        each
        for each in entries
        if each.phase is Phase.DONE and each.netns and each.key.container_id not in known
    ]


def decide(
    homeless: Iterable[Entry], missed: Mapping[Key, float], now: float, grace: float
) -> Verdict:
    """Return what is due (pure): ``homeless`` are suspects whose namespace is gone."""
    release: list[Entry] = []
    later: dict[Key, float] = {}
    for entry in homeless:
        since = missed.get(entry.key, now)
        if now - since >= grace:
            release.append(entry)
        else:
            later[entry.key] = since
    return Verdict(tuple(release), later)


class Sandboxes:
    """Asks the runtime at the start and at intervals."""

    def __init__(
        self, options: RuntimeOptions, engine: Engine, tally: Tally,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._options = options
        self._engine = engine
        self._tally = tally
        self._clock = clock
        self._missed: Mapping[Key, float] = {}
        self._was_silent = False
        self._log = logs.get("sandboxes")

    async def run(self) -> None:
        """Go round until cancelled."""
        runtime = channel.Channel(self._options.socket, receive_limit=_RECEIVE_LIMIT)
        try:
            while True:
                await self.round(cri.RuntimeServiceStub(runtime))
                pause = self._options.interval
                await asyncio.sleep(min(pause, self._options.grace) if self._missed else pause)
        finally:
            await runtime.close()

    async def round(self, runtime: cri.RuntimeServiceStub) -> None:
        """Ask once, and release what is due."""
        # Before asking: what is attached meanwhile is not among those that are judged.
        entries = self._engine.attacher.journal.entries()
        try:
            request = cri.ListPodSandboxRequest()
            listed = await runtime.list_pod_sandbox(request, timeout=TIMEOUT)
        except codes.RpcError as error:
            self._missed = {}
            if not self._was_silent:
                self._log.warning("The runtime does not list its sandboxes", err=error)
            self._was_silent = True
            return
        self._was_silent = False
        suspected = suspects(entries, frozenset(each.id for each in listed.items))
        homeless = await asyncio.to_thread(lambda: [e for e in suspected if _is_homeless(e)])
        verdict = decide(homeless, self._missed, self._clock(), self._options.grace)
        self._missed = verdict.missed
        for entry in verdict.release:
            await self._release(entry)

    async def _release(self, entry: Entry) -> None:
        self._log.warning(
            "Releasing what belongs to no sandbox", attachment=str(entry.key), netns=entry.netns
        )
        try:
            if await self._engine.undisturbed(entry, self._engine.unwind):
                self._tally.event(Event.ORPHANED)
        except (OperationError, OSError) as error:
            self._log.error("Cannot release", attachment=str(entry.key), err=error)


def _is_homeless(entry: Entry) -> bool:
    """Say whether an attachment's namespace is gone for certain. Blocks."""
    try:
        with scene.opened(entry.netns, identity=entry.identity):
            return False
    except NamespaceGone:
        return True
    except (NamespaceError, OSError):  # no verdict
        return False
