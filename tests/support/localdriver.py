"""A local-driver of a test's own, without a cluster: started, asked over gRPC, killed, restarted.

Everything is real: the process, the socket, files, mounts and loop devices. ``Harness.close``
takes away what a failed test left mounted.
"""

import asyncio
import contextlib
import copy
import pathlib
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from bitts.csi import v1
from bitts.rpc import channel

from support import cluster, leaks, processes, waiting

Mode = v1.VolumeCapabilityAccessModeMode
TIMEOUT = 20.0
NODE = "node-1"
SEGMENTS = {"topology.local.csi.bitts.dev/node": NODE}
MIB = 1 << 20
LINGERING = 20.0
"""Seconds in which what nobody uses any more vanishes from the kernel."""


class Client:
    """The driver's services over one connection."""

    def __init__(self, opened: channel.Channel) -> None:
        self.channel = opened
        self.identity = v1.IdentityStub(opened)
        self.controller = v1.ControllerStub(opened)
        self.groups = v1.GroupControllerStub(opened)
        self.node = v1.NodeStub(opened)

    async def create(self, request: v1.CreateVolumeRequest) -> v1.Volume:
        """Create a volume and return it."""
        reply = await self.controller.create_volume(request, timeout=TIMEOUT)
        assert reply.volume is not None
        return reply.volume

    async def delete(self, volume_id: str) -> None:
        """Delete a volume."""
        request = v1.DeleteVolumeRequest(volume_id=volume_id)
        await self.controller.delete_volume(request, timeout=TIMEOUT)

    async def snapshot(self, name: str, volume_id: str, **parameters: str) -> v1.Snapshot:
        """Take a snapshot and return it."""
        request = v1.CreateSnapshotRequest(
            name=name, source_volume_id=volume_id, parameters=parameters
        )
        reply = await self.controller.create_snapshot(request, timeout=TIMEOUT)
        assert reply.snapshot is not None
        return reply.snapshot

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete a snapshot."""
        request = v1.DeleteSnapshotRequest(snapshot_id=snapshot_id)
        await self.controller.delete_snapshot(request, timeout=TIMEOUT)

    async def list_snapshots(self, **filters: object) -> list[v1.Snapshot]:
        """Return all snapshots that pass the filters of a ListSnapshotsRequest."""
        request = v1.ListSnapshotsRequest(**filters)  # type: ignore[arg-type]
        reply = await self.controller.list_snapshots(request, timeout=TIMEOUT)
        return [entry.snapshot for entry in reply.entries if entry.snapshot is not None]

    async def snapshot_group(self, name: str, volume_ids: Sequence[str]) -> v1.VolumeGroupSnapshot:
        """Take snapshots of several volumes and return the group."""
        request = v1.CreateVolumeGroupSnapshotRequest(name=name, source_volume_ids=list(volume_ids))
        reply = await self.groups.create_volume_group_snapshot(request, timeout=TIMEOUT)
        assert reply.group_snapshot is not None
        return reply.group_snapshot

    async def delete_group(self, group_id: str, snapshot_ids: Sequence[str] = ()) -> None:
        """Delete a group and its snapshots."""
        request = v1.DeleteVolumeGroupSnapshotRequest(
            group_snapshot_id=group_id, snapshot_ids=list(snapshot_ids)
        )
        await self.groups.delete_volume_group_snapshot(request, timeout=TIMEOUT)

    async def expand(self, volume_id: str, size: int, limit: int = 0) -> bool:
        """Expand a volume; return whether the node has to do its part."""
        sizes = v1.CapacityRange(required_bytes=size, limit_bytes=limit)
        request = v1.ControllerExpandVolumeRequest(volume_id=volume_id, capacity_range=sizes)
        reply = await self.controller.controller_expand_volume(request, timeout=TIMEOUT)
        assert reply.capacity_bytes >= size
        return reply.node_expansion_required

    async def list_ids(self) -> list[str]:
        """Return the IDs of all volumes, in the driver's order."""
        reply = await self.controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
        return [entry.volume.volume_id for entry in reply.entries if entry.volume is not None]


