"""The least that a btrfs volume can cost: the kernel's calls alone, without a driver.

The same system calls as local-driver makes, on the same disk, by one thread that nobody asks over
gRPC: what a subvolume, a snapshot and a bind mount take, and a record that survives lost power.
What ours takes beyond that is the driver's own.
"""

import asyncio
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterable

from local_driver import filesystems, mountflags, mounts, subvolumes
from local_driver.backends import directory

from bench.volumelife import Figures

_RECORD = b"x" * 400
"""As long as a volume's record."""


class Floor:
    """Volumes made by hand in ``pool``, a btrfs, with their records in ``home``; needs root."""

    def __init__(self, pool: pathlib.Path, home: pathlib.Path, size: int) -> None:
        self._pool = pool
        self._records = home / "floor"
        self._size = size
        self._records.mkdir(exist_ok=True)

    async def measure(self, count: int) -> Figures:
        """Make ``count`` volumes and all that is measured of them; nothing is left."""
        return await asyncio.to_thread(self._measure, count)

    async def snapshot(self, source: pathlib.Path, name: str) -> float:
        """Return the milliseconds of a snapshot of a subvolume, which stays."""
        return await asyncio.to_thread(self._snapshot_alone, source, name)

    def _measure(self, count: int) -> Figures:
        names = [f"floor-{number}" for number in range(count)]
        figures: Figures = {
            "create": _timed(self._create, names),
            "first stage": _timed(functools.partial(self._show, kind="staging"), names),
            "publish": _timed(functools.partial(self._show, kind="target"), names),
            "snapshot": _timed(self._snapshot, names),
        }
        for name in names:
            for kind in ("target", "staging"):
                mounts.unmount(self._records / f"{name}-{kind}")
            subvolumes.remove(self._pool, name)
            subvolumes.remove(self._pool, f"{name}-kept")
        return figures

    def _create(self, name: str) -> None:
        subvolumes.create(self._pool, name, self._size)
        subvolumes.deepen(self._pool / name)
        (self._pool / name).chmod(directory.MODE)
        self._record(name)

    def _show(self, name: str, kind: str) -> None:
        place = self._records / f"{name}-{kind}"
        place.mkdir()
        mounts.bind(self._pool / name, place, mountflags.parse([]))

    def _snapshot(self, name: str) -> None:
        subvolumes.copy(self._pool / name, self._pool, f"{name}-kept", 0, read_only=True)
        self._record(f"{name}-kept")

    def _snapshot_alone(self, source: pathlib.Path, name: str) -> float:
        def take(kept: str) -> None:
            subvolumes.copy(source, self._pool, kept, 0, read_only=True)
            self._record(kept)

        (taken,) = _timed(take, [name])
        return taken

    def _record(self, name: str) -> None:
        """Write a record as the driver does: beside, flushed, renamed, the folder flushed."""
        partial, path = self._records / f"{name}.partial", self._records / f"{name}.json"
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, _RECORD)
            os.fsync(handle)
        finally:
            os.close(handle)
        partial.rename(path)
        filesystems.sync(self._records)


def _timed(work: Callable[[str], None], names: Iterable[str]) -> list[float]:
    taken = []
    for name in names:
        started = time.perf_counter()
        work(name)
        taken.append(1000 * (time.perf_counter() - started))
    return taken
