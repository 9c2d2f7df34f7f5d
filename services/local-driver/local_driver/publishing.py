"""What a node call means for the mounts there are. Pure: mounts in, verdict or refusal out.

NodePublishVolume's rules (CSI spec, "Node Service RPC"): the same again is fine; the same
target with other options is ALREADY_EXISTS; a second target of a single-writer volume is
FAILED_PRECONDITION.
"""

import pathlib
from collections.abc import Sequence

from bitts.rpc.codes import Code, RpcError

from local_driver.mountflags import MountFlags
from local_driver.mounts import Mount
from local_driver.volumes import AccessMode


def is_staged(
    path: pathlib.Path, top: Mount | None, own: Sequence[Mount], *, read_only: bool
) -> bool:
    """Whether the volume is mounted at its staging path already.

    ``top`` is what is mounted there, ``own`` are all mounts of the volume. Raises RpcError
    when something else is in the way, or the volume is there with other options.
    """
    if top is None:
        return False
    if top not in own:
        raise _precondition(f"staging_target_path: {path} has a mount of {top.source}: unmount it")
    if top.is_read_only and not read_only:
        raise RpcError(
            Code.ALREADY_EXISTS, f"staging_target_path: the volume is mounted read-only at {path}"
        )
    return True


def is_published(
    target: pathlib.Path,
    staging: pathlib.Path,
    top: Mount | None,
    own: Sequence[Mount],
    mode: AccessMode,
    *,
    read_only: bool,
) -> bool:
    """Whether the volume is at its target already, as it is asked for.

    Raises RpcError when it is there otherwise, or may not be there beside where it is.
    """
    if top is not None and top not in own:
        raise _precondition(f"target_path: {target} has a mount of {top.source}: unmount it")
    elsewhere = [mount.point for mount in own if mount.point not in {str(target), str(staging)}]
    if mode is AccessMode.SINGLE_NODE_SINGLE_WRITER and elsewhere:
        raise _precondition(
            f"volume_capability.access_mode: {mode} allows one target, and the volume is "
            f"published at {elsewhere[0]}"
        )
    if top is None:
        return False
    if top.is_read_only != read_only:
        is_now = "read-only" if top.is_read_only else "writable"
        raise RpcError(Code.ALREADY_EXISTS, f"target_path: the volume is {is_now} at {target}")
    return True


def require_options(field: str, top: Mount, flags: MountFlags) -> None:
    """Refuse a mount that is there already without the options; raises RpcError ALREADY_EXISTS."""
    absent = flags.absent_from(top.options)
    if absent:
        raise RpcError(
            Code.ALREADY_EXISTS,
            f"{field}: the volume is mounted at {top.point} without {', '.join(absent)}",
        )


def _precondition(text: str) -> RpcError:
    return RpcError(Code.FAILED_PRECONDITION, text)