class Use:
    """One volume at its staging path and target: the four node calls with fewer words."""

    def __init__(
        self, client: Client, home: pathlib.Path, volume: v1.Volume, want: v1.VolumeCapability
    ) -> None:
        self.volume_id = volume.volume_id
        self.staging = home / "staging" / volume.volume_id
        self.target = home / "targets" / volume.volume_id
        self._client = client
        self._want = want
        self._context = volume.volume_context
        self.staging.mkdir(parents=True, exist_ok=True)
        self.target.parent.mkdir(exist_ok=True)

    def on(self, client: Client) -> "Use":
        """Go on with another connection, after a restart."""
        self._client = client
        return self

    def wanting(self, want: v1.VolumeCapability) -> "Use":
        """Return the same place, used in another way."""
        other = copy.copy(self)
        other._want = want
        return other

    async def stage(self) -> None:
        """NodeStageVolume."""
        request = v1.NodeStageVolumeRequest(
            volume_id=self.volume_id,
            staging_target_path=str(self.staging),
            volume_capability=self._want,
            volume_context=self._context,
        )
        await self._client.node.node_stage_volume(request, timeout=TIMEOUT)

    async def publish(
        self, target: pathlib.Path | None = None, *, readonly: bool = False
    ) -> pathlib.Path:
        """NodePublishVolume; returns the target."""
        request = v1.NodePublishVolumeRequest(
            volume_id=self.volume_id,
            staging_target_path=str(self.staging),
            target_path=str(target or self.target),
            volume_capability=self._want,
            readonly=readonly,
        )
        await self._client.node.node_publish_volume(request, timeout=TIMEOUT)
        return target or self.target

    async def expand(self, size: int, path: pathlib.Path | None = None) -> int:
        """NodeExpandVolume at the target; returns the size reached."""
        request = v1.NodeExpandVolumeRequest(
            volume_id=self.volume_id,
            volume_path=str(path or self.target),
            capacity_range=v1.CapacityRange(required_bytes=size),
            staging_target_path=str(self.staging),
            volume_capability=self._want,
        )
        reply = await self._client.node.node_expand_volume(request, timeout=TIMEOUT)
        return reply.capacity_bytes

    async def total(self) -> int:
        """The bytes that NodeGetVolumeStats finds at the target."""
        request = v1.NodeGetVolumeStatsRequest(
            volume_id=self.volume_id, volume_path=str(self.target)
        )
        reply = await self._client.node.node_get_volume_stats(request, timeout=TIMEOUT)
        return next(one.total for one in reply.usage if one.unit is v1.VolumeUsageUnit.BYTES)

    async def unpublish(self, target: pathlib.Path | None = None) -> None:
        """NodeUnpublishVolume."""
        request = v1.NodeUnpublishVolumeRequest(
            volume_id=self.volume_id, target_path=str(target or self.target)
        )
        await self._client.node.node_unpublish_volume(request, timeout=TIMEOUT)

    async def unstage(self) -> None:
        """NodeUnstageVolume."""
        request = v1.NodeUnstageVolumeRequest(
            volume_id=self.volume_id, staging_target_path=str(self.staging)
        )
        await self._client.node.node_unstage_volume(request, timeout=TIMEOUT)


