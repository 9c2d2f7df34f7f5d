"""What a model of a local-driver knows of its volumes, and the calls by which they are used."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from bitts.csi import v1

from support import localdriver
from support.localdriver import Client, Use

IDLE, ATTACHED, STAGED, PUBLISHED = range(4)
"""How deep in use a volume is."""


@dataclass
class Kept:
    """What the model knows of a volume or a snapshot."""

    message: v1.Volume | v1.Snapshot
    backend: str
    size: int
    data: bytes
    use: Use | None = None
    depth: int = IDLE
    limits: dict[str, str] = field(default_factory=dict)

    @property
    def volume_id(self) -> str:
        """Of a volume only."""
        assert isinstance(self.message, v1.Volume)
        return self.message.volume_id

    @property
    def can_be_copied(self) -> bool:
        """Whether nobody who uses it is in the way."""
        return self.depth < STAGED or self.backend == "btrfs"


@dataclass
class Group:
    """What the model knows of a group of snapshots."""

    group_id: str
    members: list[Kept]


UNCONNECTED = cast(Client, None)
"""Whoever uses a volume says through which connection."""


def want(backend: str) -> v1.VolumeCapability:
    """Return how volumes of a backend are used: images as raw devices."""
    return localdriver.block_capability() if backend == "image" else localdriver.capability()


async def attach(kept: Kept, client: Client) -> None:
    """ControllerPublishVolume."""
    request = v1.ControllerPublishVolumeRequest(
        volume_id=kept.volume_id, node_id=localdriver.NODE, volume_capability=want(kept.backend)
    )
    await client.controller.controller_publish_volume(request, timeout=20)


async def detach(kept: Kept, client: Client) -> None:
    """ControllerUnpublishVolume."""
    request = v1.ControllerUnpublishVolumeRequest(
        volume_id=kept.volume_id, node_id=localdriver.NODE
    )
    await client.controller.controller_unpublish_volume(request, timeout=20)


def used(kept: Kept, client: Client) -> Use:
    """Return a volume's use through a connection."""
    assert kept.use is not None
    return kept.use.on(client)


UP: dict[int, Callable[[Kept, Client], Awaitable[object]]] = {
    IDLE: attach,
    ATTACHED: lambda kept, client: used(kept, client).stage(),
    STAGED: lambda kept, client: used(kept, client).publish(),
}
DOWN: dict[int, Callable[[Kept, Client], Awaitable[object]]] = {
    PUBLISHED: lambda kept, client: used(kept, client).unpublish(),
    STAGED: lambda kept, client: used(kept, client).unstage(),
    ATTACHED: detach,
}
