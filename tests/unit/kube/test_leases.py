"""Leader election against a server: as client-go does it, and safe when things break."""

import asyncio
import contextlib
import dataclasses
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from bitts.core import process, sidecarflags
from bitts.kube import client as clients
from bitts.kube import events, leaserecords, leases
from support import kubefake, waiting

LEASES = "apis/coordination.k8s.io/v1/leases"
NAME = "local-csi-example"
KEY = (LEASES, "ns", NAME)


@dataclasses.dataclass(frozen=True)
class Quick:
    """Durations short enough for tests."""

    namespace: str = "ns"
    lease_duration: float = 0.6
    renew_deadline: float = 0.4
    retry_period: float = 0.05
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Replica:
    """One contender, its work and what became of it."""

    def __init__(self, client: clients.Client, identity: str, options: Quick, **more: Any) -> None:
        self.statuses: list[bool] = []
        self.working = False
        self.finish = asyncio.Event()
        self.election = leases.LeaderElection(
            client, options, NAME, identity, on_status=self.statuses.append, **more
        )
        self.task = asyncio.create_task(self.election.run(self.work), name=identity)

    async def work(self) -> None:
        self.working = True
        try:
            await self.finish.wait()
        finally:
            self.working = False

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


Join = Callable[..., Replica]


@pytest.fixture
async def join(client: clients.Client) -> AsyncIterator[Join]:
    replicas: list[Replica] = []

    def make(identity: str, options: Quick | None = None, **more: Any) -> Replica:
        replicas.append(Replica(client, identity, options or Quick(), **more))
        return replicas[-1]

    yield make
    for replica in replicas:
        if not replica.task.done():
            await replica.stop()


