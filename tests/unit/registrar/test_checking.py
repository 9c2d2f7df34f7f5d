"""Checks of a driver over real sockets: one at a time, shared by all who ask."""

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator

import pytest
from bitts.core import ledger
from bitts.rpc.codes import Code
from livenessprobe.checking import Checker
from livenessprobe.model import Rules, State
from support import waiting
from support.identitydriver import IdentityDriver


@contextlib.asynccontextmanager
async def checked(
    folder: pathlib.Path, rules: Rules | None = None, *, timeout: float = 5.0, known: bool = True
) -> AsyncIterator[Checker]:
    calls: list[tuple[str, str, str]] = []
    made = Checker(
        str(folder / "csi.sock"),
        timeout,
        rules or Rules(),
        metric=lambda driver, method, code, _: calls.append((driver, method, code)),
        book=ledger.Ledger(),
    )
    task = asyncio.create_task(made.introduce(), name="introduction")
    if known:
        await waiting.until(lambda: made.history.is_known, "the driver's name")
    try:
        yield made
        for driver, method, _ in calls:
            assert driver == ("" if method.endswith("GetPluginInfo") else "d.example")
    finally:
        task.cancel()
        await asyncio.wait([task])
        await made.close()


async def test_many_who_ask_get_the_answer_of_one_probe(short_dir: pathlib.Path) -> None:
    async with IdentityDriver(short_dir / "csi.sock") as driver, checked(short_dir) as checker:
        driver.answering.clear()
        asking = [asyncio.create_task(checker.verdict()) for _ in range(50)]
        await waiting.until(lambda: driver.busy, "a Probe")
        asking[0].cancel()  # one leaves: the others still get their answer
        driver.answering.set()
        answers = await asyncio.gather(*asking[1:])
        assert {answer.state for answer in answers} == {State.HEALTHY}
        assert (driver.calls["Probe"], driver.busiest) == (1, 1)
        await checker.verdict()
        assert driver.calls["Probe"] == 2


async def test_a_hung_driver_gets_one_probe_after_the_other(short_dir: pathlib.Path) -> None:
    async with (
        IdentityDriver(short_dir / "csi.sock") as driver,
        checked(short_dir, timeout=0.2) as checker,
    ):
        driver.answering.clear()
        for _ in range(3):
            found = await checker.verdict()
            assert (found.state, found.status) == (State.FAILING, 500)
            assert "DeadlineExceeded" in found.text
        await waiting.until(lambda: driver.busy == 0, "the end of the last Probe")
        assert (driver.calls["Probe"], driver.busiest) == (3, 1)
        driver.answering.set()
        assert (await checker.verdict()).state is State.HEALTHY


async def test_a_recent_result_is_used_again(short_dir: pathlib.Path) -> None:
    async with (
        IdentityDriver(short_dir / "csi.sock") as driver,
        checked(short_dir, Rules(max_age=3600.0)) as checker,
    ):
        for _ in range(3):
            assert (await checker.verdict()).status == 200
        assert driver.calls["Probe"] == 1


async def test_not_ready_is_a_failure_and_a_threshold_forgives_some(
    short_dir: pathlib.Path,
) -> None:
    async with (
        IdentityDriver(short_dir / "csi.sock") as driver,
        checked(short_dir, Rules(threshold=2)) as checker,
    ):
        driver.ready = False
        first, second = await checker.verdict(), await checker.verdict()
        assert (first.status, first.text) == (200, "ok, failure 1 of 2: the driver is not ready")
        assert (second.status, second.text) == (500, "the driver is not ready")
        driver.ready = True
        assert (await checker.verdict()).text == "ok"


async def test_changes_are_logged_and_nothing_else(
    short_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bitts")
    async with IdentityDriver(short_dir / "csi.sock") as driver, checked(short_dir) as checker:
        for ready in (True, True, True, False, False, False, True):
            driver.ready = ready
            await checker.verdict()
    assert caplog.messages == [
        "The driver answers",
        "The driver is healthy",
        "The driver fails its probes",
        "The driver is healthy",
    ]


async def test_until_the_driver_is_there_the_answer_is_503_at_once(
    short_dir: pathlib.Path,
) -> None:
    async with checked(short_dir, known=False) as checker:
        found = await checker.verdict()
        assert (found.state, found.status) == (State.ABSENT, 503)
        assert not checker.is_healthy()
        async with IdentityDriver(short_dir / "csi.sock") as driver:
            driver.failures["GetPluginInfo"] = [Code.INTERNAL]
            await waiting.until(lambda: checker.history.is_known, "the driver's name")
            assert (await checker.verdict()).status == 200
            assert checker.is_healthy()


async def test_a_driver_without_a_name_is_not_there_until_it_has_one(
    short_dir: pathlib.Path,
) -> None:
    async with (
        IdentityDriver(short_dir / "csi.sock", name="") as driver,
        checked(short_dir, known=False) as checker,
    ):
        await waiting.until(lambda: driver.calls["GetPluginInfo"] > 1, "another try")
        found = await checker.verdict()
        assert (found.state, found.status) == (State.ABSENT, 503)
        assert "the driver's name is empty" in found.text
        assert driver.calls["Probe"] == 0, "whoever has no name is not probed"
        driver.name = "d.example"
        await waiting.until(lambda: checker.history.is_known, "the driver's name")
        assert (await checker.verdict()).status == 200


async def test_a_driver_that_restarts_is_found_again_within_one_check(
    short_dir: pathlib.Path,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        driver = IdentityDriver(short_dir / "csi.sock")
        await driver.__aenter__()
        checker = await stack.enter_async_context(checked(short_dir))
        assert (await checker.verdict()).status == 200
        await driver.__aexit__(None, None, None)
        asking = asyncio.create_task(checker.verdict())
        await asyncio.sleep(0.01)  # so that it finds nobody at first, mostly
        async with IdentityDriver(short_dir / "csi.sock"):
            assert (await asking).text == "ok"
