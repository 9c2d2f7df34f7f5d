"""Stages, publishes and takes away CSI volumes, in the kubelet's order and with its paths.

Every call is idempotent by the CSI specification, so anything that was cut off is simply done
again; staging is serialised per volume, and ends with the last pod that uses it.
"""

import asyncio
import collections
import contextlib
import os
import pathlib
import stat
from collections.abc import AsyncIterator, Mapping

from bitts.csi import capabilities, v1
from bitts.csi.driver import Driver
from bitts.kube import cache as caches
from bitts.kube import client as clients
from bitts.kube import errors, objects
from bitts.rpc.codes import RpcError
from bitts.volumes import accessmodes

from devcluster.node import model, mountinfo, names, paths, plugins, records, sandbox, sources
from devcluster.node.model import VolumeError
from devcluster.node.sources import Csi

CALL_TIMEOUT = 120.0  # seconds; as the kubelet allows
ATTACH_CHECK = 10.0  # seconds after which an attachment is looked for without an event
NodeCapability = capabilities.NodeCapability


class Volumes:
    """Mounts for pods what ``sources`` found."""

    def __init__(
        self,
        client: clients.Client,
        node_name: str,
        layout: paths.Layout,
        drivers: plugins.Drivers,
        known: records.Records,
        attachments: caches.Cache[objects.VolumeAttachment],
    ) -> None:
        self._client = client
        self._attachments = attachments
        self._node_name = node_name
        self._layout = layout
        self._drivers = drivers
        self._records = known
        self._locks: collections.Counter[str] = collections.Counter()
        self._lock_of: dict[str, asyncio.Lock] = {}

    async def plan(self, pod: model.Pod, found: list[sources.Source]) -> tuple[model.Mounted, ...]:
        """What the pod is about to get, to be recorded before anything is done."""
        mounted = []
        for one in found:
            if isinstance(one, Csi):
                driver = await self._drivers.use(one.source.driver)
                mounted.append(self._mounted(pod, one, driver))
        return tuple(mounted)

    def _mounted(self, pod: model.Pod, csi: Csi, driver: Driver) -> model.Mounted:
        handle, name, block = csi.source.volume_handle, csi.volume.name, csi.is_block
        stages = NodeCapability.STAGE_UNSTAGE_VOLUME in driver.info.node
        attachment = names.attachment(handle, csi.source.driver, self._node_name)
        unique = names.unique_volume(csi.source.driver, handle)
        return model.Mounted(
            name=csi.name,
            driver=csi.source.driver,
            handle=handle,
            volume=name,
            staging=str(self._layout.staging(csi.source.driver, name, handle, block=block)),
            target=str(self._layout.target(pod.uid, name, block=block)),
            staged=stages,
            unique_name=unique if csi.needs_attach else "",
            attachment=attachment if csi.needs_attach else "",
        )

    async def mount(self, pod: model.Pod, csi: Csi, mounted: model.Mounted) -> None:
        """Attach, stage and publish one volume; raises VolumeError, RpcError."""
        context = self._attached(csi, mounted.attachment) if csi.needs_attach else {}
        driver = await self._drivers.use(csi.source.driver)
        group = (pod.spec.get("securityContext") or {}).get("fsGroup")
        delegated = NodeCapability.VOLUME_MOUNT_GROUP in driver.info.node
        capability = _capability(csi, driver, group if delegated else None)
        await asyncio.to_thread(_make_folders, mounted, block=csi.is_block)
        if mounted.staged:
            ref = csi.source.node_stage_secret_ref
            request = v1.NodeStageVolumeRequest(
                volume_id=mounted.handle,
                publish_context=dict(context),
                staging_target_path=mounted.staging,
                volume_capability=capability,
                secrets=await sources.secret_of(self._client, ref, "nodeStageSecretRef"),
                volume_context=dict(csi.source.volume_attributes),
            )
            async with self._staging(mounted.staging):
                await driver.node.node_stage_volume(request, timeout=CALL_TIMEOUT)
        ref = csi.source.node_publish_secret_ref
        await driver.node.node_publish_volume(
            v1.NodePublishVolumeRequest(
                volume_id=mounted.handle,
                publish_context=dict(context),
                staging_target_path=mounted.staging if mounted.staged else "",
                target_path=mounted.target,
                volume_capability=capability,
                readonly=csi.readonly,
                secrets=await sources.secret_of(self._client, ref, "nodePublishSecretRef"),
                volume_context=_context(pod, csi),
            ),
            timeout=CALL_TIMEOUT,
        )
        if group is not None and not delegated and _owns_by_group(csi):
            await asyncio.to_thread(give_to_group, pathlib.Path(mounted.target), int(group))

    async def unmount(self, uid: str, mounted: model.Mounted) -> None:
        """Unpublish a pod's volume, unstage it if no other pod has it, and take it off the record.

        Raises RpcError, OSError.
        """
        driver = await self._drivers.use(mounted.driver)
        await driver.node.node_unpublish_volume(
            v1.NodeUnpublishVolumeRequest(volume_id=mounted.handle, target_path=mounted.target),
            timeout=CALL_TIMEOUT,
        )
        await asyncio.to_thread(_drop, pathlib.Path(mounted.target))
        async with self._staging(mounted.staging):
            if mounted.staged and not self._records.is_staged_for_others(uid, mounted.staging):
                await self._unstage(driver, mounted)
            # While the next one has to wait: two that go at once would each see the other's.
            await self._records.release(uid, mounted)

    async def _unstage(self, driver: Driver, mounted: model.Mounted) -> None:
        request = v1.NodeUnstageVolumeRequest(
            volume_id=mounted.handle, staging_target_path=mounted.staging
        )
        await driver.node.node_unstage_volume(request, timeout=CALL_TIMEOUT)
        await asyncio.to_thread(_drop, pathlib.Path(mounted.staging))

    def _attached(self, csi: Csi, name: str) -> Mapping[str, str]:
        """The publish context of the attachment to this node; raises VolumeError until then."""
        attachment = self._attachments.get(name)
        if attachment is None:
            text = f'volume "{csi.volume.name}" waits to be attached: no VolumeAttachment yet'
            raise VolumeError(text, wait=ATTACH_CHECK)
        if attachment.status.attached and not attachment.deleting:
            return attachment.status.attachment_metadata
        problem = attachment.status.attach_error
        text = problem.message if problem else "its attacher has not attached it yet"
        raise VolumeError(f'volume "{csi.volume.name}": {text}', wait=ATTACH_CHECK)

    @contextlib.asynccontextmanager
    async def _staging(self, path: str) -> AsyncIterator[None]:
        """Hold a volume's staging; the lock goes with its last user."""
        lock = self._lock_of.setdefault(path, asyncio.Lock())
        self._locks[path] += 1
        try:
            async with lock:
                yield
        finally:
            self._locks[path] -= 1
            if not self._locks[path]:
                del self._locks[path], self._lock_of[path]


