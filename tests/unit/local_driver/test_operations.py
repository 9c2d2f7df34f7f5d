"""One operation at a time on a volume."""

import asyncio

import pytest
from bitts.core import ledger
from bitts.rpc.codes import Code, RpcError
from local_driver import operations

VOLUME = "0123"


def made(patience: float = 5.0) -> operations.Operations:
    return operations.Operations(ledger.Ledger(), patience=patience)


async def test_work_on_one_volume_is_done_in_turn_and_on_others_beside_it() -> None:
    running = made()
    log: list[str] = []
    gate = asyncio.Event()

    async def work(name: str) -> str:
        log.append(f"{name} begins")
        if name == "first":
            await gate.wait()
        log.append(f"{name} ends")
        return name

    tasks = [
        asyncio.create_task(running.run(VOLUME, name, lambda name=name: work(name)))  # type: ignore[misc]
        for name in ("first", "second", "third")
    ]
    await asyncio.sleep(0)
    assert await running.run("other", "beside", lambda: work("beside")) == "beside"
    gate.set()
    assert await asyncio.gather(*tasks) == ["first", "second", "third"]
    kept = [line for line in log if "beside" not in line]
    assert kept == [
        f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")
    ]


async def test_whoever_waits_too_long_is_told_what_goes_on() -> None:
    running = made(patience=0.01)
    gate = asyncio.Event()
    first = asyncio.create_task(running.run(VOLUME, "NodeStageVolume", gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as caught:
        await running.run(VOLUME, "DeleteVolume", gate.wait)
    assert caught.value.code is Code.ABORTED
    assert "NodeStageVolume" in caught.value.message
    assert (running.at_work(VOLUME), running.at_work("other")) == ("NodeStageVolume", "")
    gate.set()
    await first
    assert await running.run(VOLUME, "DeleteVolume", gate.wait)


async def test_a_long_queue_is_refused_at_once() -> None:
    running = made()
    gate = asyncio.Event()
    tasks = [
        asyncio.create_task(running.run(VOLUME, "work", gate.wait))
        for _ in range(operations.QUEUE + 1)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as caught:
        await running.run(VOLUME, "work", gate.wait)
    assert caught.value.code is Code.ABORTED
    gate.set()
    await asyncio.gather(*tasks)


async def test_work_goes_on_when_its_client_is_gone_and_the_volume_stays_busy() -> None:
    running = made(patience=0.01)
    gate, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        ended.set()

    client = asyncio.create_task(running.run(VOLUME, "NodeStageVolume", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client
    with pytest.raises(RpcError, match="NodeStageVolume"):
        await running.run(VOLUME, "NodeUnstageVolume", gate.wait)
    gate.set()
    await running.finish(5.0)
    assert ended.is_set()


async def test_a_client_that_leaves_the_queue_is_passed_over() -> None:
    running = made()
    gate = asyncio.Event()
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)
        await gate.wait()

    tasks = [
        asyncio.create_task(running.run(VOLUME, name, lambda name=name: work(name)))  # type: ignore[misc]
        for name in ("first", "leaves", "last")
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert begun == ["first", "last"]
    assert isinstance(results[1], asyncio.CancelledError)


async def test_a_turn_that_comes_too_late_is_passed_on() -> None:
    """The waiter is woken and cancelled in one step of the loop: the next in line must go on."""
    running = made()
    gate = asyncio.Event()
    first = asyncio.create_task(running.run(VOLUME, "first", gate.wait))
    await asyncio.sleep(0)
    leaves = asyncio.create_task(running.run(VOLUME, "leaves", gate.wait))
    last = asyncio.create_task(running.run(VOLUME, "last", gate.wait))
    await asyncio.sleep(0)
    first_work = next(task for task in asyncio.all_tasks() if task.get_name() == f"first {VOLUME}")
    first_work.add_done_callback(lambda _task: leaves.cancel())
    gate.set()
    assert await last
    assert await first
    assert leaves.cancelled()


async def test_failures_reach_the_client_and_the_ledger() -> None:
    record = ledger.Ledger()
    running = operations.Operations(record)

    async def fail() -> None:
        raise RpcError(Code.NOT_FOUND, "gone")

    with pytest.raises(RpcError, match="gone"):
        await running.run(VOLUME, "DeleteVolume", fail)
    entry = record.entry("DeleteVolume", VOLUME)
    assert entry is not None
    assert (entry.decision, "gone" in entry.error) == ("refused", True)
    assert await running.run(VOLUME, "DeleteVolume", lambda: asyncio.sleep(0, "done")) == "done"
