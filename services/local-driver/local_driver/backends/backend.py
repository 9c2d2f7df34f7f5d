"""What keeps volumes: the interface of a backend.

A backend makes and removes content and shows it at a path. It decides nothing about requests
and records nothing; what exists and what is mounted it asks of the disk and of the kernel, so
there is no state to lose. Its methods block: call them in a thread.
"""

import contextlib
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bitts.csi import v1

from local_driver import filesystems, mountflags, mounts, steps
from local_driver.creation import Offer
from local_driver.volumes import Capability, Content, Volume


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a volume: ``reason`` is a CamelCase word, ``message`` for people."""

    status: v1.VolumeHealthErrorType
    reason: str
    message: str


class UnavailableError(Exception):
    """A backend cannot work on this node; says why and what to do."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a backend lives, and whom it tells of its steps."""

    state: pathlib.Path
    pool_size: int = 0
    """Bytes of the btrfs that is made where the state directory is on none; 0: none is made."""
    reached: steps.Reached = steps.unobserved


class Backend(Protocol):
    """One way of keeping volumes. Errors are OSError, or RpcError where said."""

    folder: pathlib.Path
    """Holds all content; its entries are flushed when a volume is made."""

    offer: Offer

    is_limiting: bool
    """Whether volumes cannot grow beyond their capacity."""

    needs_growing: bool
    """Whether the node has work to do after a volume got a larger size."""

    copies_at_once: bool
    """Whether a copy takes an instant, whatever its size."""

    has_devices: bool
    """Whether each volume in use has a block device of its own."""

    stops_writers: bool
    """Whether held_still() keeps writers waiting, so that several volumes share an instant."""

    settles_late: bool
    """Whether empty content reaches the disk by settle() only, and adopt() replaces it if not."""

    def create(self, volume: Volume) -> None:
        """Make empty content, in place of any rubbish under the same ID."""
        ...

    def settle(self, serial: int) -> None:
        """Have all content on the disk; all up to volume ``serial`` is made. Raises OSError."""
        ...

    def held_still(
        self, volume: Volume, *, with_others: bool, loose: bool
    ) -> contextlib.AbstractContextManager[float | None]:
        """Have the volume's content stay as it is for the length of the block, even in use.

        Yields when the block must be done (monotonic seconds), None for no limit. ``loose``
        accepts a copy that is not of one instant; ``with_others`` asks that writers really
        wait, for several volumes' common instant. Raises RpcError FAILED_PRECONDITION when
        that cannot be, OSError.
        """
        ...

    def copy(self, source_id: str, volume: Volume, deadline: float | None) -> None:
        """Make a new volume's content of a volume's or a snapshot's, in place of any rubbish.

        Raises what held_still()'s deadline asks for, OSError.
        """
        ...

    def keep(self, source_id: str, snapshot_id: str, deadline: float | None) -> None:
        """Make a snapshot's content of a volume's; as copy()."""
        ...

    def is_written(self, volume_id: str) -> bool:
        """Whether somebody may be writing to the volume right now."""
        ...

    def usage(self, volume: Volume, path: pathlib.Path) -> filesystems.Usage:
        """Say how full the volume is that is mounted at ``path``."""
        ...

    def remove(self, volume_id: str) -> None:
        """Remove content that nothing holds for good; missing content is fine."""
        ...

    def findings(self, volume: Volume, *, on_node: bool) -> list[Finding]:
        """Look at a volume's content; ``on_node`` also at its device. Empty: all is well."""
        ...

    def devices(self, volume_id: str) -> list[str]:
        """Return the numbers ("major:minor") of the devices that show the volume."""
        ...

    def contents(self) -> set[str]:
        """Return the IDs of all content."""
        ...

    def sightings(self, volume_id: str, table: mounts.Table | None = None) -> list[mounts.Mount]:
        """Return every mount of the volume: staged, published, or a part of it elsewhere.

        ``table`` is what is mounted; without it, the kernel is asked.
        """
        ...

    def is_at(self, volume_id: str, path: pathlib.Path) -> bool:
        """Whether one sees the volume at ``path``, where that can be told without sightings()."""
        ...

    def in_use(self, volume_id: str) -> str:
        """Say what holds the volume; empty when nothing does."""
        ...

    def prepare(self, volume: Volume, capability: Capability) -> Content:
        """Make content ready for its first use; return what has to be recorded before that.

        Raises RpcError FAILED_PRECONDITION when its content is of another kind.
        """
        ...

    def show(self, volume: Volume, path: pathlib.Path, flags: mountflags.MountFlags) -> None:
        """Mount the volume at ``path``; raises RpcError for options that it cannot follow."""
        ...

    def device(self, volume: Volume, *, read_only: bool) -> pathlib.Path:
        """Return the block device that shows the volume, attached now where needed."""
        ...

    def resize(self, volume: Volume) -> None:
        """Give content the size that ``volume`` has now; doing it again is fine."""
        ...

    def adopt(self, volumes: Sequence[Volume]) -> Mapping[str, OSError]:
        """Make content agree with the records, where a crash came in between.

        Called once, at the start. Returns what is wrong, by volume ID.
        """
        ...

    def grow(self, volume: Volume) -> None:
        """Have the node see the size: the device, and the file system in it, where mounted."""
        ...

    def release(self, volume_id: str) -> None:
        """Detach devices that no mount shows any longer."""
        ...
