"""The event recorder against a server: exact objects, few writes, nobody in its way."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bitts.kube import client as clients
from bitts.kube import config as configuration
from bitts.kube import events, kinds, limiters, pacing, patches
from support import kubefake, waiting

COMPONENT = "local.csi.example_host_uid"
CLASS = kinds.STORAGE_CLASSES.reference("fast", uid="class-uid")
SUPERSEDES = {"ProvisioningSucceeded": ["Provisioning"], "ProvisioningFailed": ["Provisioning"]}
Record = Callable[..., events.EventRecorder]


def claim(number: int = 0) -> events.Ref:
    return kinds.PERSISTENT_VOLUME_CLAIMS.reference(f"c{number}", "shop", f"uid-{number}")


@pytest.fixture
async def record(client: clients.Client) -> AsyncIterator[Record]:
    """Make recorders that run until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    def make(**options: Any) -> events.EventRecorder:
        options = {"supersedes": SUPERSEDES, "hold": 0.05, "retry_interval": 0.02, **options}
        recorder = events.EventRecorder(client, COMPONENT, **options)
        tasks.append(asyncio.create_task(recorder.run(), name="events"))
        return recorder

    yield make
    for task in tasks:
        assert not task.done(), "a recorder never ends by itself"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def written(fake: kubefake.FakeApi) -> list[kubefake.JsonObject]:
    return [body for (collection, _, _), body in fake.objects.items() if "events" in collection]


def counts(fake: kubefake.FakeApi) -> collections.Counter[str]:
    return collections.Counter(one["reason"] for one in written(fake))


async def test_the_object_is_as_kubernetes_writes_it(
    fake: kubefake.FakeApi, record: Record
) -> None:
    record().emit(claim(), events.WARNING, "ProvisioningFailed", "no space")
    (body,) = await waiting.until(lambda: written(fake), "an event")
    name = body["metadata"]["name"]
    assert name.startswith("c0.")
    assert int(name.removeprefix("c0."), 16) > 0
    del body["metadata"]
    assert body.pop("firstTimestamp") == body.pop("lastTimestamp")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "shop",
            "name": "c0",
            "uid": "uid-0",
        },
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": "no space",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "count": 1,
    }
    assert fake.requests[0].path == "/api/v1/namespaces/shop/events"


async def test_cluster_scoped_objects_have_their_events_in_default(
    fake: kubefake.FakeApi, record: Record
) -> None:
    record().emit(kinds.PERSISTENT_VOLUMES.reference("pv:1"), "Normal", "VolumeDelete", "m" * 5000)
    (body,) = await waiting.until(lambda: written(fake), "an event")
    assert body["metadata"]["namespace"] == "default"
    assert ":" not in body["metadata"]["name"], "a name that is none is replaced"
    assert len(body["message"]) == 1024


async def test_a_repeated_event_is_counted_on_the_first_object(
    fake: kubefake.FakeApi, record: Record
) -> None:
    recorder = record()
    for _ in range(3):
        recorder.emit(claim(), events.WARNING, "ProvisioningFailed", "no space")
    await waiting.until(lambda: recorder.figures().written == 3, "all written")
    assert [one["count"] for one in written(fake)] == [3]
    assert (fake.count("POST"), fake.count("PATCH")) == (1, 2)


async def test_an_event_object_that_has_expired_is_made_anew(
    fake: kubefake.FakeApi, record: Record
) -> None:
    recorder = record()
    recorder.emit(claim(), events.WARNING, "ProvisioningFailed", "no space")
    (body,) = await waiting.until(lambda: written(fake), "an event")
    fake.objects.clear()
    recorder.emit(claim(), events.WARNING, "ProvisioningFailed", "no space")
    (again,) = await waiting.until(lambda: written(fake), "an event again")
    assert again["metadata"]["name"] == body["metadata"]["name"]
    assert again["count"] == 2


async def test_five_claims_have_their_own_events(fake: kubefake.FakeApi, record: Record) -> None:
    recorder = record()
    for number in range(5):
        recorder.emit(claim(number), "Normal", "Provisioning", "m", summary_on=CLASS)
    for number in range(5):
        recorder.emit(claim(number), "Normal", "ProvisioningSucceeded", "m", summary_on=CLASS)
    await waiting.until(lambda: recorder.figures().written == 5, "all written")
    names = {one["involvedObject"]["name"] for one in written(fake)}
    assert names == {f"c{number}" for number in range(5)}
    assert counts(fake) == {"ProvisioningSucceeded": 5}, "overtaken before it was written"


async def test_a_slow_claim_shows_that_it_is_being_worked_on(
    fake: kubefake.FakeApi, record: Record
) -> None:
    recorder = record()
    recorder.emit(claim(), "Normal", "Provisioning", "m", summary_on=CLASS)
    await waiting.until(lambda: counts(fake)["Provisioning"] == 1, "written after the hold")
    recorder.emit(claim(), "Normal", "ProvisioningSucceeded", "m", summary_on=CLASS)
    await waiting.until(lambda: counts(fake)["ProvisioningSucceeded"] == 1, "the next, too")