class Harness:
    """Starts drivers on one state directory, one after the other."""

    def __init__(self, home: pathlib.Path, spawner: processes.Processes) -> None:
        self.home = home
        self.state = home / "state"
        self.socket = home / "csi.sock"
        self._spawner = spawner
        self.process: processes.Process | None = None

    async def start(
        self,
        *words: str,
        as_user: int = 0,
        without: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> processes.Process:
        """Start the driver and wait for its socket; earlier ones must have ended.

        ``without`` is a capability that it does not get, such as ``sys_resource``.
        """
        program = [processes.script("local-driver")]
        if as_user:
            ids = [f"--reuid={as_user}", f"--regid={as_user}", "--clear-groups"]
            program = ["/usr/bin/setpriv", *ids, "--", *program]
        if without:
            program = ["/usr/bin/setpriv", f"--bounding-set=-{without}", "--", *program]
        command = [
            *program,
            f"--endpoint=unix://{self.socket}",
            f"--state-dir={self.state}",
            f"--node-id={NODE}",
            *words,
        ]
        self.socket.unlink(missing_ok=True)
        self.process = self._spawner.spawn(command, environ=environ)
        await self.process.wait_ready(lambda: cluster.accepts(self.socket), "socket")
        return self.process

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect to the driver."""
        opened = channel.Channel(str(self.socket))
        try:
            await opened.connect(TIMEOUT)
            yield Client(opened)
        finally:
            await opened.close()

    async def faults(self, *commands: str) -> list[str]:
        """Send commands to the fault socket (``faults.sock``); return the lines of all answers."""
        return await command_faults(self.home / "faults.sock", *commands)

    def content(self) -> list[str]:
        """Return what lies in the state directory, metadata and content, as relative names."""
        folders = ("volumes", "snapshots", "groups", "directory", "image", "btrfs")
        found = [path for name in folders for path in (self.state / name).glob("*")]
        return sorted(str(path.relative_to(self.state)) for path in found)

    def leaked(self) -> list[str]:
        """Return what the kernel still holds of ours; other tests' mounts are not our business.

        Blocks for a while: a mount namespace that another program is just making, or ending,
        holds copies of all mounts.
        """
        deadline = time.monotonic() + LINGERING
        while True:
            found = [
                line for line in (*leaks.mounts(), *leaks.loop_devices()) if f"{self.home}/" in line
            ]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def close(self) -> None:
        """Unmount and detach whatever of ours is left."""
        mounted = [line for line in leaks.mounts() if line.startswith(f"{self.home}/")]
        for line in reversed(mounted):
            subprocess.run(["umount", "-l", line.rpartition(" (")[0]], check=False)
        for line in leaks.loop_devices():
            device, _, backing = line.partition(" ")
            if backing.startswith(f"{self.home}/"):
                subprocess.run(["losetup", "-d", f"/dev/{device}"], check=False)


@contextlib.asynccontextmanager
async def running(
    home: pathlib.Path, spawner: processes.Processes, *words: str
) -> AsyncIterator[Harness]:
    """Start a driver in a folder; at the end, stop the one that runs there by then."""
    made = Harness(home, spawner)
    await made.start(*words)
    yield made
    assert made.process is not None
    if made.process.alive:
        await made.process.stop()


@contextlib.contextmanager
def disk(home: pathlib.Path, make: Sequence[str], options: str = "loop") -> Iterator[None]:
    """Have a new file system of 512 MiB at a driver's state directory; blocks.

    ``make`` formats it. Raises CalledProcessError where this kernel cannot mount it so.
    """
    image, state = home / "disk", home / "state"
    state.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(512 * MIB)
    subprocess.run([*make, image], check=True)
    subprocess.run(["mount", "-o", options, image, state], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", state], check=True)


async def command_faults(path: pathlib.Path, *commands: str) -> list[str]:
    """Send commands to a driver's fault socket; return the lines of all answers."""
    await waiting.until(lambda: cluster.accepts(path), "fault socket")
    reader, writer = await asyncio.open_unix_connection(path)
    lines: list[str] = []
    for command in commands:
        writer.write(f"{command}\n".encode())
        while (line := (await reader.readline()).decode().rstrip("\n")) != "ok":
            assert not line.startswith("error"), line
            lines.append(line)
    writer.close()
    await writer.wait_closed()
    return lines


def capability(
    *, mode: Mode = Mode.SINGLE_NODE_WRITER, fs_type: str = "", flags: Sequence[str] = ()
) -> v1.VolumeCapability:
    """Return a capability to mount."""
    mount = v1.VolumeCapabilityMountVolume(fs_type=fs_type, mount_flags=list(flags))
    return v1.VolumeCapability(mount=mount, access_mode=v1.VolumeCapabilityAccessMode(mode=mode))


def block_capability(mode: Mode = Mode.SINGLE_NODE_WRITER) -> v1.VolumeCapability:
    """Return a capability to use the raw device."""
    return v1.VolumeCapability(
        block=v1.VolumeCapabilityBlockVolume(),
        access_mode=v1.VolumeCapabilityAccessMode(mode=mode),
    )


def create_request(
    name: str,
    *,
    size: int = 8 * MIB,
    limit: int = 0,
    want: Sequence[v1.VolumeCapability] = (),
    parameters: Mapping[str, str] | None = None,
    source: v1.Snapshot | v1.Volume | None = None,
    requisite: Sequence[Mapping[str, str]] = (),
) -> v1.CreateVolumeRequest:
    """Return a CreateVolume request as the provisioner would send it."""
    topology = [v1.Topology(segments=dict(item)) for item in requisite]
    return v1.CreateVolumeRequest(
        name=name,
        capacity_range=v1.CapacityRange(required_bytes=size, limit_bytes=limit),
        volume_capabilities=list(want) or [capability()],
        parameters=dict(parameters or {}),
        volume_content_source=_content_source(source),
        accessibility_requirements=v1.TopologyRequirement(requisite=topology, preferred=topology)
        if topology
        else None,
    )


def _content_source(source: v1.Snapshot | v1.Volume | None) -> v1.VolumeContentSource | None:
    match source:
        case v1.Snapshot():
            kept = v1.VolumeContentSourceSnapshotSource(snapshot_id=source.snapshot_id)
            return v1.VolumeContentSource(snapshot=kept)
        case v1.Volume():
            other = v1.VolumeContentSourceVolumeSource(volume_id=source.volume_id)
            return v1.VolumeContentSource(volume=other)
        case _:
            return None
