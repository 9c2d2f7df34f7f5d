"""A controller and three nodes over mutual TLS: where volumes go, and each RPC on its way."""

import asyncio
import pathlib
import resource
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.csi import v1
from bitts.rpc import tls
from bitts.rpc.codes import Code, RpcError
from support import fleet, localdriver
from support.fleet import NODES, Fleet
from support.localdriver import MIB, TIMEOUT, Client

FOLDERS = {"backend": "directory"}


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tls.Files]:
    return fleet.certificates(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def shared(kit: dict[str, tls.Files], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that most tests share; each makes volumes of other names."""
    words = ("--backends=directory", "--capacity=1Gi", "--attach")
    with fleet.running(tmp_path_factory.mktemp("logs"), kit, *words) as made:
        yield made


@pytest.fixture
async def client(shared: Fleet) -> AsyncIterator[Client]:
    """The controller; whatever a test leaves on its nodes is taken away."""
    async with shared.client() as opened:
        yield opened
        for snapshot in await opened.list_snapshots():
            if not snapshot.group_snapshot_id:
                await opened.delete_snapshot(snapshot.snapshot_id)
        for group_id in {one.group_snapshot_id for one in await opened.list_snapshots()}:
            await opened.delete_group(group_id)
        for volume_id in await opened.list_ids():
            request = v1.ControllerUnpublishVolumeRequest(volume_id=volume_id)
            await opened.controller.controller_unpublish_volume(request, timeout=TIMEOUT)
            await opened.delete(volume_id)
        assert shared.everywhere() == []


def node_of(volume: v1.Volume) -> str:
    (topology,) = volume.accessible_topology
    return topology.segments[fleet.KEY]


def request(
    name: str, where: v1.TopologyRequirement | None = None, size: int = MIB, **more: object
) -> v1.CreateVolumeRequest:
    made = localdriver.create_request(name, size=size, **more)  # type: ignore[arg-type]
    made.accessibility_requirements = where
    return made


async def refused(code: Code, work: object) -> str:
    """Await a call that fails with a code, and return its text."""
    with pytest.raises(RpcError) as caught:
        await work  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    return caught.value.message


async def test_a_volume_is_made_on_the_preferred_node_and_found_again(
    shared: Fleet, client: Client
) -> None:
    for node in NODES:
        volume = await client.create(request(f"on-{node}", fleet.at(node)))
        assert node_of(volume) == node
        assert volume.volume_id in shared.volumes(node)
        assert await client.create(request(f"on-{node}", fleet.at(node))) == volume
        await client.delete(volume.volume_id)
        assert volume.volume_id not in shared.everywhere()


async def test_a_full_preferred_node_passes_the_volume_on_unless_the_topology_is_strict(
    client: Client,
) -> None:
    await client.create(request("filler", fleet.at("node-2"), size=900 * MIB))
    wish = request("large", fleet.at("node-2"), size=500 * MIB)
    text = await refused(Code.RESOURCE_EXHAUSTED, client.create(wish))
    assert "are available" in text
    wish.accessibility_requirements = fleet.at("node-2", "node-3", strict=False)
    volume = await client.create(wish)
    assert node_of(volume) == "node-3"


async def test_without_a_topology_the_emptiest_node_is_taken(client: Client) -> None:
    for node, size in (("node-1", 300), ("node-2", 100), ("node-3", 200)):
        await client.create(request(f"fill-{node}", fleet.at(node), size=size * MIB))
    volume = await client.create(request("anywhere"))
    assert node_of(volume) == "node-2"


async def test_a_name_stays_on_its_node_whatever_topology_a_repeated_request_has(
    shared: Fleet, client: Client
) -> None:
    volume = await client.create(request("sticky", fleet.at("node-1", strict=False)))
    assert node_of(volume) == "node-1"
    other = request("sticky", fleet.at("node-3", strict=False))
    assert (await client.create(other)).volume_id == volume.volume_id
    text = await refused(Code.ALREADY_EXISTS, client.create(request("sticky", fleet.at("node-3"))))
    assert "not reachable from the requisite topologies" in text
    assert [one for one in shared.everywhere() if one.endswith(volume.volume_id[-32:])] == [
        volume.volume_id
    ]
    await client.delete(volume.volume_id)


async def test_two_requests_of_one_name_at_once_make_one_volume(
    shared: Fleet, client: Client
) -> None:
    wishes = [request("twice", fleet.at(node, strict=False)) for node in NODES * 2]
    made = await asyncio.gather(*map(client.create, wishes))
    ids = {one.volume_id for one in made}
    assert len(ids) == 1
    assert [one for one in shared.everywhere() if one[-32:] == made[0].volume_id[-32:]] == [*ids]
    await client.delete(made[0].volume_id)


async def test_an_unknown_node_and_an_unknown_wish_are_refused(client: Client) -> None:
    where = v1.TopologyRequirement(requisite=[v1.Topology(segments=fleet.segments("node-9"))])
    text = await refused(Code.RESOURCE_EXHAUSTED, client.create(request("nowhere", where)))
    assert "node-9" in text
    wish = request("wrong", parameters={"backend": "tape"})
    text = await refused(Code.INVALID_ARGUMENT, client.create(wish))
    assert "parameters['backend']: 'tape' is not offered here" in text


async def test_snapshots_and_copies_stay_on_the_node_of_their_source(client: Client) -> None:
    volume = await client.create(request("source", fleet.at("node-2")))
    snapshot = await client.snapshot("s-1", volume.volume_id)
    assert snapshot.snapshot_id.startswith(f"s-{fleet.place('node-2')}-")
    restored = await client.create(request("restored", source=snapshot))
    cloned = await client.create(request("cloned", source=volume))
    assert [node_of(restored), node_of(cloned)] == ["node-2", "node-2"]
    wrong = request("elsewhere", fleet.at("node-1"), source=snapshot)
    assert "wanted is" in await refused(Code.RESOURCE_EXHAUSTED, client.create(wrong))
    listed = await client.list_snapshots(snapshot_id=snapshot.snapshot_id)
    assert [one.source_volume_id for one in listed] == [volume.volume_id]
    for wanted, count in ((volume.volume_id, 1), (cloned.volume_id, 0), ("somebody-elses", 0)):
        assert len(await client.list_snapshots(source_volume_id=wanted)) == count
    assert await client.list_snapshots(snapshot_id="somebody-elses") == []
    get = v1.GetSnapshotRequest(snapshot_id=snapshot.snapshot_id)
    reply = await client.controller.get_snapshot(get, timeout=TIMEOUT)
    assert reply.snapshot == snapshot
    elsewhere = await client.create(request("other-source", fleet.at("node-3")))
    text = await refused(Code.ALREADY_EXISTS, client.snapshot("s-1", elsewhere.volume_id))
    assert volume.volume_id in text
    await client.delete_snapshot(snapshot.snapshot_id)
    assert await client.list_snapshots() == []


async def test_a_volume_grows_is_checked_and_is_read_through_the_controller(
    client: Client,
) -> None:
    volume = await client.create(request("grows", fleet.at("node-3")))
    assert await client.expand(volume.volume_id, 5 * MIB) is False
    get = v1.ControllerGetVolumeRequest(volume_id=volume.volume_id)
    reply = await client.controller.controller_get_volume(get, timeout=TIMEOUT)
    assert reply.volume is not None
    assert reply.volume.capacity_bytes == 5 * MIB
    validate = v1.ValidateVolumeCapabilitiesRequest(
        volume_id=volume.volume_id, volume_capabilities=[localdriver.capability()]
    )
    told = await client.controller.validate_volume_capabilities(validate, timeout=TIMEOUT)
    assert told.confirmed is not None
    modify = v1.ControllerModifyVolumeRequest(
        volume_id=volume.volume_id, mutable_parameters={"readIops": "100"}
    )
    text = await refused(
        Code.INVALID_ARGUMENT, client.controller.controller_modify_volume(modify, timeout=TIMEOUT)
    )
    assert "image" in text
    await client.delete(volume.volume_id)


async def test_attaching_is_refused_on_the_wrong_node_and_listed_on_the_right_one(
    client: Client,
) -> None:
    volume = await client.create(request("attached", fleet.at("node-1")))

    def publish(node: str) -> v1.ControllerPublishVolumeRequest:
        return v1.ControllerPublishVolumeRequest(
            volume_id=volume.volume_id, node_id=node, volume_capability=localdriver.capability()
        )

    controller = client.controller
    wrong = controller.controller_publish_volume(publish("node-2"), timeout=TIMEOUT)
    assert "can be attached to node 'node-1' only" in await refused(Code.NOT_FOUND, wrong)
    reply = await controller.controller_publish_volume(publish("node-1"), timeout=TIMEOUT)
    assert reply.publish_context == {"node": "node-1"}
    listed = await controller.list_volumes(v1.ListVolumesRequest(), timeout=TIMEOUT)
    (entry,) = listed.entries
    assert entry.status is not None
    assert entry.status.published_node_ids == ["node-1"]
    delete = v1.DeleteVolumeRequest(volume_id=volume.volume_id)
    await refused(Code.FAILED_PRECONDITION, controller.delete_volume(delete, timeout=TIMEOUT))
    unpublish = v1.ControllerUnpublishVolumeRequest(volume_id=volume.volume_id, node_id="node-1")
    for _ in range(2):
        await controller.controller_unpublish_volume(unpublish, timeout=TIMEOUT)
    await client.delete(volume.volume_id)


async def test_lists_go_over_all_nodes_page_by_page(client: Client) -> None:
    made = [
        await client.create(request(f"paged-{node}-{number}", fleet.at(node)))
        for node in NODES
        for number in range(3)
    ]
    ids: list[str] = []
    token = ""
    while True:
        asked = v1.ListVolumesRequest(max_entries=2, starting_token=token)
        page = await client.controller.list_volumes(asked, timeout=TIMEOUT)
        assert 1 <= len(page.entries) <= 2
        ids += [one.volume.volume_id for one in page.entries if one.volume is not None]
        token = page.next_token
        if len(ids) == 4:
            await client.delete(ids[3])  # the token's own volume goes: the list goes on after it
        if not token:
            break
    assert sorted(ids) == sorted(one.volume_id for one in made)
    wrong = v1.ListVolumesRequest(starting_token="7")
    text = await refused(Code.ABORTED, client.controller.list_volumes(wrong, timeout=TIMEOUT))
    assert "starting_token" in text


async def test_capacity_is_that_of_a_topology_or_of_all_nodes(client: Client) -> None:
    volume = await client.create(request("takes-room", fleet.at("node-2"), size=256 * MIB))

    async def room(node: str = "", **more: object) -> v1.GetCapacityResponse:
        topology = v1.Topology(segments=fleet.segments(node)) if node else None
        asked = v1.GetCapacityRequest(accessible_topology=topology, **more)  # type: ignore[arg-type]
        return await client.controller.get_capacity(asked, timeout=TIMEOUT)

    assert (await room("node-1")).available_capacity == 1024 * MIB
    assert (await room("node-2")).available_capacity == 768 * MIB
    # A node that has just joined and is not listed yet: no room would be an answer for a minute.
    assert "node-9" in await refused(Code.UNAVAILABLE, room("node-9"))
    elsewhere = v1.GetCapacityRequest(accessible_topology=v1.Topology(segments={"zone": "z"}))
    reply = await client.controller.get_capacity(elsewhere, timeout=TIMEOUT)
    assert reply.available_capacity == 0
    everywhere = await room()
    assert everywhere.available_capacity == 2816 * MIB
    assert everywhere.maximum_volume_size == v1.Int64Value(value=1024 * MIB)
    text = await refused(Code.INVALID_ARGUMENT, room(parameters={"backend": "tape"}))
    assert "tape" in text
    await client.delete(volume.volume_id)


async def test_a_snapshot_s_name_is_taken_once_also_by_two_nodes_at_once(client: Client) -> None:
    sources = [await client.create(request(f"of-{node}", fleet.at(node))) for node in NODES[:2]]
    asked = [client.snapshot("wanted", one.volume_id) for one in sources]
    first, second = await asyncio.gather(*asked, return_exceptions=True)
    assert not isinstance(first, BaseException)
    assert isinstance(second, RpcError)
    assert second.code is Code.ALREADY_EXISTS
    assert [one.snapshot_id for one in await client.list_snapshots()] == [first.snapshot_id]


async def test_a_group_is_of_one_node(client: Client) -> None:
    volumes = [
        await client.create(request(f"member-{number}-{node}", fleet.at(node)))
        for node in ("node-1", "node-2")
        for number in range(2)
    ]
    ids = [one.volume_id for one in volumes]
    text = await refused(Code.FAILED_PRECONDITION, client.snapshot_group("g", ids))
    assert "nodes node-1, node-2, which have no instant in common" in text
    group = await client.snapshot_group("g", ids[:2])
    assert sorted(one.source_volume_id for one in group.snapshots) == sorted(ids[:2])
    get = v1.GetVolumeGroupSnapshotRequest(group_snapshot_id=group.group_snapshot_id)
    reply = await client.groups.get_volume_group_snapshot(get, timeout=TIMEOUT)
    assert reply.group_snapshot == group
    text = await refused(Code.ALREADY_EXISTS, client.snapshot_group("g", ids[2:]))
    assert "of volumes of node node-1" in text
    await client.delete_group(group.group_snapshot_id)
    assert await client.list_snapshots() == []
    group = await client.snapshot_group("g", ids[2:])
    assert group.group_snapshot_id.startswith(f"g-{fleet.place('node-2')}-")


async def test_what_is_no_id_of_ours_is_refused_as_by_a_single_node(client: Client) -> None:
    await client.delete("somebody-elses")
    get = v1.ControllerGetVolumeRequest(volume_id="somebody-elses")
    await refused(Code.NOT_FOUND, client.controller.controller_get_volume(get, timeout=TIMEOUT))
    missing = v1.DeleteVolumeRequest()
    text = await refused(
        Code.INVALID_ARGUMENT, client.controller.delete_volume(missing, timeout=TIMEOUT)
    )
    assert "volume_id" in text
    stranger = v1.DeleteVolumeRequest(volume_id=f"{fleet.place('node-9')}-{'0' * 32}")
    text = await refused(
        Code.UNAVAILABLE, client.controller.delete_volume(stranger, timeout=TIMEOUT)
    )
    assert "--nodes-file" in text


async def test_each_half_serves_its_own_and_announces_the_whole(
    shared: Fleet, client: Client
) -> None:
    # A plugin's capabilities are those of all its processes together (GetPluginCapabilities).
    async with shared.client("node-1") as node:
        asked = v1.GetPluginCapabilitiesRequest()
        told = await node.identity.get_plugin_capabilities(asked, timeout=TIMEOUT)
        assert told == await client.identity.get_plugin_capabilities(asked, timeout=TIMEOUT)
        assert len(told.capabilities) == 4
        await refused(Code.UNIMPLEMENTED, node.create(request("not-here")))
        info = await node.node.node_get_info(v1.NodeGetInfoRequest(), timeout=TIMEOUT)
        assert info.node_id == "node-1"
    call = client.node.node_get_info(v1.NodeGetInfoRequest(), timeout=TIMEOUT)
    await refused(Code.UNIMPLEMENTED, call)


def test_neither_half_takes_more_memory_than_the_whole(shared: Fleet) -> None:
    for process in shared.processes.values():
        pages = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        assert pages * resource.getpagesize() < 40e6
