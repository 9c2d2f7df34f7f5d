"""The life of volumes at a CSI driver, each call timed: made, copied, used, grown, removed.

Whose driver it is does not matter; it is asked over its socket by a client in this process, so
the figures hold what gRPC costs on both sides. Node calls need root and are left out without it.
"""

import asyncio
import functools
import os
import pathlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from support import localdriver
from support.localdriver import Client, Use

AT_ONCE = 50
"""Calls in flight where calls per second are measured."""

HELD = 60.0
"""Seconds in which a device without users goes, on a machine where containers start."""

Call = Callable[[], Awaitable[object]]
Figures = dict[str, list[float]]
"""Milliseconds of each call by kind of call; of ``creates/s`` and ``deletes/s`` the rate."""


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of volume: what its class says, how it is used, its bytes."""

    name: str
    parameters: Mapping[str, str]
    want: v1.VolumeCapability
    size: int

    def request(
        self, name: str, source: v1.Snapshot | v1.Volume | None = None
    ) -> v1.CreateVolumeRequest:
        """Return the request for a volume."""
        return localdriver.create_request(
            name, size=self.size, want=[self.want], parameters=self.parameters, source=source
        )


async def timed(calls: Iterable[Call]) -> list[float]:
    """Make calls one after the other; return the milliseconds of each."""
    taken = []
    for call in calls:
        started = time.perf_counter()
        await call()
        taken.append(1000 * (time.perf_counter() - started))
    return taken


async def per_second(calls: Sequence[Call]) -> list[float]:
    """Make calls, ``AT_ONCE`` at a time; return how many a second."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def through(call: Call) -> None:
        async with gate:
            await call()

    started = time.perf_counter()
    await asyncio.gather(*map(through, calls))
    return [len(calls) / (time.perf_counter() - started)]


class Life:
    """``count`` volumes of a sort at a driver; ``prefix`` tells their names from others'."""

    def __init__(
        self, client: Client, home: pathlib.Path, sort: Sort, count: int, prefix: str
    ) -> None:
        self._client = client
        self._home = home
        self._sort = sort
        self._count = count
        self._prefix = prefix

    async def measure(self) -> Figures:
        """Make every call of their lives, one at a time; then create and delete many at once."""
        made = [self._create(f"a{number}") for number in range(self._count)]
        figures: Figures = {"create": await timed(made)}
        volumes = [await again() for again in made]  # the same requests find the same volumes
        figures |= await self._copies(volumes)
        if os.geteuid() == 0:
            figures |= await self._whole()
            figures |= await self._use(volumes)
        figures["delete"] = await timed(map(self._delete, volumes))
        burst = [self._create(f"b{number}") for number in range(self._count * 10)]
        figures["creates/s"] = await per_second(burst)
        volumes = [await again() for again in burst]
        figures["deletes/s"] = await per_second([self._delete(volume) for volume in volumes])
        return figures

    def _create(
        self, name: str, source: v1.Snapshot | v1.Volume | None = None
    ) -> Callable[[], Awaitable[v1.Volume]]:
        request = self._sort.request(f"{self._prefix}-{name}", source)
        return lambda: self._client.create(request)

    def _delete(self, volume: v1.Volume) -> Call:
        return functools.partial(self._client.delete, volume.volume_id)

    async def _copies(self, volumes: Sequence[v1.Volume]) -> Figures:
        """Take a snapshot of each volume, restore and clone it, expand the copies; all goes."""
        taken: list[v1.Snapshot] = []
        made: list[v1.Volume] = []

        async def snapshot(volume: v1.Volume) -> None:
            taken.append(await self._client.snapshot(f"s-{volume.volume_id}", volume.volume_id))

        async def copy(create: Callable[[], Awaitable[v1.Volume]]) -> None:
            made.append(await create())

        def expand(volume: v1.Volume) -> Call:
            return lambda: self._client.expand(volume.volume_id, 2 * self._sort.size)

        figures: Figures = {}
        figures["snapshot"] = await timed(functools.partial(snapshot, one) for one in volumes)
        restores = [self._create(f"r{number}", one) for number, one in enumerate(taken)]
        figures["restore"] = await timed(functools.partial(copy, one) for one in restores)
        clones = [self._create(f"c{number}", one) for number, one in enumerate(volumes)]
        figures["clone"] = await timed(functools.partial(copy, one) for one in clones)
        figures["expand"] = await timed(map(expand, made))
        for one in made:
            await self._client.delete(one.volume_id)
        for kept in taken:
            await self._client.delete_snapshot(kept.snapshot_id)
        return figures

    async def _use(self, volumes: Sequence[v1.Volume]) -> Figures:
        uses = [Use(self._client, self._home, volume, self._sort.want) for volume in volumes]
        return {
            "first stage": await timed(use.stage for use in uses),
            "publish": await timed(use.publish for use in uses),
            "unpublish": await timed(use.unpublish for use in uses),
            "unstage": await timed(use.unstage for use in uses),
        }

    async def _whole(self) -> Figures:
        """From CreateVolume to the volume at a pod's path, as one figure."""
        uses: list[Use] = []

        async def whole(create: Callable[[], Awaitable[v1.Volume]]) -> None:
            use = Use(self._client, self._home, await create(), self._sort.want)
            await use.stage()
            await use.publish()
            uses.append(use)

        calls = [functools.partial(whole, self._create(f"w{n}")) for n in range(self._count)]
        figures = {"create+stage+publish": await timed(calls)}
        for use in uses:
            await use.unpublish()
            await use.unstage()
            await self._until_deleted(use.volume_id)
        return figures

    async def _until_deleted(self, volume_id: str) -> None:
        """Delete a volume whose device another program, that just starts, may hold a moment."""
        async with asyncio.timeout(HELD):
            while True:
                try:
                    return await self._client.delete(volume_id)
                except RpcError as error:
                    if error.code is not Code.FAILED_PRECONDITION:
                        raise
                    await asyncio.sleep(0.1)
