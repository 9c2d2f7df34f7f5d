"""One attachment at a time, and GC alone."""

import asyncio

import pytest
from cni_daemon.locks import Gate, KeyedLocks


async def test_one_key_at_a_time_and_other_keys_beside() -> None:
    locks = KeyedLocks()
    order: list[str] = []
    inside = asyncio.Event()
    go = asyncio.Event()

    async def first() -> None:
        async with locks.held("a"):
            inside.set()
            await go.wait()
            order.append("first")

    async def second() -> None:
        async with locks.held("a"):
            order.append("second")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first())
        await inside.wait()
        tasks.create_task(second())
        async with locks.held("b"):
            order.append("other")
            assert locks.is_held("a")
            assert not locks.is_held("c")
        go.set()
    assert order == ["other", "first", "second"]
    assert locks.is_idle


async def test_who_is_alone_waits_for_all_and_lets_nobody_in() -> None:
    gate = Gate()
    order: list[str] = []
    go = asyncio.Event()

    async def visitor(name: str) -> None:
        async with gate.shared():
            order.append(f"{name} in")
            await go.wait()
            order.append(f"{name} out")

    async def loner() -> None:
        async with gate.alone():
            order.append("alone")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(visitor("a"))
        tasks.create_task(visitor("b"))
        await asyncio.sleep(0)
        tasks.create_task(loner())
        await asyncio.sleep(0)
        tasks.create_task(visitor("c"))
        await asyncio.sleep(0)
        assert order == ["a in", "b in"]
        go.set()
    assert order == ["a in", "b in", "a out", "b out", "alone", "c in", "c out"]


async def test_who_gives_up_waiting_holds_nobody_back() -> None:
    gate = Gate()
    async with gate.shared():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), gate.alone():
                pass
        async with asyncio.timeout(1), gate.shared():
            pass
