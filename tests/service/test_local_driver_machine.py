"""Random calls with crashes among them, against a model that knows what must be there.

A call that a crash cuts off may have been done or not; repeated after the restart it must be
done once. Content is written straight into the state directory; volumes are attached, staged
and published by the driver, and what is mounted outlives it. BITTS_MACHINE is how many random
sequences are tried, each four times as long as usual; `make soak` sets it.
"""

import asyncio
import contextlib
import functools
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Awaitable, Callable

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
from local_driver import mounts
from local_driver.steps import STEPS_OF
from support import localdriver, processes, waiting
from support.drivermodel import DOWN, IDLE, PUBLISHED, STAGED, UNCONNECTED, UP, Group, Kept, want
from support.localdriver import MIB, Client, Harness, Use

pytestmark = pytest.mark.root

NAMES = st.sampled_from(["a", "b", "c"])
BACKENDS = st.sampled_from(["directory", "image", "btrfs"])
SIZES = st.sampled_from([2 * MIB, 4 * MIB, 8 * MIB])
CRASHES = st.sampled_from([(rpc, step) for rpc in STEPS_OF for step in (*STEPS_OF[rpc], "after")])
LIMITS = st.sampled_from(["100", "200", "max"])
ROUNDS = int(os.environ.get("BITTS_MACHINE", "0"))
Work = Callable[[Client], Awaitable[object]]


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
            "--btrfs-size=256Mi",
            "--capacity=1Gi",
            "--attach",
            f"--fault-socket={self.home}/faults.sock",
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
        request = localdriver.create_request(
            name, size=size, want=[want(backend)], parameters={"backend": backend}, source=source
        )
        volume = self.call(lambda client: client.create(request))
        assert isinstance(volume, v1.Volume)
        assert volume.capacity_bytes == size
        use = Use(UNCONNECTED, self.home, volume, want(backend))
        self.volumes[name] = Kept(volume, backend, size, data, use)

    def drawn(self, data: st.DataObject, names: list[str]) -> Kept:
        return self.volumes[data.draw(st.sampled_from(sorted(names)))]

    def where(self, check: Callable[[Kept], bool]) -> list[str]:
        return [name for name, kept in self.volumes.items() if check(kept)]

    @precondition(lambda self: self.where(lambda one: one.depth < PUBLISHED))
    @rule(data=st.data(), levels=st.integers(1, 3))
    def use(self, data: st.DataObject, levels: int) -> None:
        """Attach, stage and publish a volume, as far as it goes."""
        kept = self.drawn(data, self.where(lambda one: one.depth < PUBLISHED))
        for _ in range(min(levels, PUBLISHED - kept.depth)):
            self.call(functools.partial(UP[kept.depth], kept))
            kept.depth += 1

    @precondition(lambda self: self.where(lambda one: one.depth > IDLE))
    @rule(data=st.data(), levels=st.integers(1, 3))
    def leave(self, data: st.DataObject, levels: int) -> None:
        """Unpublish, unstage and detach a volume, as far as it goes."""
        kept = self.drawn(data, self.where(lambda one: one.depth > IDLE))
        for _ in range(min(levels, kept.depth)):
            self.call(functools.partial(DOWN[kept.depth], kept))
            kept.depth -= 1

    @precondition(lambda self: self.where(lambda one: one.depth > IDLE))
    @rule(data=st.data())
    def delete_in_use(self, data: st.DataObject) -> None:
        volume_id = self.drawn(data, self.where(lambda one: one.depth > IDLE)).volume_id
        with pytest.raises(RpcError) as caught:
            self.call(lambda client: client.delete(volume_id))
        assert caught.value.code is Code.FAILED_PRECONDITION

    @precondition(lambda self: self.where(lambda one: one.depth == PUBLISHED))
    @rule(data=st.data())
    def grow_in_use(self, data: st.DataObject) -> None:
        kept = self.drawn(data, self.where(lambda one: one.depth == PUBLISHED))
        use, size = kept.use, kept.size + MIB
        assert use is not None
        self.call(lambda client: client.expand(kept.volume_id, size))
        kept.size = size
        assert self.call(lambda client: use.on(client).expand(size)) == size
        if kept.backend == "image":
            assert self.call(lambda client: use.on(client).total()) == size

    @precondition(lambda self: self.where(lambda one: one.backend == "image"))
    @rule(data=st.data(), limit=LIMITS)
    def modify(self, data: st.DataObject, limit: str) -> None:
        kept = self.drawn(data, self.where(lambda one: one.backend == "image"))
        request = v1.ControllerModifyVolumeRequest(
            volume_id=kept.volume_id, mutable_parameters={"readIops": limit}
        )
        self.call(lambda client: client.controller.controller_modify_volume(request, timeout=20))
        kept.limits = {"readIops": limit}

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

    @precondition(lambda self: self.where(lambda one: one.can_be_copied))
    @rule(data=st.data(), name=NAMES)
    def snapshot(self, data: st.DataObject, name: str) -> None:
        if name in self.snapshots:
            return
        kept = self.drawn(data, self.where(lambda one: one.can_be_copied))
        assert isinstance(kept.message, v1.Volume)
        volume_id = kept.message.volume_id
        taken = self.call(lambda client: client.snapshot(name, volume_id))
        assert isinstance(taken, v1.Snapshot)
        self.snapshots[name] = Kept(taken, kept.backend, kept.size, kept.data)

    @precondition(lambda self: self.where(lambda one: one.depth < STAGED))
    @rule(data=st.data(), name=NAMES)
    def snapshot_group(self, data: st.DataObject, name: str) -> None:
        if name in self.groups:
            return
        idle = sorted(self.where(lambda one: one.depth < STAGED))
        names = st.sets(st.sampled_from(idle), min_size=1)
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

    def sources(self) -> list[Kept]:
        copied = [one for one in self.volumes.values() if one.can_be_copied]
        return [*copied, *self.all_snapshots()]

    def all_snapshots(self) -> list[Kept]:
        members = [kept for group in self.groups.values() for kept in group.members]
        return [*self.snapshots.values(), *members]

    @precondition(lambda self: self.sources())
    @rule(data=st.data(), name=NAMES)
    def copy(self, data: st.DataObject, name: str) -> None:
        if name in self.volumes:
            return
        kept = data.draw(st.sampled_from(self.sources()))
        self.made(name, kept.backend, kept.size, kept.message, kept.data)

    @precondition(lambda self: self.volumes)
    @rule(data=st.data())
    def expand(self, data: st.DataObject) -> None:
        kept = self.volumes[data.draw(st.sampled_from(sorted(self.volumes)))]
        assert isinstance(kept.message, v1.Volume)
        volume_id, size = kept.message.volume_id, kept.size + MIB
        self.call(lambda client: client.expand(volume_id, size))
        kept.size = size

    @precondition(lambda self: self.where(lambda one: one.depth == IDLE))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        idle = self.where(lambda one: one.depth == IDLE)
        volume_id = self.volumes.pop(data.draw(st.sampled_from(sorted(idle)))).volume_id
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
        attached = {
            one.volume.volume_id
            for one in listed.entries
            if one.volume and one.status and one.status.published_node_ids
        }
        assert attached == {one.volume_id for one in self.volumes.values() if one.depth > IDLE}
        for kept in self.volumes.values():
            self.is_used_as_the_model_says(kept)
        snapshots = self.call(lambda client: client.list_snapshots())
        assert isinstance(snapshots, list)
        kept_ids = []
        for kept in self.all_snapshots():
            assert isinstance(kept.message, v1.Snapshot)
            kept_ids.append(kept.message.snapshot_id)
            assert self.content(kept.backend, kept.message.snapshot_id) == kept.data
        assert sorted(one.snapshot_id for one in snapshots) == sorted(kept_ids)

    def is_used_as_the_model_says(self, kept: Kept) -> None:
        document = self.harness.state / "volumes" / f"{kept.volume_id}.json"
        assert json.loads(document.read_bytes()).get("mutable", {}) == kept.limits
        use = kept.use
        assert use is not None
        assert use.target.exists() is (kept.depth == PUBLISHED)
        if kept.backend == "image":
            assert use.target.is_block_device() is (kept.depth == PUBLISHED)
            return
        points = {line.split()[4] for line in mounts.table().lines}
        assert (str(use.staging) in points) is (kept.depth >= STAGED)
        assert (str(use.target) in points) is (kept.depth == PUBLISHED)
        if kept.depth == PUBLISHED and kept.data:
            assert (use.target / "data").read_bytes() == kept.data

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
            for kept in self.volumes.values():
                while kept.depth > IDLE:
                    await DOWN[kept.depth](kept, client)
                    kept.depth -= 1
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
            max_examples=ROUNDS or 5,
            stateful_step_count=80 if ROUNDS else 20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