def _capability(csi: Csi, driver: Driver, group: int | None) -> v1.VolumeCapability:
    multi = NodeCapability.SINGLE_NODE_MULTI_WRITER in driver.info.node
    modes = csi.volume.spec.access_modes[:1]
    try:
        (mode,) = accessmodes.to_csi(modes or ("ReadWriteOnce",), multi_writer=multi)
    except accessmodes.AccessModeError as error:
        raise VolumeError(f'volume "{csi.volume.name}": {error}') from error
    access = v1.VolumeCapabilityAccessMode(mode=v1.VolumeCapabilityAccessModeMode(int(mode)))
    if csi.is_block:
        return v1.VolumeCapability(block=v1.VolumeCapabilityBlockVolume(), access_mode=access)
    how = v1.VolumeCapabilityMountVolume(
        fs_type=csi.source.fs_type,
        mount_flags=list(csi.volume.spec.mount_options),
        volume_mount_group="" if group is None else str(group),
    )
    return v1.VolumeCapability(mount=how, access_mode=access)


def _context(pod: model.Pod, csi: Csi) -> dict[str, str]:
    context = dict(csi.source.volume_attributes)
    if csi.driver and csi.driver.spec.pod_info_on_mount:
        context |= {
            "csi.storage.k8s.io/pod.name": pod.name,
            "csi.storage.k8s.io/pod.namespace": pod.namespace,
            "csi.storage.k8s.io/pod.uid": pod.uid,
            "csi.storage.k8s.io/serviceAccount.name": pod.spec.get("serviceAccountName", ""),
            "csi.storage.k8s.io/ephemeral": "false",
        }
    return context


def _owns_by_group(csi: Csi) -> bool:
    """Whether files are handed to the pod's fsGroup (CSIDriver.spec.fsGroupPolicy)."""
    if csi.is_block or csi.readonly:
        return False
    policy = csi.driver.spec.fs_group_policy if csi.driver else None
    if policy in {"None", "File"}:
        return policy == "File"
    single = {"ReadWriteOnce", "ReadWriteOncePod"} & set(csi.volume.spec.access_modes)
    return bool(csi.source.fs_type and single)


def give_to_group(root: pathlib.Path, group: int) -> None:
    """Let a group own and write everything below a folder; new files inherit it."""
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                os.lchown(path, -1, group)
                os.chmod(path, stat.S_IMODE(mode) | (0o2770 if stat.S_ISDIR(mode) else 0o660))


def _make_folders(mounted: model.Mounted, *, block: bool) -> None:
    """A driver makes the target itself; its parent and the staging folder are ours to make."""
    pathlib.Path(mounted.staging).mkdir(mode=0o750, parents=True, exist_ok=True)
    pathlib.Path(mounted.target).parent.mkdir(mode=0o750, parents=True, exist_ok=True)


def _drop(path: pathlib.Path) -> None:
    """Remove what a driver left of a mount point; raises OSError if it is still mounted."""
    if mountinfo.below(path):
        raise OSError(f"the driver reported {path} as unmounted, but it is still mounted")
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    with contextlib.suppress(OSError):  # not empty: another pod's
        path.parent.rmdir()


def make_folder(folder: pathlib.Path, source: sources.Folder, group: int | None) -> None:
    """Make an emptyDir, secret or configMap volume; files are replaced one by one."""
    folder.mkdir(mode=0o777, parents=True, exist_ok=True)
    folder.chmod(0o777 if source.plugin == "empty-dir" else 0o755)
    if source.in_memory and str(folder) not in mountinfo.current():
        sandbox.mount("tmpfs", str(folder), "tmpfs", sandbox.NOSUID | sandbox.NODEV, "mode=1777")
    for name, data in source.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(source.mode)
    if group is not None:
        give_to_group(folder, group)


def unmount_ours(pod_folder: pathlib.Path) -> None:
    """Unmount the emptyDirs in memory of a pod; raises OSError."""
    for target in mountinfo.below(pod_folder / "volumes" / "kubernetes.io~empty-dir"):
        sandbox.unmount(target)


Problem = (VolumeError, RpcError, errors.ApiError, OSError)
"""What keeps a volume from being mounted or unmounted, for reasons outside the agent."""
