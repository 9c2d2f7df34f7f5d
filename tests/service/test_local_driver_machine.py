"""Random calls with crashes among them, against a model that knows what must be there.

A call that a crash cuts off may have been done or not; repeated after the restart it must be
done once. Content is written straight into the state directory: what is tested here is what
is kept, and mounts have tests of their own.
"""

import asyncio
import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from local_driver.steps import STEPS_OF
from support import localdriver, processes, waiting
from support.localdriver import MIB, Client, Harness

pytestmark = pytest.mark.root

NAMES = st.sampled_from(["a", "b", "c"])
BACKENDS = st.sampled_from(["directory", "image", "btrfs"])
SIZES = st.sampled_from([2 * MIB, 4 * MIB, 8 * MIB])
RPCS = (
    "CreateVolume",
    "DeleteVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "CreateVolumeGroupSnapshot",
    "DeleteVolumeGroupSnapshot",
    "ControllerExpandVolume",
)
CRASHES = st.sampled_from([(rpc, step) for rpc in RPCS for step in (*STEPS_OF[rpc], "after")])
Work = Callable[[Client], Awaitable[object]]


@dataclass
class Kept:
    """What the model knows of a volume or a snapshot."""

    message: v1.Volume | v1.Snapshot
    backend: str
    size: int
    data: bytes


@dataclass
class Group:
    """What the model knows of a group of snapshots."""

    group_id: str
    members: list[Kept]


