"""Attaching and detaching: who may use a volume where. Pure: a volume in, a volume out.

Nothing moves, as a volume stays on its node; what is recorded is the permission, which the
node asks for before it stages a volume. Errors are those of CSI ControllerPublishVolume.
"""

import dataclasses

from bitts.rpc.codes import Code, RpcError

from local_driver.volumes import Attachment, Volume


def attached(volume: Volume, wanted: Attachment, *, used: int, limit: int) -> Volume:
    """Return the volume attached; the same again is fine.

    ``used`` volumes are attached to the node, of at most ``limit`` (0: any number). Raises
    RpcError NOT_FOUND for another node than the volume's, ALREADY_EXISTS, RESOURCE_EXHAUSTED.
    """
    if wanted.node_id != volume.node:
        raise RpcError(
            Code.NOT_FOUND,
            f"node_id: volume {volume.volume_id} can be attached to node {volume.node!r} only, "
            f"not to {wanted.node_id!r}",
        )
    if wanted in volume.attachments:
        return volume
    if volume.attachments:
        is_now = "read-only" if volume.attachments[0].read_only else "writable"
        raise RpcError(
            Code.ALREADY_EXISTS,
            f"readonly: volume {volume.volume_id} is attached {is_now}: detach it first",
        )
    if limit and used >= limit:
        raise RpcError(
            Code.RESOURCE_EXHAUSTED,
            f"node_id: {used} volumes are attached to {wanted.node_id!r}, its limit is {limit}",
        )
    return dataclasses.replace(volume, attachments=(wanted,))


def detached(volume: Volume, node_id: str) -> Volume:
    """Return the volume detached from a node, or from all for an empty name."""
    kept = tuple(one for one in volume.attachments if node_id not in ("", one.node_id))
    return dataclasses.replace(volume, attachments=kept)


def require(volume: Volume, node_id: str) -> Attachment:
    """Return how a volume may be used on a node; raises RpcError FAILED_PRECONDITION if not."""
    for found in volume.attachments:
        if found.node_id == node_id:
            return found
    raise RpcError(
        Code.FAILED_PRECONDITION,
        f"volume_id: volume {volume.volume_id} is not attached to node {node_id!r}",
    )
