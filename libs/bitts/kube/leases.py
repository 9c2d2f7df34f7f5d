"""Leader election on a Lease: one replica works, the others are ready to.

Wire-compatible with client-go. Expiry is measured from when *we* saw the record change, on
our own clock, never by comparing clocks of two machines. A leader renews optimistically (one
write, no read); who cannot renew in time must stop at once, which here is an exception that
ends the process. A leader that is asked to stop finishes its work first, still renewing, and
then gives the Lease back, so that the next one need not wait for its expiry.
"""

import asyncio
import datetime as dt
import os
import pathlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bitts.core import backoff, logs, process
from bitts.kube import client as clients
from bitts.kube import errors, events, kinds
from bitts.kube import leaserecords as records

ElectionError = records.ElectionError
Options = records.Options
sanitise = records.sanitise

_NAMESPACE_FILE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ACQUIRE_JITTER = 1.2
_TOLERANCE = 20.0
_ABANDON_TIMEOUT = 1.0
_LEASES = kinds.LEASES.untyped()


class LeadershipLostError(process.ExitError):
    """The Lease could not be renewed in time: another replica may be working already."""

    def __init__(self, name: str) -> None:
        super().__init__(1, f"leader election lost: the lease {name} could not be renewed in time")


async def own_namespace(file: pathlib.Path = _NAMESPACE_FILE) -> str:
    """Where this process runs: ``$POD_NAMESPACE``, else the service account's, else default."""
    if named := os.environ.get("POD_NAMESPACE", ""):
        return named
    try:
        return (await asyncio.to_thread(file.read_text, encoding="utf-8")).strip() or "default"
    except OSError:
        return "default"


