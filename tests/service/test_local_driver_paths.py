"""Paths that a node call cannot use: each is refused by its field, and nothing is mounted by it."""

import asyncio
import pathlib
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from support import leaks, localdriver, processes
from support.localdriver import Client, Harness, Use, capability, create_request

pytestmark = pytest.mark.root
TIMEOUT = localdriver.TIMEOUT


@pytest.fixture
async def harness(short_dir: pathlib.Path, spawner: processes.Processes) -> AsyncIterator[Harness]:
    async with localdriver.running(short_dir, spawner, "--btrfs-size=256Mi") as made:
        yield made
    leaked = await asyncio.to_thread(made.leaked)
    await asyncio.to_thread(made.close)
    assert leaked == []


@pytest.fixture
async def client(harness: Harness) -> AsyncIterator[Client]:
    async with harness.client() as opened:
        yield opened


async def made(client: Client, harness: Harness, backend: str, name: str = "v") -> Use:
    request = create_request(name, parameters={"backend": backend})
    use = Use(client, harness.home, await client.create(request), capability())
    use.staging.rmdir()
    return use


async def refused(call: object, code: Code, *words: str) -> None:
    with pytest.raises(RpcError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.code is code, caught.value
    assert all(word in caught.value.message for word in words), caught.value


def mounted_below(folder: pathlib.Path) -> list[str]:
    return [line for line in leaks.mounts() if line.startswith(f"{folder}/")]


@pytest.mark.parametrize("backend", ["directory", "image", "btrfs"])
async def test_links_are_not_followed_at_the_end_of_a_path_but_before_it(
    client: Client, harness: Harness, backend: str
) -> None:
    use = await made(client, harness, backend)
    elsewhere = harness.home / "elsewhere"
    elsewhere.mkdir()
    use.staging.symlink_to(elsewhere)
    await refused(use.stage(), Code.FAILED_PRECONDITION, "staging_target_path", "no folder")
    use.staging.unlink()
    use.staging.write_text("somebody's file")
    await refused(use.stage(), Code.FAILED_PRECONDITION, "staging_target_path", "no folder")
    use.staging.unlink()
    way = harness.home / "way"
    way.symlink_to(use.staging.parent)
    direct, use.staging = use.staging, way / use.staging.name
    await use.stage()
    use.staging = direct  # the same place
    await use.stage()
    assert len([line for line in leaks.mounts() if line.startswith(f"{direct} ")]) == 1
    use.target.symlink_to(elsewhere)
    await refused(use.publish(), Code.FAILED_PRECONDITION, "target_path", "no folder")
    use.target.unlink()
    await use.publish()
    assert mounted_below(elsewhere) == []
    await use.unpublish()
    use.staging = way / direct.name
    await use.unstage()
    await client.delete(use.volume_id)


async def test_paths_that_are_none_are_refused_by_their_field(
    client: Client, harness: Harness
) -> None:
    use = await made(client, harness, "directory")
    good, long = use.staging, pathlib.Path("/", "x" * 300)
    for path, code in (
        ("", Code.INVALID_ARGUMENT),
        ("relative", Code.INVALID_ARGUMENT),
        ("/a\0b", Code.INVALID_ARGUMENT),
        ("/" + "x/" * 3000, Code.INVALID_ARGUMENT),
    ):
        stage = v1.NodeStageVolumeRequest(use.volume_id, {}, path, capability())
        await refused(
            client.node.node_stage_volume(stage, timeout=TIMEOUT), code, "staging_target_path"
        )
        stats = v1.NodeGetVolumeStatsRequest(volume_id=use.volume_id, volume_path=path)
        is_none = path == "relative"
        await refused(
            client.node.node_get_volume_stats(stats, timeout=TIMEOUT),
            Code.NOT_FOUND if is_none else code, "volume_path",
        )  # fmt: skip
    use.staging = long
    await refused(use.stage(), Code.INVALID_ARGUMENT, "too long")
    use.staging = good
    await use.stage()
    publish = v1.NodePublishVolumeRequest(
        volume_id=use.volume_id, target_path=str(use.target), volume_capability=capability()
    )
    await refused(
        client.node.node_publish_volume(publish, timeout=TIMEOUT),
        Code.FAILED_PRECONDITION, "staging_target_path",
    )  # fmt: skip
    await refused(use.publish(long), Code.INVALID_ARGUMENT, "too long")
    nowhere = harness.home / "no" / "such" / "target"
    await refused(use.publish(nowhere), Code.FAILED_PRECONDITION, "target_path", str(nowhere))
    await use.unstage()
    await client.delete(use.volume_id)


@pytest.fixture
def stranger(short_dir: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path where somebody else has mounted something."""
    place = short_dir / "stranger"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("backend", ["directory", "image"])
async def test_what_others_have_mounted_stays_and_nothing_goes_upon_it(
    client: Client, harness: Harness, stranger: pathlib.Path, backend: str
) -> None:
    use = await made(client, harness, backend)
    good, use.staging = use.staging, stranger
    await refused(use.stage(), Code.FAILED_PRECONDITION, "staging_target_path", "tmpfs")
    await use.unstage()
    use.staging = good
    await use.stage()
    await refused(use.publish(stranger), Code.FAILED_PRECONDITION, "target_path", "tmpfs")
    await use.unpublish(stranger)
    assert [line for line in leaks.mounts() if line.startswith(f"{stranger} ")]
    await use.unstage()
    await client.delete(use.volume_id)


@pytest.mark.parametrize("backend", ["directory", "image"])
async def test_a_volume_is_published_from_no_other_place_than_its_own(
    client: Client, harness: Harness, stranger: pathlib.Path, backend: str
) -> None:
    """Neither from where nothing is, nor from another's mount, nor from another volume."""
    use, other = [await made(client, harness, backend, name) for name in ("one", "other")]
    await other.stage()
    good = use.staging
    for wrong in (good, stranger, other.staging):
        use.staging = wrong
        await refused(use.publish(), Code.FAILED_PRECONDITION, "staging_target_path", str(wrong))
        assert not use.target.exists()
        await use.unstage()
    assert [line for line in leaks.mounts() if line.startswith(f"{other.staging} ")]
    await other.unstage()
    for one in (use, other):
        await client.delete(one.volume_id)
