"""Telling users what happened, as Events on their objects, without ever being in the way.

``emit`` takes no time and cannot fail; a task of its own writes, in the late lane of the
pacing, so that no write that a user waits for stands behind an event. What is written is
decided by ``bursts`` (what is overtaken or too much) and ``correlation`` (what repeats).

The objects are core/v1 Events exactly as Kubernetes' own recorder writes them.
"""

import asyncio
import collections
import contextlib
import dataclasses
import datetime as dt
import functools
import re
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Literal

from bitts.core import backoff, logs
from bitts.kube import bursts, correlation, errors, kinds, objects, patches
from bitts.kube import client as clients

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"
LIMIT = 4096
_ATTEMPTS = 12
_RETRY_INTERVAL = 10.0
_LONGEST_MESSAGE = 1024
_SUBDOMAIN = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)

_log = logs.get("kube.events")

Ref = objects.ObjectReference


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """Counts since the start: for introspection and metrics."""

    emitted: int
    written: int
    superseded: int
    folded: int
    counted_only: int
    dropped: int
    failed: int
    waiting: int


class EventRecorder:
    """Records events of one component; ``run`` must run for anything to be written."""

    def __init__(
        self,
        client: clients.Client,
        component: str,
        *,
        supersedes: Mapping[str, Collection[str]] | None = None,
        limit: int = LIMIT,
        hold: float = bursts.HOLD,
        retry_interval: float = _RETRY_INTERVAL,
    ) -> None:
        """``supersedes`` maps a reason to the Normal reasons that it makes pointless:
        those are held back for ``hold`` seconds.
        """
        self._client = client
        self._component = component
        self._bursts = bursts.Bursts(supersedes or {}, limit=limit, hold=hold)
        self._correlator = correlation.Correlator()
        self._retry_interval = retry_interval
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._counts: collections.Counter[str] = collections.Counter()
        self._last_nanos = 0
        self._refused = False

    def emit(
        self,
        regarding: Ref,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        summary_on: Ref | None = None,
    ) -> None:
        """Record that something happened to an object. Never blocks, never raises.

        In a burst, Normal events that name a ``summary_on`` are summed up there.
        """
        text = message.encode()[:_LONGEST_MESSAGE].decode(errors="ignore")
        report = correlation.Report(regarding, type, reason, text, _stamp(), summary_on)
        self._counts["emitted"] += 1
        self._bursts.add(report, time.monotonic())
        self._wake.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            self._wake.clear()
            if not await self._write_next(drain=False):
                await self._wait()

    async def flush(self, deadline: float) -> None:
        """Write all that is waiting, for at most ``deadline`` seconds; the rest is lost."""
        try:
            async with asyncio.timeout(deadline):
                while await self._write_next(drain=True):
                    pass
        except TimeoutError:
            _log.warning("Events were left unwritten", count=len(self._bursts))

    def figures(self) -> Figures:
        """What became of the events so far."""
        return Figures(
            emitted=self._counts["emitted"],
            written=self._counts["written"],
            superseded=self._bursts.superseded,
            folded=self._bursts.folded,
            counted_only=self._counts["counted_only"],
            dropped=self._bursts.dropped,
            failed=self._counts["failed"],
            waiting=len(self._bursts),
        )

    async def _wait(self) -> None:
        due = self._bursts.next_due()
        delay = None if due is None else max(0.0, due - time.monotonic())
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _write_next(self, *, drain: bool) -> bool:
        """Write one event; whether there was one."""
        async with self._writing:
            now = time.monotonic()
            found = self._bursts.take(now, drain=drain)
            if found is None:
                return False
            if isinstance(found, bursts.Summary):
                report = found.report
                write: correlation.Write | None = self._correlator.continue_series(
                    found.series, report, report.message, found.count
                )
            else:
                write = self._correlator.correlate(found, now)
            if write is None:
                self._counts["counted_only"] += 1
            else:
                await self._write(write, attempts=1 if drain else _ATTEMPTS)
            return True

    async def _write(self, write: correlation.Write, *, attempts: int) -> None:
        """Send one write; lost connections are retried, refusals are not."""
        name = write.name or self._name(write.report.regarding.name)
        for attempt in range(1, attempts + 1):
            try:
                await self._send(write, name)
            except errors.TransportError as error:
                _log.at(2).info("Event not written yet", err=error, attempt=attempt)
                if attempt < attempts:
                    half = self._retry_interval / 2
                    first = attempt == 1  # anywhere in the interval: not all recorders at once
                    await asyncio.sleep(backoff.spread(half, 1) if first else 2 * half)
            except errors.ApiError as error:
                self._counts["failed"] += 1
                self._tell_refusal(error, write)
                return
            else:
                self._counts["written"] += 1
                self._correlator.written(write, name)
                return
        self._counts["failed"] += 1

    async def _send(self, write: correlation.Write, name: str) -> None:
        namespace = write.report.regarding.namespace or "default"
        if write.name:
            change = patches.merge(_changes(write))
            try:
                await self._client.patch(kinds.EVENTS, name, change, namespace, priority="late")
                return
            except errors.NotFound:
                pass  # events live for an hour: make it anew under its name
        body = _body(write, name, namespace, self._component)
        # If the answer to the first attempt was lost, the second finds its own event.
        with contextlib.suppress(errors.AlreadyExists):
            await self._client.create(kinds.EVENTS, body, namespace, priority="late")

    def _name(self, about: str) -> str:
        # Two events of one object in one clock tick would have one name.
        self._last_nanos = max(time.time_ns(), self._last_nanos + 1)
        name = f"{about}.{self._last_nanos:x}"
        return name if _SUBDOMAIN.fullmatch(name) else str(uuid.uuid4())

    def _tell_refusal(self, error: errors.ApiError, write: correlation.Write) -> None:
        regarding = write.report.regarding
        if isinstance(error, errors.Forbidden) and not self._refused:
            self._refused = True
            _log.warning("Events are refused: grant create and patch on events", err=error)
        _log.at(2).info(
            "Event refused",
            err=error,
            object=f"{regarding.kind} {regarding.key}",
            reason=write.report.reason,
        )


def _stamp() -> str:
    return _stamp_of(int(time.time()))


@functools.lru_cache(maxsize=1)
def _stamp_of(second: int) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _changes(write: correlation.Write) -> dict[str, Any]:
    return {
        "count": write.count,
        "lastTimestamp": write.report.stamp,
        "message": write.message,
    }


def _body(write: correlation.Write, name: str, namespace: str, component: str) -> dict[str, Any]:
    regarding = write.report.regarding
    about = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
        "resourceVersion": regarding.resource_version,
        "fieldPath": regarding.field_path,
    }
    return {
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {key: value for key, value in about.items() if value},
        "type": write.report.type,
        "reason": write.report.reason,
        "firstTimestamp": write.first_stamp,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        **_changes(write),
    }