class LeaderElection:
    """Takes part in one election; ``run`` once."""

    def __init__(
        self,
        client: clients.Client,
        options: Options,
        name: str,
        identity: str,
        *,
        recorder: events.EventRecorder | None = None,
        on_status: Callable[[bool], None] | None = None,
        on_slow_path: Callable[[], None] | None = None,
        release: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``name`` and ``identity`` are sanitised here. ``recorder``'s component should be
        ``<name>/<host name>``. ``on_status`` tells whether we lead, at once and at each
        change; ``on_slow_path`` that a renewal needed a read. Raises ElectionError.
        """
        records.validate(options)
        self.name = records.sanitise(name)
        self.identity = records.sanitise(identity)
        self._client = client
        self._options = options
        self._recorder = recorder
        self._on_status = on_status or (lambda _leading: None)
        self._on_slow_path = on_slow_path or (lambda: None)
        self._release_at_end = release
        self._clock = clock
        self._namespace = options.namespace
        self._lease: dict[str, Any] | None = None
        self._observed_at = 0.0
        self._leading = False
        self._log = logs.get("kube.leases").bind(lease=self.name, identity=self.identity)

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self._leading

    @property
    def holder(self) -> str:
        """Who led when we last looked; "" for nobody."""
        return records.holder(self._lease or {})

    def healthy(self) -> bool:
        """Whether all is well: false for a leader that has not renewed for too long.

        That is the lease duration and twenty seconds; followers are always well.
        """
        if not self._leading:
            return True
        return self._clock() - self._observed_at <= self._options.lease_duration + _TOLERANCE

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait until elected, then run ``lead`` until it ends or this is cancelled.

        Raises LeadershipLostError when the Lease could not be renewed; ``lead`` is then
        cancelled without being waited for long.
        """
        self._namespace = self._namespace or await own_namespace()
        self._on_status(False)
        await self._acquire()
        self._change(leading=True)
        work = asyncio.create_task(_awaited(lead), name=f"leading {self.name}")
        renewal = asyncio.create_task(self._renew(), name=f"renewing {self.name}")
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._step_down(work, renewal)
        await work

    async def _step_down(self, work: asyncio.Task[None], renewal: asyncio.Task[None]) -> None:
        lost = renewal.done()
        work.cancel()
        if lost:
            await asyncio.wait({work}, timeout=_ABANDON_TIMEOUT)
        else:
            # While the work comes to its end the lease is still renewed: nobody else starts.
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            lost = renewal.done()
        renewal.cancel()
        await asyncio.wait({renewal})
        if work.done() and not work.cancelled() and (error := work.exception()) is not None:
            self._log.error("The leader's work failed", err=error)
        if not lost and self._release_at_end:
            await self._release()
        self._change(leading=False)
        if lost:
            raise LeadershipLostError(self.name)

    async def _acquire(self) -> None:
        self._log.info("Waiting for leadership", namespace=self._namespace)
        while True:
            if await self._attempt():
                return
            await asyncio.sleep(backoff.jittered(self._options.retry_period, _ACQUIRE_JITTER))

    async def _renew(self) -> None:
        """Renew until that fails for the renew deadline, or somebody else leads."""
        while True:
            await asyncio.sleep(self._options.retry_period)
            try:
                async with asyncio.timeout(self._options.renew_deadline):
                    await self._renew_once()
            except TimeoutError:
                self._log.error("Lease was not renewed in time")
                return
            if not self._holds():
                self._log.error("Lease was taken over", holder=self.holder)
                return

    async def _renew_once(self) -> None:
        while True:
            if await self._attempt() or self.holder not in ("", self.identity):
                return
            await asyncio.sleep(self._options.retry_period)

    async def _attempt(self) -> bool:
        """Try once to acquire or to renew."""
        try:
            if self._lease is not None and self._holds() and self._is_valid(self._lease):
                try:
                    await self._update(self._lease)
                    return True
                except errors.ApiError as error:
                    self._log.at(2).info("Renewal needs a look at the lease", err=error)
                    self._on_slow_path()
            return await self._look_and_take()
        except errors.ApiError as error:
            self._log.error("Lease cannot be acquired or renewed", err=error)
            return False

    async def _look_and_take(self) -> bool:
        try:
            seen = await self._client.get(
                _LEASES, self.name, self._namespace, priority="urgent", timeout=self._timeout
            )
        except errors.NotFound:
            await self._create()
            return True
        if self._lease is None or seen.get("spec") != self._lease.get("spec"):
            self._observe(seen, self._clock())
        elif seen != self._lease:
            self._lease = seen
        if records.holder(seen) and not self._holds() and self._is_valid(seen):
            self._log.at(4).info("Lease is held", holder=records.holder(seen))
            return False
        await self._update(seen)
        return True

    async def _create(self) -> None:
        started = self._clock()
        body = records.created(self.name, self.identity, self._options, _now())
        lease = await self._client.create(
            _LEASES, body, self._namespace, priority="urgent", timeout=self._timeout
        )
        self._observe(lease, started)

    async def _update(self, seen: dict[str, Any]) -> None:
        await self._replace(records.held(seen, self.identity, self._options, _now()))

    async def _replace(self, body: dict[str, Any]) -> None:
        # Our own validity counts from before the request: it may have taken its time.
        started = self._clock()
        lease = await self._client.replace(
            _LEASES, self.name, body, self._namespace, priority="urgent", timeout=self._timeout
        )
        self._observe(lease, started)

    async def _release(self) -> None:
        """Give the Lease back; a renewal that was cut off may still land in between."""
        seen = self._lease
        try:
            async with asyncio.timeout(self._options.renew_deadline):
                while seen is not None and records.holder(seen) == self.identity:
                    try:
                        await self._replace(records.released(seen, _now()))
                        self._log.info("Lease released")
                    except errors.Conflict:
                        seen = await self._client.get(
                            _LEASES, self.name, self._namespace, priority="urgent"
                        )
                    else:
                        return
        except (errors.ApiError, TimeoutError) as error:
            self._log.warning("Lease was not released, it will expire", err=error)

    def _observe(self, lease: dict[str, Any], at: float) -> None:
        self._lease = lease
        self._observed_at = at

    def _holds(self) -> bool:
        return self.holder == self.identity

    def _is_valid(self, lease: dict[str, Any]) -> bool:
        return self._clock() < self._observed_at + records.duration(lease)

    @property
    def _timeout(self) -> float:
        # Two attempts must fit before the leader gives up.
        return self._options.renew_deadline / 2

    def _change(self, *, leading: bool) -> None:
        if leading == self._leading:
            return
        self._leading = leading
        self._on_status(leading)
        text = "became leader" if leading else "stopped leading"
        self._log.info("Leadership changed", leading=leading)
        if self._recorder is not None:
            about = kinds.LEASES.reference(
                self.name, self._namespace, (self._lease or {}).get("metadata", {}).get("uid", "")
            )
            self._recorder.emit(about, events.NORMAL, "LeaderElection", f"{self.identity} {text}")


async def _awaited(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
