"""What a new volume starts with: a snapshot's content, or another volume's. Pure rules."""

import dataclasses
from dataclasses import dataclass

from bitts.rpc.codes import Code, RpcError

from local_driver.snapshots import Snapshot
from local_driver.volumes import AccessType, Content, Volume, Wish


@dataclass(frozen=True, slots=True)
class Origin:
    """Content to copy. ``volume`` is set where it is a volume's, which may be in use."""

    content_id: str
    backend: str
    size: int
    filesystem: str
    content: Content
    volume: Volume | None = None


def of_volume(volume: Volume) -> Origin:
    """Return a volume as an origin."""
    return Origin(
        volume.volume_id,
        volume.backend,
        volume.capacity,
        volume.filesystem,
        volume.content,
        volume,
    )


def of_snapshot(snapshot: Snapshot) -> Origin:
    """Return a snapshot as an origin."""
    return Origin(
        snapshot.snapshot_id,
        snapshot.backend,
        snapshot.size,
        snapshot.filesystem,
        snapshot.content,
    )


def inherited(wish: Wish, origin: Origin) -> Wish:
    """Return the wish with what it leaves open taken from its origin.

    Raises RpcError INVALID_ARGUMENT or OUT_OF_RANGE, naming the field, where the two disagree.
    """
    source = f"volume_content_source: {origin.content_id}"
    if wish.parameters.backend != origin.backend:
        raise _invalid(
            f"parameters['backend']: {wish.parameters.backend}, and {source} is kept by "
            f"{origin.backend}: choose a StorageClass with that backend"
        )
    if AccessType.MOUNT in wish.access and origin.content is Content.RAW:
        raise _invalid(
            f"volume_capabilities: {source} was used as a raw device; it can become a raw volume"
        )
    if wish.required and wish.required < origin.size:
        raise _out_of_range(f"required_bytes {wish.required}: {source} has {origin.size} bytes")
    if wish.limit and wish.limit < origin.size:
        raise _out_of_range(f"limit_bytes {wish.limit}: {source} has {origin.size} bytes")
    parameters = wish.parameters
    if not parameters.filesystem:
        parameters = dataclasses.replace(parameters, filesystem=origin.filesystem)
    return dataclasses.replace(
        wish, required=max(wish.required, origin.size), parameters=parameters
    )


def check_filesystem(filesystem: str, origin: Origin) -> None:
    """Refuse another file system than the copied one; raises RpcError INVALID_ARGUMENT."""
    if filesystem and origin.filesystem and filesystem != origin.filesystem:
        raise _invalid(
            f"fs_type: {filesystem!r}, and volume_content_source {origin.content_id} has "
            f"{origin.filesystem}"
        )


def _invalid(text: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, text)


def _out_of_range(text: str) -> RpcError:
    return RpcError(Code.OUT_OF_RANGE, f"capacity_range.{text}")
