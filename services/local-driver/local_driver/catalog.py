"""The volumes in memory: looked up by ID, listed in the order of their making, summed up.

It holds what is on the disk and, beside that, the bytes of volumes that are being made, so
that a hundred requests at once cannot take the same room a hundred times.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bitts.rpc.codes import Code, RpcError

from local_driver.listing import Listing
from local_driver.volumes import Volume


class Catalog:
    """All volumes of this node. ``damaged`` are those whose metadata cannot be read."""

    def __init__(
        self, volumes: Iterable[Volume] = (), damaged: Mapping[str, str] | None = None
    ) -> None:
        self._volumes: Listing[Volume] = Listing(lambda volume: volume.volume_id)
        self._bytes: Counter[str] = Counter()
        self.damaged = dict(damaged or {})
        for volume in volumes:
            self.add(volume)

    def __len__(self) -> int:
        return len(self._volumes)

    @property
    def promised(self) -> int:
        """Bytes of all volumes, made and being made."""
        return self._bytes.total()

    def promised_by(self, backends: Iterable[str]) -> int:
        """Bytes of the volumes of some backends."""
        return sum(self._bytes[backend] for backend in backends)

    def all(self) -> list[Volume]:
        """Return every volume, in the order of their making."""
        return list(self._volumes)

    def get(self, volume_id: str) -> Volume | None:
        """Return a volume.

        Raises RpcError INTERNAL when there is one and its metadata cannot be read.
        """
        damage = self.damaged.get(volume_id)
        if damage:
            raise RpcError(
                Code.INTERNAL,
                f"volume {volume_id}: {damage}: restore the file and restart the driver",
            )
        return self._volumes.get(volume_id)

    def require(self, volume_id: str) -> Volume:
        """Return a volume; raises RpcError NOT_FOUND without one, INTERNAL as get() does."""
        volume = self.get(volume_id)
        if volume is None:
            raise RpcError(
                Code.NOT_FOUND, f"volume_id: there is no volume {volume_id!r} on this node"
            )
        return volume

    def add(self, volume: Volume) -> None:
        """Take in a volume, or what has changed of it."""
        old = self._volumes.get(volume.volume_id)
        self._bytes[volume.backend] += volume.capacity - (old.capacity if old else 0)
        self._volumes.add(volume)

    def discard(self, volume_id: str) -> None:
        """Forget a volume; an unknown one is fine."""
        volume = self._volumes.discard(volume_id)
        if volume is not None:
            self._bytes[volume.backend] -= volume.capacity

    def reserve(self, serial: int) -> None:
        """Give no number up to ``serial`` to a volume: a damaged record's may have it."""
        self._volumes.reserve(serial)

    def take_serial(self) -> int:
        """Return a number that no volume has."""
        return self._volumes.take_serial()

    @contextlib.contextmanager
    def reserved(self, size: int, backend: str) -> Iterator[None]:
        """Count ``size`` bytes as promised while a volume is being made."""
        self._bytes[backend] += size
        try:
            yield
        finally:
            self._bytes[backend] -= size

    def page(self, after: int, limit: int) -> tuple[list[Volume], int | None]:
        """Return a page of volumes, as Listing.page() does."""
        return self._volumes.page(after, limit)
