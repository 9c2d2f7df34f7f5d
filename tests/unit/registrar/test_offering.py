"""The registration socket and what probes are told about it; the test plays the kubelet."""

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator

import pytest
from bitts.core.process import ExitError
from bitts.csi import registration
from node_driver_registrar import health, offering, options
from node_driver_registrar.following import Follower
from node_driver_registrar.model import Driver, GiveUp, Offer, Offered, Seen, Withdraw, Word
from support import waiting
from support.identitydriver import IdentityDriver

DRIVER = Driver("d.example", 1)
SEEN = Seen(DRIVER, None)
OFFER = Offer(DRIVER, "the driver is there")


class Bench:
    """An offering in a folder, and what it asked for."""

    def __init__(self, folder: pathlib.Path, *flags: str) -> None:
        self.path = folder / "d.example-reg.sock"
        self.wakes: list[None] = []
        self.ends: list[ExitError] = []
        self.offering = offering.Offering(
            "/host/csi.sock", str(folder), lambda: self.wakes.append(None), self.ends.append
        )
        parser = options.Flags("1")
        words = ["--kubelet-registration-path=/host/csi.sock", *flags]
        chosen = parser.options(parser.set.parse([*words, f"--plugin-registration-path={folder}"]))
        self.follower = Follower(str(folder / "csi.sock"), 1.0, 0.0, lambda: None)
        self.health = health.Health(chosen, self.follower, self.offering)

    def heard(self) -> tuple[Word, str]:
        offered = self.offering.offered
        assert offered is not None
        return offered.word, offered.error

    async def healthy(self) -> tuple[int, str]:
        reply = await self.health.healthy({})
        return reply.status, str(reply.body)

    async def ready(self) -> tuple[int, str]:
        reply = await self.health.ready({})
        return reply.status, str(reply.body)


@pytest.fixture
async def bench(short_dir: pathlib.Path) -> AsyncIterator[Bench]:
    made = Bench(short_dir)
    yield made
    await made.health.close()
    await made.offering.withdraw()


async def test_an_offer_tells_the_kubelet_what_it_needs(bench: Bench) -> None:
    await bench.offering.perform(OFFER, SEEN)
    info = await registration.get_info(str(bench.path))
    assert (info.type, info.name, info.endpoint) == ("CSIPlugin", "d.example", "/host/csi.sock")
    assert info.supported_versions == ["1.0.0"]
    assert (await asyncio.to_thread(bench.path.stat)).st_mode & 0o777 == 0o700
    found = bench.offering.offered
    assert found is not None
    assert found == Offered(DRIVER, age=found.age)


async def test_the_kubelet_s_words_are_kept(bench: Bench) -> None:
    await bench.offering.perform(OFFER, SEEN)
    await registration.notify(str(bench.path), True)
    assert bench.heard() == (Word.REGISTERED, "")
    await registration.notify(str(bench.path), False, "label conflict")
    assert bench.heard() == (Word.REFUSED, "label conflict")
    assert len(bench.wakes) == 2


async def test_withdrawing_removes_the_socket(bench: Bench) -> None:
    await bench.offering.perform(OFFER, SEEN)
    await bench.offering.perform(Withdraw("restarted"), SEEN)
    assert not await asyncio.to_thread(bench.path.exists)
    assert bench.offering.offered is None


async def test_giving_up_ends_the_process_with_1(bench: Bench) -> None:
    await bench.offering.perform(GiveUp("refused ten times"), SEEN)
    assert [(end.code, str(end)) for end in bench.ends] == [(1, "refused ten times")]


async def test_a_socket_taken_away_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offering, "INTERVAL", 0.01)
    await bench.offering.perform(OFFER, SEEN)
    watch = asyncio.create_task(bench.offering.watch(), name="watch")
    await asyncio.to_thread(bench.path.unlink)
    await waiting.until(lambda: bench.wakes, "a wake-up")
    assert bench.offering.offered is not None
    assert not bench.offering.offered.is_in_place
    assert await bench.ready() == (503, "the registration socket was removed or replaced\n")
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch


async def test_a_conflict_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    other = registration.Registration("d.example", "/other.sock")
    await other.serve(str(bench.path.parent))
    for _ in range(2):
        with pytest.raises(OSError, match="another process serves"):
            await bench.offering.perform(OFFER, SEEN)
    assert caplog.messages.count("The registration cannot be offered") == 1
    assert bench.offering.offered is None
    await other.stop()


async def test_readiness_follows_the_kubelet_s_word(bench: Bench) -> None:
    assert await bench.ready() == (503, "the driver is not offered to the kubelet\n")
    await bench.offering.perform(OFFER, SEEN)
    assert await bench.ready() == (503, "the kubelet has not answered for 0 s\n")
    await registration.notify(str(bench.path), False, "label conflict")
    assert await bench.ready() == (503, "the kubelet refused the driver: label conflict\n")
    await bench.offering.withdraw()  # for the pause before the next offer
    assert await bench.ready() == (503, "the kubelet refused the driver: label conflict\n")
    await bench.offering.perform(OFFER, SEEN)
    await registration.notify(str(bench.path), True)
    assert await bench.ready() == (200, "ok")
    assert bench.health.is_ready()


async def test_health_is_that_of_the_socket(bench: Bench) -> None:
    assert (await bench.healthy())[0] == 404
    bench.follower.driver = DRIVER
    assert await bench.healthy() == (404, f"no registration socket: {bench.path} does not exist\n")
    await asyncio.to_thread(bench.path.touch)
    assert await bench.healthy() == (500, f"{bench.path} is no socket\n")
    await asyncio.to_thread(bench.path.unlink)
    for _ in range(2):  # an offer anew is asked anew
        await bench.offering.perform(OFFER, SEEN)
        assert await bench.healthy() == (200, "ok")
        assert await bench.healthy() == (200, "ok")
        await bench.offering.withdraw()


async def test_a_stranger_s_socket_is_not_healthy(bench: Bench) -> None:
    bench.follower.driver = DRIVER
    stranger = registration.Registration("e.example", "/other.sock")
    path = await stranger.serve(str(bench.path.parent))
    await asyncio.to_thread(pathlib.Path(path).rename, bench.path)
    assert await bench.healthy() == (500, f"{bench.path} registers e.example, not d.example\n")
    await stranger.stop()


async def test_a_socket_that_nobody_answers_at_is_not_healthy(bench: Bench) -> None:
    bench.follower.driver = DRIVER
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(bench.path))
        silent.listen()
        status, text = await bench.healthy()
    assert status == 500
    assert str(bench.path) in text


async def test_the_driver_is_probed_if_asked_for(short_dir: pathlib.Path) -> None:
    bench = Bench(short_dir, "--health-driver-probe")
    async with IdentityDriver(short_dir / "csi.sock") as driver:
        task = asyncio.create_task(bench.follower.run(), name="follower")
        await waiting.until(lambda: bench.follower.connected, "the driver")
        await bench.offering.perform(OFFER, SEEN)
        assert await bench.healthy() == (200, "ok")
        driver.ready = False
        assert await bench.healthy() == (
            500,
            "rpc error: code = Unavailable desc = the driver is not ready\n",
        )
        task.cancel()
        await asyncio.wait([task])
    await bench.health.close()
    await bench.offering.withdraw()
