"""What keeps volumes: the interface of a backend.

A backend makes and removes content and shows it at a path. It decides nothing about requests
and records nothing; what exists and what is mounted it asks of the disk and of the kernel, so
there is no state to lose. Its methods block: call them in a thread.
"""

import pathlib
from dataclasses import dataclass
from typing import Protocol

from local_driver import mountflags, mounts, steps
from local_driver.creation import Offer
from local_driver.volumes import Capability, Content, Volume


@dataclass(frozen=True, slots=True)
class Site:
    """Where a backend lives, and whom it tells of its steps."""

    state: pathlib.Path
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

    def create(self, volume: Volume) -> None:
        """Make empty content, in place of any rubbish under the same ID."""
        ...

    def remove(self, volume_id: str) -> None:
        """Remove content that nothing holds for good; missing content is fine."""
        ...

    def contents(self) -> set[str]:
        """Return the IDs of all content."""
        ...

    def sightings(self, volume_id: str) -> list[mounts.Mount]:
        """Return every mount of the volume: staged, published, or a part of it elsewhere."""
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
        """Give content the size that ``volume`` has now; doing it again is fine.

        Also called for each volume at the start: a crash may have come between a change of
        content and its record, and the record counts.
        """
        ...

    def grow(self, volume: Volume) -> None:
        """Have the node see the size: the device, and the file system in it, where mounted."""
        ...

    def release(self, volume_id: str) -> None:
        """Detach devices that no mount shows any longer."""
        ...
