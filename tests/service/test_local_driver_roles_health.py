"""A controller of the 1.13 generation: health by RPCs, also of nodes that are away."""

import asyncio
import pathlib
import shutil

import pytest
from bitts.csi import v1
from bitts.rpc import tls
from support import fleet, localdriver, processes
from support.fleet import Fleet
from support.localdriver import MIB, TIMEOUT, Client


@pytest.fixture
def kit(tmp_path: pathlib.Path) -> dict[str, tls.Files]:
    return fleet.certificates(tmp_path)


async def listed(client: Client) -> dict[str, tuple[v1.VolumeHealthErrorType, str]]:
    """Return the status and the reason of each volume that is not well."""
    found: dict[str, tuple[v1.VolumeHealthErrorType, str]] = {}
    token = ""
    while True:
        asked = v1.ControllerListVolumeHealthRequest(max_entries=1, starting_token=token)
        reply = await client.controller.controller_list_volume_health(asked, timeout=TIMEOUT)
        for entry in reply.entries:
            (status,) = entry.health_statuses
            found[entry.volume_id] = (status.status, status.reason)
        token = reply.next_token
        if not token:
            return found


async def told(client: Client, volume_id: str) -> list[str]:
    asked = v1.ControllerGetVolumeHealthRequest(volume_id=volume_id)
    reply = await client.controller.controller_get_volume_health(asked, timeout=TIMEOUT)
    assert reply.volume_health is not None
    return [one.reason for one in reply.volume_health.health_statuses]


async def test_health_by_rpcs_tells_of_nodes_that_are_away(
    short_dir: pathlib.Path, spawner: processes.Processes, kit: dict[str, tls.Files]
) -> None:
    pair = Fleet(short_dir, spawner, kit, ("node-1", "node-2"))
    await pair.start("--backends=directory", "--csi=1.13")
    async with pair.client() as client:
        ids = {}
        for node in pair.nodes:
            wish = localdriver.create_request(f"on-{node}", size=MIB)
            wish.accessibility_requirements = fleet.at(node)
            ids[node] = (await client.create(wish)).volume_id
        assert await listed(client) == {}
        pair.processes["node-1"].kill()
        away = (v1.VolumeHealthErrorType.INACCESSIBLE, "NodeUnreachable")
        assert await listed(client) == {ids["node-1"]: away}
        assert await told(client, ids["node-1"]) == ["NodeUnreachable"]
        assert await told(client, ids["node-2"]) == []
        folder = next((pair.home / "node-2/state/directory").glob(f"{ids['node-2']}*"))
        await asyncio.to_thread(shutil.rmtree, folder)
        assert await listed(client) == {
            ids["node-1"]: away,
            ids["node-2"]: (v1.VolumeHealthErrorType.DATA_LOSS, "ContentMissing"),
        }
