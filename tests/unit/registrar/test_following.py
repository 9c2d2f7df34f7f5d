"""Which driver is behind the socket: real sockets, drivers that come, go and change."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.core.process import ExitError
from bitts.rpc.codes import Code, RpcError
from node_driver_registrar import following
from node_driver_registrar.following import Follower
from node_driver_registrar.model import Driver
from support import waiting
from support.identitydriver import IdentityDriver


@contextlib.asynccontextmanager
async def followed(
    folder: pathlib.Path, *, timeout: float = 5.0, ready_timeout: float = 30.0
) -> AsyncIterator[Follower]:
    made = Follower(str(folder / "csi.sock"), timeout, ready_timeout, lambda: None)
    task = asyncio.create_task(made.run(), name="follower")
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until_start(follower: Follower, name: str, start: int) -> None:
    await waiting.until(lambda: follower.driver == Driver(name, start), f"{name}, start {start}")


async def test_a_driver_is_waited_for_and_noticed_again_after_a_restart(
    short_dir: pathlib.Path,
) -> None:
    async with followed(short_dir) as follower:
        with pytest.raises(RpcError, match="not connected"):
            await follower.probe()
        async with IdentityDriver(short_dir / "csi.sock"):
            await until_start(follower, "d.example", 1)
            await follower.probe()
        await waiting.until(lambda: follower.connected is None, "the loss")
        assert follower.driver == Driver("d.example", 1), "it is remembered while it is away"
        async with IdentityDriver(short_dir / "csi.sock", "e.example"):
            await until_start(follower, "e.example", 2)


async def test_a_driver_whose_socket_is_replaced_while_it_lives_is_another_driver(
    short_dir: pathlib.Path,
) -> None:
    async with (
        followed(short_dir) as follower,
        IdentityDriver(short_dir / "csi.sock"),
        IdentityDriver(short_dir / "new.sock") as second,
    ):
        await until_start(follower, "d.example", 1)
        await asyncio.to_thread(second.path.rename, short_dir / "csi.sock")
        await until_start(follower, "d.example", 2)
        assert second.calls["GetPluginInfo"] == 1


async def test_a_socket_that_is_removed_is_no_reason_to_leave_the_driver(
    short_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "INTERVAL", 0.01)
    async with followed(short_dir) as follower, IdentityDriver(short_dir / "csi.sock") as driver:
        await until_start(follower, "d.example", 1)
        await asyncio.to_thread(driver.path.unlink)
        await asyncio.sleep(0.1)  # several looks at nothing
        await follower.probe()


async def test_a_booting_driver_is_asked_until_it_answers(short_dir: pathlib.Path) -> None:
    async with IdentityDriver(short_dir / "csi.sock") as driver:
        driver.failures["GetPluginInfo"] = [Code.UNAVAILABLE, Code.INTERNAL]
        driver.failures["Probe"] = [Code.FAILED_PRECONDITION]
        async with followed(short_dir) as follower:
            await until_start(follower, "d.example", 1)
        assert driver.calls == {"GetPluginInfo": 3, "Probe": 2}


async def test_a_driver_without_probe_is_ready(short_dir: pathlib.Path) -> None:
    async with IdentityDriver(short_dir / "csi.sock") as driver:
        driver.failures["Probe"] = [Code.UNIMPLEMENTED]
        async with followed(short_dir) as follower:
            await until_start(follower, "d.example", 1)


async def test_a_driver_that_is_never_ready_is_taken_in_the_end(
    short_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with IdentityDriver(short_dir / "csi.sock") as driver:
        driver.ready = False
        async with followed(short_dir, ready_timeout=0.2) as follower:
            await until_start(follower, "d.example", 1)
            assert "The driver is not ready, going on" in caplog.messages
            with pytest.raises(RpcError, match="not ready"):
                await follower.probe()


async def test_without_a_ready_timeout_nothing_is_probed(short_dir: pathlib.Path) -> None:
    async with (
        IdentityDriver(short_dir / "csi.sock") as driver,
        followed(short_dir, ready_timeout=0.0) as follower,
    ):
        await until_start(follower, "d.example", 1)
        assert driver.calls["Probe"] == 0


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "new\nline"])
async def test_a_name_that_cannot_be_registered_ends_the_process(
    short_dir: pathlib.Path, name: str
) -> None:
    async with IdentityDriver(short_dir / "csi.sock", name):
        follower = Follower(str(short_dir / "csi.sock"), 5.0, 0.0, lambda: None)
        with pytest.raises(ExitError, match="configure") as caught:
            await follower.run()
        assert caught.value.code == 1
