"""Both ends of the kubelet's plugin registration on real sockets."""

import asyncio
import os
import pathlib
import socket

import pytest
from bitts.csi import registration
from bitts.rpc.codes import Code, RpcError


def names(folder: pathlib.Path) -> list[str]:
    return sorted(os.listdir(folder))


async def test_a_plugin_says_who_it_is_and_hears_what_became_of_it(
    short_dir: pathlib.Path,
) -> None:
    words: asyncio.Queue[registration.RegistrationStatus] = asyncio.Queue()
    plugin = registration.Registration("d.example", "/var/lib/csi.sock", on_status=words.put)
    path = await plugin.serve(str(short_dir))
    assert path == f"{short_dir}/d.example-reg.sock"
    assert await registration.get_info(path) == registration.PluginInfo(
        type="CSIPlugin",
        name="d.example",
        endpoint="/var/lib/csi.sock",
        supported_versions=["1.0.0"],
    )
    assert plugin.status is None
    await registration.notify(path, True)
    assert (await words.get()).plugin_registered
    await registration.notify(path, False, "no such node")
    assert (await words.get()).error == "no such node"
    assert plugin.status == registration.RegistrationStatus(error="no such node")
    await plugin.stop()
    await plugin.stop()


async def test_only_the_finished_socket_is_seen_and_only_root_may_talk(
    short_dir: pathlib.Path,
) -> None:
    plugin = registration.Registration("d.example", "/csi.sock")
    path = await plugin.serve(str(short_dir))
    assert await asyncio.to_thread(names, short_dir) == ["d.example-reg.sock"]
    assert (await asyncio.to_thread(os.stat, path)).st_mode & 0o777 == 0o600
    await plugin.stop()
    assert await asyncio.to_thread(names, short_dir) == []


async def test_the_socket_of_a_killed_process_is_replaced(short_dir: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(short_dir / "d.example-reg.sock"))
    plugin = registration.Registration("d.example", "/csi.sock")
    path = await plugin.serve(str(short_dir))
    assert (await registration.get_info(path)).name == "d.example"
    await plugin.stop()


async def test_a_driver_registers_once(short_dir: pathlib.Path) -> None:
    first = registration.Registration("d.example", "/csi.sock")
    await first.serve(str(short_dir))
    with pytest.raises(OSError, match="another process serves"):
        await registration.Registration("d.example", "/csi.sock").serve(str(short_dir))
    await first.stop()


async def test_a_missing_folder_is_named(short_dir: pathlib.Path) -> None:
    plugin = registration.Registration("d.example", "/csi.sock")
    with pytest.raises(OSError, match=r"cannot listen at .*/none/d\.example-reg\.sock"):
        await plugin.serve(str(short_dir / "none"))


async def test_a_plugin_that_fails_to_hear_makes_the_kubelet_s_call_fail(
    short_dir: pathlib.Path,
) -> None:
    async def refuse(status: registration.RegistrationStatus) -> None:
        raise RpcError(Code.FAILED_PRECONDITION, "not like this")

    plugin = registration.Registration("d.example", "/csi.sock", on_status=refuse)
    path = await plugin.serve(str(short_dir))
    with pytest.raises(RpcError, match="not like this"):
        await registration.notify(path, True)
    await plugin.stop()


async def test_a_socket_that_was_taken_away_or_replaced_is_noticed(
    short_dir: pathlib.Path,
) -> None:
    plugin = registration.Registration("d.example", "/csi.sock", mode=0o700)
    assert not await plugin.is_in_place()
    path = pathlib.Path(await plugin.serve(str(short_dir)))
    assert await plugin.is_in_place()
    assert (await asyncio.to_thread(path.stat)).st_mode & 0o777 == 0o700
    await asyncio.to_thread(path.rename, short_dir / "elsewhere")
    assert not await plugin.is_in_place()
    await asyncio.to_thread(path.touch)
    assert not await plugin.is_in_place()
    await plugin.stop()
    assert await asyncio.to_thread(path.exists), "what is not ours stays"