class Machine(RuleBasedStateMachine):
    """Volumes, snapshots and groups of three names each, on all backends."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="b-"))
        self.spawner = processes.Processes(self.home / "logs")
        self.harness = Harness(self.home, self.spawner)
        self.volumes: dict[str, Kept] = {}
        self.snapshots: dict[str, Kept] = {}
        self.groups: dict[str, Group] = {}
        self.writes = 0

    @initialize()
    def begin(self) -> None:
        self.runner.run(self.started())

    async def started(self) -> None:
        await self.harness.start(
            "--btrfs-size=256Mi", "--capacity=1Gi", f"--fault-socket={self.home}/faults.sock"
        )

    async def called(self, work: Work) -> object:
        """Make a call, again after a restart if it was cut off by a crash."""
        process = self.harness.process
        assert process is not None
        for _ in range(2):
            try:
                async with self.harness.client() as client:
                    return await work(client)
            except RpcError as error:
                if error.code is not Code.UNAVAILABLE:
                    raise
                await process.wait()
                await self.started()
        raise AssertionError("cut off twice")

    def call(self, work: Work) -> object:
        return self.runner.run(self.called(work))

    def place(self, backend: str, content_id: str) -> pathlib.Path:
        folder = self.harness.state / backend
        return folder / f"{content_id}.img" if backend == "image" else folder / content_id / "data"

    def content(self, backend: str, content_id: str) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return self.place(backend, content_id).read_bytes()[:8].rstrip(b"\0")
        return b""

    @rule(name=NAMES, backend=BACKENDS, size=SIZES)
    def create(self, name: str, backend: str, size: int) -> None:
        if name not in self.volumes:
            self.made(name, backend, size, None, b"")

    def made(
        self,
        name: str,
        backend: str,
        size: int,
        source: v1.Volume | v1.Snapshot | None,
        data: bytes,
    ) -> None:
        want = [localdriver.block_capability()] if backend == "image" else []
        request = localdriver.create_request(
            name, size=size, want=want, parameters={"backend": backend}, source=source
        )
        volume = self.call(lambda client: client.create(request))
        assert isinstance(volume, v1.Volume)
        assert volume.capacity_bytes == size
        self.volumes[name] = Kept(volume, backend, size, data)

    @precondition(lambda self: self.volumes)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        kept = self.volumes[data.draw(st.sampled_from(sorted(self.volumes)))]
        assert isinstance(kept.message, v1.Volume)
        self.writes += 1
        kept.data = f"w{self.writes}".encode()
        place = self.place(kept.backend, kept.message.volume_id)
        with place.open("r+b" if kept.backend == "image" else "wb") as file:
            file.write(kept.data)

    @precondition(lambda self: self.volumes)
    @rule(data=st.data(), name=NAMES)
    def snapshot(self, data: st.DataObject, name: str) -> None:
        if name in self.snapshots:
            return
        kept = self.volumes[data.draw(st.sampled_from(sorted(self.volumes)))]
        assert isinstance(kept.message, v1.Volume)
        volume_id = kept.message.volume_id
        taken = self.call(lambda client: client.snapshot(name, volume_id))
        assert isinstance(taken, v1.Snapshot)
        self.snapshots[name] = Kept(taken, kept.backend, kept.size, kept.data)

    @precondition(lambda self: self.volumes)
    @rule(data=st.data(), name=NAMES)
    def snapshot_group(self, data: st.DataObject, name: str) -> None:
        if name in self.groups:
            return
        names = st.sets(st.sampled_from(sorted(self.volumes)), min_size=1)
        sources = {
            kept.message.volume_id: kept
            for kept in (self.volumes[one] for one in data.draw(names))
            if isinstance(kept.message, v1.Volume)
        }
        taken = self.call(lambda client: client.snapshot_group(name, sorted(sources)))
        assert isinstance(taken, v1.VolumeGroupSnapshot)
        members = {one.source_volume_id: one for one in taken.snapshots}
        assert set(members) == set(sources)
        kept = [
            Kept(members[source_id], source.backend, source.size, source.data)
            for source_id, source in sources.items()
        ]
        self.groups[name] = Group(taken.group_snapshot_id, kept)

    def all_snapshots(self) -> list[Kept]:
        members = [kept for group in self.groups.values() for kept in group.members]
        return [*self.snapshots.values(), *members]

    @precondition(lambda self: self.volumes or self.all_snapshots())
    @rule(data=st.data(), name=NAMES)
    def copy(self, data: st.DataObject, name: str) -> None:
        if name in self.volumes:
            return
        sources = [*self.volumes.values(), *self.all_snapshots()]
        kept = data.draw(st.sampled_from(sources))
        self.made(name, kept.backend, kept.size, kept.message, kept.data)

    @precondition(lambda self: self.volumes)
    @rule(data=st.data())
    def expand(self, data: st.DataObject) -> None:
        kept = self.volumes[data.draw(st.sampled_from(sorted(self.volumes)))]
        assert isinstance(kept.message, v1.Volume)
        volume_id, size = kept.message.volume_id, kept.size + MIB
        self.call(lambda client: client.expand(volume_id, size))
        kept.size = size

    @precondition(lambda self: self.volumes)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        kept = self.volumes.pop(data.draw(st.sampled_from(sorted(self.volumes))))
        assert isinstance(kept.message, v1.Volume)
        volume_id = kept.message.volume_id
        self.call(lambda client: client.delete(volume_id))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def delete_snapshot(self, data: st.DataObject) -> None:
        kept = self.snapshots.pop(data.draw(st.sampled_from(sorted(self.snapshots))))
        assert isinstance(kept.message, v1.Snapshot)
        snapshot_id = kept.message.snapshot_id
        self.call(lambda client: client.delete_snapshot(snapshot_id))

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def delete_group(self, data: st.DataObject) -> None:
        group = self.groups.pop(data.draw(st.sampled_from(sorted(self.groups))))
        self.call(lambda client: client.delete_group(group.group_id))

    @rule(crash=CRASHES)
    def crash_later(self, crash: tuple[str, str]) -> None:
        """Have the next call that comes to this step be the driver's last."""
        self.runner.run(self.harness.faults(f"add {crash[0]}:crash={crash[1]}"))

    @rule()
    def crash(self) -> None:
        assert self.harness.process is not None
        self.harness.process.kill()
        self.runner.run(self.harness.process.wait())
        self.runner.run(self.started())

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if self.harness.process is None:
            return
        listed = self.call(
            lambda client: client.controller.list_volumes(v1.ListVolumesRequest(), timeout=20)
        )
        assert isinstance(listed, v1.ListVolumesResponse)
        sizes = {
            one.volume.volume_id: one.volume.capacity_bytes for one in listed.entries if one.volume
        }
        expected = {}
        for kept in self.volumes.values():
            assert isinstance(kept.message, v1.Volume)
            expected[kept.message.volume_id] = kept.size
            assert self.content(kept.backend, kept.message.volume_id) == kept.data
        assert sizes == expected
        snapshots = self.call(lambda client: client.list_snapshots())
        assert isinstance(snapshots, list)
        kept_ids = []
        for kept in self.all_snapshots():
            assert isinstance(kept.message, v1.Snapshot)
            kept_ids.append(kept.message.snapshot_id)
            assert self.content(kept.backend, kept.message.snapshot_id) == kept.data
        assert sorted(one.snapshot_id for one in snapshots) == sorted(kept_ids)

    def teardown(self) -> None:
        try:
            if self.harness.process is not None:
                self.runner.run(self.ended())
        finally:
            self.spawner.close()
            self.harness.close()
            self.runner.close()
            shutil.rmtree(self.home, ignore_errors=True)

    async def ended(self) -> None:
        """Nothing but what the model knows is on the disk, and all of that can go."""
        await self.harness.faults("clear")
        count = 2 * (len(self.volumes) + len(self.snapshots))
        count += sum(1 + len(group.members) for group in self.groups.values())
        await waiting.until(lambda: len(self.harness.content()) == count, "sweep")
        async with self.harness.client() as client:
            for kept in (*self.volumes.values(), *self.snapshots.values()):
                if isinstance(kept.message, v1.Volume):
                    await client.delete(kept.message.volume_id)
                else:
                    await client.delete_snapshot(kept.message.snapshot_id)
            for group in self.groups.values():
                await client.delete_group(group.group_id)
        assert self.harness.content() == []
        assert self.harness.process is not None
        assert await self.harness.process.stop() == 0
        assert self.harness.leaked() == []


@pytest.mark.slow
def test_whatever_comes_and_wherever_it_dies_each_thing_is_whole_or_absent() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=5,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
