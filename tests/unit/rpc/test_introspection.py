"""Asking a process through its socket what it works on and why."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest
from bitts.core import ledger, process, workqueue
from bitts.rpc import introspection, server
from bitts.rpc.codes import Code, RpcError
from support import waiting

Phase = introspection.Phase


@pytest.fixture
def book() -> ledger.Ledger:
    """A ledger with one object of each phase."""
    now = iter(range(1000, 2000))
    made = ledger.Ledger(clock=lambda: float(next(now)))
    made.started("claims", "shop/cart")
    made.decided("claims", "shop/cart", "CreateVolume", "bound to no volume yet")
    made.started("claims", "shop/stuck")
    made.decided("claims", "shop/stuck", "CreateVolume", "again", error="pool full")
    made.retry_at("claims", "shop/stuck", 5000.0, failures=3)
    made.started("volumes", "pv-1")
    made.decided("volumes", "pv-1", "DeleteVolume", "released")
    made.finished("volumes", "pv-1")
    return made


@pytest.fixture
async def queue() -> workqueue.WorkQueue:
    made = workqueue.WorkQueue("claims")
    made.add("shop/new")
    made.add_after("shop/later", 1000.0)
    return made


@pytest.fixture
async def asked(
    path: str, book: ledger.Ledger, queue: workqueue.WorkQueue
) -> AsyncIterator[introspection.Client]:
    sources = introspection.Sources(
        program="csi-provisioner",
        version="9.9",
        ledger=book,
        queues=[queue],
        figures=lambda: [introspection.Figure(area="pacing", name="window", value=32.0)],
        role=lambda: (introspection.Role.WAITING, "other-pod"),
        explain=explain,
    )
    running = server.Server([introspection.Introspection(sources)], path)
    await running.start()
    async with introspection.connect(path) as client:
        yield client
    await running.stop(grace=0.0)
    queue.shut_down()


def explain(key: str) -> list[introspection.Finding]:
    if key != "shop/cart":
        return []
    return [introspection.Finding(subject=f"claim {key}", text="waits for a pod", blocks=True)]


async def test_a_process_tells_its_role_queues_figures_and_loops(
    asked: introspection.Client,
) -> None:
    process = await asked.process()
    assert (process.program, process.version, process.process_id) == (
        "csi-provisioner",
        "9.9",
        os.getpid(),
    )
    assert (process.role, process.leader) == (introspection.Role.WAITING, "other-pod")
    [queue] = process.queues
    assert (queue.name, queue.ready, queue.delayed, queue.working) == ("claims", 1, 1, 0)
    assert [(figure.area, figure.value) for figure in process.figures] == [("pacing", 32.0)]
    loops = [(one.loop, one.working, one.waiting, one.failing) for one in process.loops]
    assert loops == [("claims", 1, 1, 1), ("volumes", 0, 0, 0)]
    assert process.loops[1].finished == 1
    assert process.started_at > 1.6e9


async def test_objects_come_with_their_last_decision_longest_first(
    asked: introspection.Client,
) -> None:
    reply = await asked.objects()
    assert reply.matched == 3
    assert [one.key for one in reply.objects] == ["shop/cart", "shop/stuck", "pv-1"]
    stuck = reply.objects[1]
    assert (stuck.decision, stuck.reason, stuck.error) == ("CreateVolume", "again", "pool full")
    assert (stuck.phase, stuck.failures, stuck.retry_at) == (Phase.WAITING, 3, 5000.0)
    assert reply.objects[0].retry_at == 0.0


async def test_objects_can_be_chosen(asked: introspection.Client) -> None:
    async def keys(**chosen: object) -> list[str]:
        return [one.key for one in (await asked.objects(**chosen)).objects]  # type: ignore[arg-type]

    assert await keys(loop="volumes") == ["pv-1"]
    assert await keys(key="art") == ["shop/cart"]
    assert await keys(phases=[Phase.WAITING, Phase.FINISHED]) == ["shop/stuck", "pv-1"]
    assert await keys(failing=True) == ["shop/stuck"]
    limited = await asked.objects(limit=1)
    assert (len(limited.objects), limited.matched) == (1, 3)


async def test_one_object_comes_with_what_the_service_sees_now(
    asked: introspection.Client,
) -> None:
    reply = await asked.object("shop/cart")
    assert [one.decision for one in reply.objects] == ["CreateVolume"]
    assert [(one.text, one.blocks) for one in reply.findings] == [("waits for a pod", True)]


async def test_an_object_that_nobody_knows_is_not_found(asked: introspection.Client) -> None:
    with pytest.raises(RpcError, match="csi-provisioner has not worked on 'x/y'") as caught:
        await asked.object("x/y")
    assert caught.value.code is Code.NOT_FOUND


async def test_decisions_are_streamed_as_they_are_made(
    asked: introspection.Client, book: ledger.Ledger
) -> None:
    async with contextlib.aclosing(asked.decisions(loop="claims", key="shop/")) as decisions:
        first = asyncio.ensure_future(anext(decisions))
        await waiting.until(lambda: book._subscriptions, "somebody listens")
        book.decided("claims", "other/one", "Skip", "not asked for")
        book.decided("volumes", "shop/one", "Skip", "not asked for")
        book.decided("claims", "shop/one", "Wait", "for the pod")
        made = await first
        assert (made.key, made.decision, made.reason, made.dropped) == (
            "shop/one",
            "Wait",
            "for the pod",
            0,
        )
    await waiting.until(lambda: not book._subscriptions, "nobody listens any more")


async def test_a_service_that_is_not_there_is_unavailable(path: str) -> None:
    with pytest.raises(RpcError) as caught:
        await introspection.connect(path, timeout=0.05).__aenter__()
    assert caught.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize("name", ["no/such.sock", "x" * 107], ids=["no folder", "too long"])
async def test_without_a_place_there_is_a_warning_or_an_error(
    path: str, book: ledger.Ledger, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    sources = introspection.Sources(program="p", version="1", ledger=book)
    elsewhere = f"{path}.d/{name}"
    silent = await introspection.serve(sources, elsewhere, {}, is_required=False)
    await silent.stop()
    assert "Introspection is off" in caplog.text
    with pytest.raises(process.ExitError, match=r"--introspection-socket: .*" + name):
        await introspection.serve(sources, elsewhere, {}, is_required=True)
