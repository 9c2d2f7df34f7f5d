"""Attachments whose removal failed: tried again ever more rarely, and not for ever.

What keeps failing only because a program is missing that would give addresses back is given up
in the end: everything else of the attachment is gone by then, and nobody else will ask.
"""

import time
from dataclasses import dataclass

from bitts.core import logs
from bitts.core.ledger import Ledger

from cni_daemon.delegates import PluginMissingError
from cni_daemon.engine import LOOP, Engine
from cni_daemon.executor import OperationError
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.tally import Event, Tally

LONGEST_PAUSE = 300.0
"""Seconds between two tries, which begin two rounds apart."""

_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class Failure:
    """How often a removal failed, when it is tried again, since when a program is missing."""

    count: int = 0
    retried: float = 0.0
    missing: float | None = None

    def again(self, now: float, pause: float, error: Exception) -> "Failure":
        """Return what it is after one more failure (pure)."""
        is_missing = isinstance(getattr(error, "cause", None), PluginMissingError)
        since = now if self.missing is None else self.missing
        return Failure(self.count + 1, now + pause, since if is_missing else None)

    def is_hopeless(self, now: float, patience: float) -> bool:
        """Say whether a program is taken for gone for good (pure)."""
        return self.missing is not None and now - self.missing >= patience


_NONE = Failure()


def pause(interval: float, count: int) -> float:
    """Return the seconds until the next try after so many failures (pure)."""
    return min(2 * interval * 2.0 ** min(count - 1, _DOUBLINGS), max(LONGEST_PAUSE, 2 * interval))


class Repairs:
    """Looks once a round; ``patience`` is for how many seconds a program may be missing."""

    def __init__(
        self, engine: Engine, record: Ledger, tally: Tally, interval: float, patience: float
    ) -> None:
        self._engine = engine
        self._record = record
        self._tally = tally
        self._interval = interval
        self._patience = patience
        self._failures: dict[Key, Failure] = {}
        self._stuck: dict[Key, Entry] = {}
        self._log = logs.get("repairing")

    async def round(self) -> None:
        """Take apart entries that have been stuck in one phase for a whole round."""
        stuck = {
            entry.key: entry
            for entry in self._engine.attacher.journal.entries()
            if entry.phase is not Phase.DONE
        }
        self._failures = {key: each for key, each in self._failures.items() if key in stuck}
        for entry in stuck.values():
            failure = self._failures.get(entry.key, _NONE)
            if self._stuck.get(entry.key) == entry and time.monotonic() >= failure.retried:
                await self._take_apart(entry, failure)
        self._stuck = stuck

    async def _take_apart(self, entry: Entry, failure: Failure) -> None:
        is_hopeless = failure.is_hopeless(time.monotonic(), self._patience)
        try:
            await self._engine.repair(
                entry, self._engine.abandon if is_hopeless else self._engine.unwind
            )
        except (OperationError, OSError) as error:
            self._failed(entry, error, failure)
        else:
            self._tally.event(Event.ABANDONED if is_hopeless else Event.REPAIRED)

    def _failed(self, entry: Entry, error: Exception, failure: Failure) -> None:
        """Remember what keeps an attachment from going, and when that is tried again."""
        later = pause(self._interval, failure.count + 1)
        failure = failure.again(time.monotonic(), later, error)
        self._failures[entry.key] = failure
        self._log.error(
            "Cannot take apart", attachment=str(entry.key), err=error, tries=failure.count
        )
        key = f"{entry.key.network}/{entry.key.container_id}"
        self._record.decided(
            LOOP, key, f"{entry.key.type} {entry.key.ifname} not removed", "its removal had failed",
            error=str(error),
        )  # fmt: skip
        self._record.retry_at(LOOP, key, time.time() + later, failures=failure.count)