@pytest.mark.parametrize("overtaken", [True, False], ids=["quick driver", "slow driver"])
async def test_a_thousand_claims_cost_at_most_200_event_writes(
    fake: kubefake.FakeApi, record: Record, *, overtaken: bool
) -> None:
    recorder = record(hold=30.0 if overtaken else 0.0)
    for reason in ("Provisioning", "ProvisioningSucceeded"):
        for number in range(1000):
            recorder.emit(claim(number), "Normal", reason, f"m{number}", summary_on=CLASS)
        for number in range(10):
            recorder.emit(claim(number), events.WARNING, "Trouble", f"{reason} {number}")
    await waiting.until(lambda: recorder.figures().waiting == 0, "all decided")
    await recorder.flush(10)
    assert len(fake.requests) <= 200
    found = counts(fake)
    assert found["Trouble"] == 20, "warnings always arrive"
    sums = [one for one in written(fake) if one["involvedObject"]["kind"] == "StorageClass"]
    for reason in ("ProvisioningSucceeded",) if overtaken else ("Provisioning",):
        own = [one for one in written(fake) if one["reason"] == reason and one not in sums]
        total = [one["count"] for one in sums if one["reason"] == reason]
        assert len(own) + sum(total) == 1000, "each is told, by itself or in the sum"
    assert recorder.figures().superseded == (1000 if overtaken else 0)


async def test_warnings_of_many_objects_all_arrive(fake: kubefake.FakeApi, record: Record) -> None:
    recorder = record()
    for number in range(200):
        recorder.emit(claim(number), events.WARNING, "ProvisioningFailed", "m", summary_on=CLASS)
    await waiting.until(lambda: counts(fake)["ProvisioningFailed"] == 200, "all arrive")


async def test_events_never_stand_in_the_way_of_a_user_write(
    fake: kubefake.FakeApi, config: configuration.Config
) -> None:
    narrow = pacing.Pacing(limiters.Adaptive(start=1, maximum=1))
    async with clients.Client.connect(config, user_agent="x", pacing=narrow) as client:
        fake.put("api/v1/nodes", {"metadata": {"name": "n"}})
        recorder = events.EventRecorder(client, COMPONENT)
        for number in range(50):
            recorder.emit(claim(number), events.WARNING, "ProvisioningFailed", "m")
        fake.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(recorder.flush(30))
            await waiting.until(lambda: fake.in_flight == 1, "an event is being written")
            writes = [
                tasks.create_task(client.patch(kinds.NODES, "n", patches.labels({"a": str(one)})))
                for one in range(20)
            ]
            await waiting.until(lambda: narrow.figures().waiting_user == 20, "users wait")
            fake.gate.set()
            await asyncio.gather(*writes)
    verbs = [one.method for one in fake.requests]
    assert verbs[:21] == ["POST", *["PATCH"] * 20], "only the one under way was before them"
    assert fake.count("POST") == 50


async def test_lost_connections_are_retried_and_refusals_are_not(
    fake: kubefake.FakeApi, record: Record
) -> None:
    fake.fail(method="POST", cut="after")
    fake.fail(method="POST", times=2, cut="before")
    recorder = record()
    recorder.emit(claim(), events.WARNING, "ProvisioningFailed", "lost")
    await waiting.until(lambda: recorder.figures().written == 1, "written in the end")
    assert len(written(fake)) == 1, "not twice, though the first attempt had worked"
    fake.fail(method="POST", times=2, status=403, reason="Forbidden")
    recorder.emit(claim(1), events.WARNING, "ProvisioningFailed", "refused")
    recorder.emit(claim(2), events.WARNING, "ProvisioningFailed", "refused")
    recorder.emit(claim(3), events.WARNING, "ProvisioningFailed", "fine")
    await waiting.until(lambda: recorder.figures().written == 2, "the next goes on")
    assert recorder.figures().failed == 2
    assert fake.count("POST") == 4 + 3


async def test_a_flush_ends_in_time_and_counts_only_what_is_left(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    recorder = events.EventRecorder(client, COMPONENT, supersedes=SUPERSEDES)
    recorder.emit(claim(), "Normal", "Provisioning", "held")
    await recorder.flush(10)
    assert counts(fake) == {"Provisioning": 1}
    fake.fail(times=99, silent=True)
    recorder.emit(claim(), "Normal", "Provisioning", "never")
    await recorder.flush(0.1)
    assert fake.count("POST") == 2


async def test_spam_is_counted_only(fake: kubefake.FakeApi, record: Record) -> None:
    recorder = record()
    for _ in range(40):
        recorder.emit(claim(), events.WARNING, "ProvisioningFailed", "same")
    await waiting.until(lambda: recorder.figures().waiting == 0, "all decided")
    await recorder.flush(10)
    assert recorder.figures().counted_only == 15
    assert [one["count"] for one in written(fake)] == [25]
