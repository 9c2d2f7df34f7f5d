"""A controller and its nodes when something is away, lost, killed or somebody else."""

import asyncio
import contextlib
import random
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from bitts.csi import v1
from bitts.rpc import introspection, tls
from bitts.rpc.codes import Code, RpcError
from support import fleet, localdriver, waiting
from support.fleet import Fleet
from support.localdriver import MIB, TIMEOUT, Client

T = TypeVar("T")
PAIR = ("node-1", "node-2")
COMMON = ("--backends=directory", "--attach", "--capacity=1Gi")
ANYWHERE = v1.TopologyRequirement(
    requisite=[v1.Topology(segments=fleet.segments(node)) for node in PAIR]
)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tls.Files]:
    return fleet.certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def shared(kit: dict[str, tls.Files], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet.running(tmp_path_factory.mktemp("logs"), kit, *COMMON, nodes=PAIR) as made:
        yield made


@pytest.fixture
async def pair(shared: Fleet) -> AsyncIterator[Fleet]:
    """The fleet, whole and empty again after each test."""
    yield shared
    await shared.mend(*COMMON)
    async with shared.client() as client:
        for node in PAIR:
            await until_here(client, node)
        for snapshot in await client.list_snapshots():
            await client.delete_snapshot(snapshot.snapshot_id)
        for volume_id in await client.list_ids():
            detach = v1.ControllerUnpublishVolumeRequest(volume_id=volume_id)
            await client.controller.controller_unpublish_volume(detach, timeout=TIMEOUT)
            await client.delete(volume_id)
    assert shared.everywhere() == []


@pytest.fixture
async def client(pair: Fleet) -> AsyncIterator[Client]:
    async with pair.client() as opened:
        yield opened


def request(
    name: str, *nodes: str, strict: bool = False, size: int = MIB
) -> v1.CreateVolumeRequest:
    """Ask for a volume, best on the nodes in their order; ``strict``: nowhere else."""
    made = localdriver.create_request(name, size=size)
    preferred = [v1.Topology(segments=fleet.segments(node)) for node in nodes]
    requisite = preferred if strict else ANYWHERE.requisite
    made.accessibility_requirements = v1.TopologyRequirement(requisite, preferred)
    return made


async def refused(code: Code, work: object) -> str:
    with pytest.raises(RpcError) as caught:
        await work  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    return caught.value.message


async def conditions(client: Client) -> dict[str, str]:
    """Return what is wrong with each volume in the list, by ID; empty: nothing."""
    reply = await client.controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
    found = {}
    for entry in reply.entries:
        assert entry.volume is not None
        assert entry.status is not None
        assert entry.status.volume_condition is not None
        condition = entry.status.volume_condition
        found[entry.volume.volume_id] = condition.message if condition.abnormal else ""
    return found


async def until_here(client: Client, node: str) -> None:
    """Wait until the controller reaches a node: it says how much room that has."""

    async def answers() -> bool:
        with contextlib.suppress(RpcError):
            return await room(client, node) > 0
        return False

    await waiting.until(answers, f"{node} to be here")


async def room(client: Client, node: str) -> int:
    asked = v1.GetCapacityRequest(accessible_topology=v1.Topology(segments=fleet.segments(node)))
    reply = await client.controller.get_capacity(asked, timeout=TIMEOUT)
    return reply.available_capacity


async def test_a_killed_node_is_unavailable_and_its_volumes_stay_listed(
    pair: Fleet, client: Client
) -> None:
    there = await client.create(request("there", "node-1"))
    here = await client.create(request("here", "node-2"))
    snapshot = await client.snapshot("s", there.volume_id)
    publish = v1.ControllerPublishVolumeRequest(
        volume_id=there.volume_id, node_id="node-1", volume_capability=localdriver.capability()
    )
    unpublish = v1.ControllerUnpublishVolumeRequest(volume_id=there.volume_id)
    await client.controller.controller_publish_volume(publish, timeout=TIMEOUT)
    pair.processes["node-1"].kill()
    for call in (
        client.create(request("there", "node-1")),
        client.create(request("new", "node-1", strict=True)),
        client.delete(there.volume_id),
        client.expand(there.volume_id, 2 * MIB),
        client.snapshot("s-2", there.volume_id),
        client.delete_snapshot(snapshot.snapshot_id),
        client.controller.controller_publish_volume(publish, timeout=TIMEOUT),
        client.controller.controller_unpublish_volume(unpublish, timeout=TIMEOUT),
        room(client, "node-1"),
    ):
        assert "node-1" in await refused(Code.UNAVAILABLE, call)
    found = await conditions(client)
    assert found.keys() == {there.volume_id, here.volume_id}
    assert found[there.volume_id].startswith("NodeUnreachable: node node-1 is away")
    assert found[here.volume_id] == ""
    get = v1.ControllerGetVolumeRequest(volume_id=there.volume_id)
    reply = await client.controller.controller_get_volume(get, timeout=TIMEOUT)
    assert reply.volume == there
    assert reply.status is not None
    assert reply.status.published_node_ids == ["node-1"]
    assert reply.status.volume_condition is not None
    assert reply.status.volume_condition.abnormal
    assert [one.snapshot_id for one in await client.list_snapshots()] == [snapshot.snapshot_id]
    await require_told(pair)
    # A new volume that any node may hold goes to one that is there.
    moved = await client.create(request("moves", "node-1"))
    assert moved.volume_id in pair.volumes("node-2")

    await pair.start_node("node-1", *COMMON)
    await until_here(client, "node-1")
    assert set((await conditions(client)).values()) == {""}
    assert await client.create(request("there", "node-2")) == there
    await client.controller.controller_unpublish_volume(unpublish, timeout=TIMEOUT)
    await client.delete(there.volume_id)


async def require_told(pair: Fleet) -> None:
    """Introspection of the controller knows that node-1 is away, with its one of two volumes."""
    async with introspection.connect(
        str(pair.home / "controller/bitts-local-driver.sock")
    ) as asked:
        figures = {one.name: one.value for one in (await asked.process()).figures}
        assert figures == {"listed": 2, "here": 1, "volumes": 2, "unsettled": 0}
        (entry,) = (await asked.object("node-1")).objects
        assert (entry.loop, entry.decision) == ("nodes", "away")


@pytest.mark.slow
async def test_a_frozen_node_is_noticed_and_nobody_hangs(pair: Fleet, client: Client) -> None:
    volume = await client.create(request("v", "node-1"))
    pair.processes["node-1"].send_signal(signal.SIGSTOP)
    try:
        grow = v1.ControllerExpandVolumeRequest(
            volume_id=volume.volume_id, capacity_range=v1.CapacityRange(2 * MIB)
        )
        call = client.controller.controller_expand_volume(grow, timeout=90.0)
        assert "node node-1 is away" in await refused(Code.UNAVAILABLE, call)
        assert volume.volume_id in await conditions(client)
    finally:
        pair.processes["node-1"].send_signal(signal.SIGCONT)
    await until_here(client, "node-1")
    await client.expand(volume.volume_id, 2 * MIB)


async def test_a_lost_answer_makes_no_second_volume(pair: Fleet, client: Client) -> None:
    await pair.faults("node-1", "add CreateVolume:lost,times=2")
    await refused(Code.UNAVAILABLE, client.create(request("v", "node-1")))
    (made,) = pair.everywhere()
    # Again, with another wish: the node that was sent the first is asked, and loses it again.
    await until_here(client, "node-1")
    await refused(Code.UNAVAILABLE, client.create(request("v", "node-2")))
    await until_here(client, "node-1")
    assert (await client.create(request("v", "node-2"))).volume_id == made
    assert pair.everywhere() == [made]


async def test_a_volume_that_may_be_on_a_node_that_is_away_is_not_made_elsewhere(
    pair: Fleet, client: Client
) -> None:
    await pair.faults("node-1", "add CreateVolume:crash=after")
    await refused(Code.UNAVAILABLE, client.create(request("v", "node-1")))
    await pair.processes["node-1"].wait()
    text = await refused(Code.UNAVAILABLE, client.create(request("v", "node-2")))
    assert "node node-1 is away" in text
    await pair.start_node("node-1", *COMMON)
    await until_here(client, "node-1")
    volume = await client.create(request("v", "node-2"))
    assert pair.everywhere() == [volume.volume_id] == pair.volumes("node-1")


async def test_a_controller_killed_with_its_node_remembers_what_it_had_sent_there(
    pair: Fleet,
) -> None:
    await pair.faults("node-1", "add CreateVolume:crash=after")
    async with pair.client() as client:
        await refused(Code.UNAVAILABLE, client.create(request("v", "node-1")))
    pair.processes["controller"].kill()
    await pair.processes["node-1"].wait()
    await pair.start_controller(*COMMON)
    async with pair.client() as client:
        await refused(Code.UNAVAILABLE, client.create(request("v", "node-2")))
        assert pair.volumes("node-2") == []
        await client.create(request("w", "node-2"))


async def test_what_another_controller_has_made_is_found(pair: Fleet, client: Client) -> None:
    other = await pair.start_controller(*COMMON, who="another")
    async with pair.client("another") as another:
        volume = await another.create(request("v", "node-1"))
    assert await client.create(request("v", "node-2")) == volume
    assert pair.everywhere() == [volume.volume_id]
    await other.stop()
    del pair.processes["another"]


async def test_a_node_that_refused_for_good_is_not_bound_to_the_name(
    pair: Fleet, client: Client
) -> None:
    large = request("v", "node-1", strict=True, size=2048 * MIB)
    await refused(Code.RESOURCE_EXHAUSTED, client.create(large))
    pair.processes["node-1"].kill()
    volume = await client.create(request("v", "node-2", strict=True))
    assert pair.everywhere() == [volume.volume_id] == pair.volumes("node-2")


@pytest.mark.parametrize("is_lost", [False, True], ids=["state kept", "state lost"])
async def test_a_controller_killed_in_the_middle_finds_its_volume_again(
    pair: Fleet, *, is_lost: bool
) -> None:
    await pair.faults("node-1", "add CreateVolume:hang=after,times=1")
    async with pair.client() as client:
        cut = asyncio.create_task(client.create(request("v", "node-1")))
        await waiting.until(pair.everywhere, "the volume on its disk")
        pair.processes["controller"].kill()
        await refused(Code.UNAVAILABLE, cut)
    if is_lost:
        await asyncio.to_thread(shutil.rmtree, pair.home / "controller/state")
    await pair.start_controller(*COMMON)
    async with pair.client() as client:
        volume = await client.create(request("v", "node-2"))
        assert pair.everywhere() == [volume.volume_id] == pair.volumes("node-1")


async def test_a_controller_remembers_the_volumes_of_nodes_that_are_away(pair: Fleet) -> None:
    async with pair.client() as client:
        there = await client.create(request("there", "node-1"))
        gone = await client.create(request("gone", "node-1"))
        await client.delete(gone.volume_id)
    await pair.processes["controller"].stop()
    pair.processes["node-1"].kill()
    await pair.start_controller(*COMMON)
    async with pair.client() as client:
        found = await conditions(client)
        assert list(found) == [there.volume_id]
        assert "NodeUnreachable" in found[there.volume_id]
        # A name that is on the node that is away is not made anywhere else; another one is.
        await refused(Code.UNAVAILABLE, client.create(request("there", "node-2")))
        await client.create(request("gone", "node-2"))
        assert len(pair.volumes("node-2")) == 1
    await pair.processes["controller"].stop()
    # Without its memory, it waits for the node before it takes one that this may have for new.
    await asyncio.to_thread(shutil.rmtree, pair.home / "controller/state")
    await pair.start_controller(*COMMON)
    async with pair.client() as client:
        text = await refused(Code.UNAVAILABLE, client.create(request("there", "node-2")))
        assert "node node-1 is away and may hold the volume, as it was never heard" in text
        await client.create(request("elsewhere", "node-2", strict=True))


async def test_a_node_with_another_nodes_certificate_is_not_believed(
    pair: Fleet, client: Client, kit: dict[str, tls.Files]
) -> None:
    await pair.processes["node-1"].stop()
    await pair.start_node("node-1", *COMMON, files=kit["node-2"])
    text = await refused(Code.UNAVAILABLE, client.create(request("v", "node-1", strict=True)))
    assert "is for node-2.nodes.local.csi.bitts.dev, not for node-1." in text
    assert pair.everywhere() == []
    await pair.processes["node-1"].stop()


async def test_nodes_do_not_listen_to_another_node(pair: Fleet, kit: dict[str, tls.Files]) -> None:
    await pair.processes["controller"].stop()
    await pair.start_controller(*COMMON, files=kit["node-2"])
    async with pair.client() as client:
        await refused(Code.UNAVAILABLE, client.create(request("v", "node-1")))
    await pair.processes["node-1"].wait_for_output(
        "is for node-2.nodes.local.csi.bitts.dev, not for controller."
    )
    assert pair.everywhere() == []
    await pair.processes["controller"].stop()


async def test_the_list_of_nodes_is_followed(pair: Fleet, client: Client) -> None:
    volume = await client.create(request("v", "node-2"))
    pair.write_list(["node-1"])

    async def is_unlisted() -> bool:
        return await client.list_ids() == []

    await waiting.until(is_unlisted, "the node to be forgotten")
    assert "--nodes-file" in await refused(Code.UNAVAILABLE, client.delete(volume.volume_id))
    await refused(Code.RESOURCE_EXHAUSTED, client.create(request("w", "node-2", strict=True)))
    pair.write_list(PAIR)
    await until_here(client, "node-2")
    assert await client.list_ids() == [volume.volume_id]
    await asyncio.to_thread(pair.list.write_text, "node-1: no address\n")
    await pair.processes["controller"].wait_for_output("The list of nodes stays as it was")
    assert await client.list_ids() == [volume.volume_id]
    pair.write_list(PAIR)


@pytest.mark.slow
async def test_whoever_is_killed_each_name_becomes_one_volume(pair: Fleet) -> None:
    chance = random.Random(5)
    names = [f"v{number}" for number in range(10)]
    made = asyncio.gather(*(persist(pair, name, random.Random(name)) for name in names))
    for _ in range(4):
        await asyncio.sleep(chance.uniform(0.1, 0.6))  # a random moment is what is tested
        pair.processes[chance.choice(["controller", *PAIR])].kill()
        await pair.mend(*COMMON)
    ids = await made
    assert pair.everywhere() == sorted(ids)


async def persist(pair: Fleet, name: str, chance: random.Random) -> str:
    """Make a volume, delete it, make it again; wish for another node at each attempt."""

    async def create(client: Client) -> str:
        return (await client.create(request(name, *chance.sample(PAIR, 2)))).volume_id

    volume_id = await until_done(pair, create)
    await until_done(pair, lambda client: client.delete(volume_id))
    return await until_done(pair, create)


async def until_done(pair: Fleet, call: Callable[[Client], Awaitable[T]]) -> T:
    """Repeat a call until it succeeds, as sidecars do."""
    while True:
        with contextlib.suppress(RpcError):
            async with pair.client() as client:
                return await call(client)
        await asyncio.sleep(0.05)  # a client's pause