def spec(fake: kubefake.FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = fake.objects[KEY]["spec"]
    return found


async def until_working(replica: Replica) -> None:
    await waiting.until(lambda: replica.working, f"{replica.election.identity} works")


async def test_the_first_replica_creates_the_lease(fake: kubefake.FakeApi, join: Join) -> None:
    one = join("host.1", Quick(lease_duration=15.7, labels={"app": "x"}))
    await until_working(one)
    body = fake.seen("POST")[0].body
    assert body["metadata"] == {
        "name": NAME,
        "labels": {"app": "x"},
        "namespace": "ns",
        "uid": body["metadata"]["uid"],
        "resourceVersion": body["metadata"]["resourceVersion"],
    }
    assert (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert body["spec"]["holderIdentity"] == "host-1"
    assert body["spec"]["leaseDurationSeconds"] == 15
    assert body["spec"]["leaseTransitions"] == 0
    assert body["spec"]["acquireTime"] == body["spec"]["renewTime"]
    dt.datetime.strptime(body["spec"]["renewTime"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.UTC)
    assert one.statuses == [False, True]
    assert one.election.is_leader


async def test_a_leader_renews_with_one_write_and_keeps_what_others_put_there(
    fake: kubefake.FakeApi, join: Join
) -> None:
    one = join("one", Quick(lease_duration=10, labels={"app": "x"}))
    await until_working(one)
    acquired = spec(fake)["acquireTime"]
    foreign = fake.objects[KEY] | {"unknown": 1}
    foreign["metadata"] = foreign["metadata"] | {"labels": {"foreign": "y"}}
    fake.put(LEASES, foreign)
    await waiting.until(lambda: "app" in fake.objects[KEY]["metadata"]["labels"], "renewed again")
    assert fake.objects[KEY]["metadata"]["labels"] == {"foreign": "y", "app": "x"}
    assert fake.objects[KEY]["unknown"] == 1
    reads = fake.count("GET")
    writes = fake.count("PUT")
    await waiting.until(lambda: fake.count("PUT") >= writes + 3, "three more renewals")
    assert fake.count("GET") == reads, "without a read"
    assert spec(fake)["acquireTime"] == acquired
    assert spec(fake)["leaseTransitions"] == 0


async def test_only_one_leads_and_the_next_follows_at_once_when_it_stops(
    fake: kubefake.FakeApi, join: Join
) -> None:
    one = join("one", Quick(lease_duration=30))
    await until_working(one)
    two = join("two", Quick(lease_duration=30))
    await waiting.until(lambda: fake.count("GET") >= 4, "the second has looked a few times")
    assert not two.working
    assert two.election.holder == "one"
    await one.stop()
    assert one.statuses == [False, True, False]
    await until_working(two)  # long before thirty seconds
    assert spec(fake)["leaseTransitions"] == 1
    assert spec(fake)["holderIdentity"] == "two"


async def test_a_released_lease_is_as_client_go_releases_it(
    fake: kubefake.FakeApi, join: Join
) -> None:
    one = join("one")
    await until_working(one)
    await one.stop()
    assert spec(fake)["holderIdentity"] == ""
    assert spec(fake)["leaseDurationSeconds"] == 1
    assert spec(fake)["leaseTransitions"] == 0


async def test_a_lease_is_kept_if_asked_for(fake: kubefake.FakeApi, join: Join) -> None:
    one = join("one", release=False)
    await until_working(one)
    await one.stop()
    assert spec(fake)["holderIdentity"] == "one"


async def test_a_dead_leader_is_followed_after_the_duration_that_it_wrote(
    fake: kubefake.FakeApi, join: Join
) -> None:
    old = "2001-01-01T00:00:00.000000Z"  # its clock is of no interest
    held = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 1,
        "renewTime": old,
        "leaseTransitions": 4,
        "strategy": "unknown",
    }
    fake.put(LEASES, {"metadata": {"name": NAME, "namespace": "ns"}, "spec": held})
    one = join("one")
    await waiting.until(lambda: one.election.holder == "dead", "it has looked")
    assert not one.working
    await until_working(one)
    assert spec(fake)["leaseTransitions"] == 5
    assert spec(fake)["strategy"] == "unknown"


async def test_the_same_identity_continues_at_once(fake: kubefake.FakeApi, join: Join) -> None:
    held = {"holderIdentity": "one", "leaseDurationSeconds": 3600, "leaseTransitions": 4}
    fake.put(LEASES, {"metadata": {"name": NAME, "namespace": "ns"}, "spec": held})
    one = join("one")
    await until_working(one)
    assert spec(fake)["leaseTransitions"] == 4


@pytest.mark.parametrize(
    "fault",
    [{"silent": True}, {"status": 500, "reason": "InternalError"}, {"cut": "before"}],
    ids=["silence", "errors", "cuts"],
)
async def test_who_cannot_renew_stops_and_says_so(
    fake: kubefake.FakeApi, join: Join, fault: dict[str, Any]
) -> None:
    one = join("one")
    await until_working(one)
    fake.fail(times=1000, **fault)
    with pytest.raises(leases.LeadershipLostError, match=NAME) as caught:
        await one.task
    assert isinstance(caught.value, process.ExitError)
    assert caught.value.code == 1
    assert not one.working
    assert one.statuses == [False, True, False]


async def test_who_sees_another_leader_stops_at_once(fake: kubefake.FakeApi, join: Join) -> None:
    one = join("one", Quick(lease_duration=60, renew_deadline=50))
    await until_working(one)
    usurped = {"holderIdentity": "two", "leaseDurationSeconds": 60, "leaseTransitions": 1}
    fake.put(LEASES, {"metadata": {"name": NAME, "namespace": "ns"}, "spec": usurped})
    with pytest.raises(leases.LeadershipLostError):
        await one.task
    assert spec(fake)["holderIdentity"] == "two", "and is not released by us"


async def test_a_conflict_costs_a_read_and_not_the_lease(
    fake: kubefake.FakeApi, join: Join
) -> None:
    slow: list[int] = []
    one = join("one", Quick(lease_duration=10), on_slow_path=lambda: slow.append(1))
    await until_working(one)
    fake.put(LEASES, fake.objects[KEY] | {"touched": 1})
    await waiting.until(lambda: slow, "a look at the lease")
    writes = fake.count("PUT")
    await waiting.until(lambda: fake.count("PUT") > writes, "renewed")
    assert one.working


async def test_a_stopping_leader_renews_until_its_work_is_done(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    may_end = asyncio.Event()
    winding_down = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            winding_down.set()
            await may_end.wait()

    election = leases.LeaderElection(client, Quick(), NAME, "one")
    task = asyncio.create_task(election.run(work))
    await waiting.until(lambda: election.is_leader, "elected")
    task.cancel()
    await winding_down.wait()
    writes = fake.count("PUT")
    await waiting.until(lambda: fake.count("PUT") >= writes + 2, "still renewing")
    assert spec(fake)["holderIdentity"] == "one"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert spec(fake)["holderIdentity"] == ""


async def finished() -> None:
    """Work that ends by itself."""


async def failing() -> None:
    raise RuntimeError("the work failed")


@pytest.mark.parametrize(
    ("work", "expected"),
    [(finished, contextlib.nullcontext()), (failing, pytest.raises(RuntimeError, match="work"))],
    ids=["finished", "failing"],
)
async def test_work_that_ends_gives_the_lease_back(
    fake: kubefake.FakeApi,
    client: clients.Client,
    work: Callable[[], Awaitable[None]],
    expected: contextlib.AbstractContextManager[Any],
) -> None:
    with expected:
        await leases.LeaderElection(client, Quick(), NAME, "one").run(work)
    assert spec(fake)["holderIdentity"] == ""


async def test_a_release_survives_a_renewal_that_landed_meanwhile(
    fake: kubefake.FakeApi, join: Join
) -> None:
    one = join("one", Quick(lease_duration=10, renew_deadline=9, retry_period=5))
    await until_working(one)
    fake.put(LEASES, fake.objects[KEY] | {"renewed": "behind our back"})
    await one.stop()
    assert spec(fake)["holderIdentity"] == ""


async def test_a_lease_that_cannot_be_released_expires(fake: kubefake.FakeApi, join: Join) -> None:
    one = join("one", Quick(lease_duration=10, renew_deadline=9, retry_period=5))
    await until_working(one)
    fake.fail(method="PUT", times=99, status=500, reason="InternalError")
    await one.stop()
    assert spec(fake)["holderIdentity"] == "one"
    assert one.statuses == [False, True, False]


async def test_leadership_is_told_as_events(
    fake: kubefake.FakeApi, client: clients.Client, join: Join
) -> None:
    recorder = events.EventRecorder(client, f"{NAME}/host.1")
    one = join("host.1", recorder=recorder)
    await until_working(one)
    await one.stop()
    await recorder.flush(10)
    bodies = [one.body for one in fake.seen("POST", "/namespaces/ns/events")]
    assert [one["message"] for one in bodies] == ["host-1 became leader", "host-1 stopped leading"]
    assert bodies[0]["reason"] == "LeaderElection"
    assert bodies[0]["source"] == {"component": f"{NAME}/host.1"}
    about = bodies[0]["involvedObject"]
    assert (about["kind"], about["name"], about["namespace"]) == ("Lease", NAME, "ns")
    assert about["uid"] == fake.objects[KEY]["metadata"]["uid"]


async def test_health_is_about_leaders_only(client: clients.Client, join: Join) -> None:
    now = [0.0]
    one = leases.LeaderElection(client, Quick(), NAME, "one", clock=lambda: now[0])
    now[0] = 1e6
    assert one.healthy(), "a follower is well"
    task = asyncio.create_task(one.run(asyncio.Event().wait))  # type: ignore[arg-type]
    await waiting.until(lambda: one.is_leader, "elected")
    renewal = one._observed_at
    now[0] = renewal + 20.5
    assert one.healthy()
    now[0] = renewal + 20.7
    assert not one.healthy()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hostpath.csi.k8s.io", "hostpath-csi-k8s-io"),
        ("a/b_c d", "a-b-c-d"),
        ("csi.", "csi-X"),
        ("Ümlaut-1", "-mlaut-1"),
        ("plain", "plain"),
    ],
)
def test_names_are_sanitised(name: str, expected: str) -> None:
    assert leases.sanitise(name) == expected


@pytest.mark.parametrize(
    ("durations", "words"),
    [
        ((10, 10, 5), "lease-duration"),
        ((15, 6, 5), "renew-deadline"),
        ((15, 10, 0), "retry-period"),
    ],
)
def test_durations_that_do_not_fit_are_refused(
    durations: tuple[float, float, float], words: str
) -> None:
    with pytest.raises(leases.ElectionError, match=words):
        leaserecords.validate(Quick("ns", *durations))


def test_the_flags_options_fit() -> None:
    leaserecords.validate(sidecarflags.ElectionOptions())


async def test_the_namespace_of_the_process(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "namespace"
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert await leases.own_namespace(file) == "default"
    file.write_text("from-file\n")
    assert await leases.own_namespace(file) == "from-file"
    monkeypatch.setenv("POD_NAMESPACE", "from-env")
    assert await leases.own_namespace(file) == "from-env"
