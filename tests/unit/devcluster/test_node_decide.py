"""A pod's next steps on its node, as tables."""

from typing import Any

import pytest
from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from devcluster.node import decide, lifecycle, model
from devcluster.node.model import Container, Finish, Forget, Kill, Mounted, Report, SetUp, Start
from support.manifests import NOW

NOW_UNIX = 1767323045.0  # NOW as Unix time
MOUNTED = Mounted(name="v", driver="d", handle="h", volume="pv", staging="/s", target="/t")
READY = model.Record(uid="u", namespace="ns", name="p", ready=True)
RUNNING = Container(0, running=True, started=NOW_UNIX - 9)
AGAIN = WaitFor("what was done changes what is next", 0.0)


def ended(code: int, attempt: int = 0, finished: float = NOW_UNIX) -> Container:
    return Container(attempt, code=code, started=NOW_UNIX - 9, finished=finished)


def pod(
    *, phase: str = "Pending", grace: int | None = None, deleted: str = NOW, **spec: Any
) -> model.Pod:
    marks: Any = {} if grace is None else {"deletion_timestamp": deleted}
    return model.Pod(
        metadata=model.PodMeta(
            name="p", namespace="ns", uid="u", deletion_grace_period_seconds=grace, **marks
        ),
        spec={"containers": [{"name": "main"}], "restartPolicy": "Always", **spec},
        status={"phase": phase},
    )


def seen(it: model.Pod | None, record: model.Record | None = READY, **more: Any) -> model.Seen:
    fields: dict[str, Any] = {"containers": {}, "problem": "", "can_mount": True, "now": NOW_UNIX}
    return model.Seen("u", it, record, **(fields | more))


def kinds(steps: Any) -> list[str]:
    return [type(step).__name__ for step in steps]


def phase_of(steps: Any) -> str:
    (report,) = (step for step in steps if isinstance(step, Report))
    return str(report.status["phase"])


@pytest.mark.parametrize("record", [None, model.Record(uid="u", namespace="ns", name="p")])
def test_volumes_come_first(record: model.Record | None) -> None:
    assert kinds(decide.decide(seen(pod(), record))) == ["SetUp", "WaitFor"]


def test_a_problem_is_reported_while_it_lasts() -> None:
    steps = decide.decide(seen(pod(), None, problem="no such claim"))
    assert kinds(steps) == ["Report", "SetUp", "WaitFor"]
    (report, *_) = steps
    assert isinstance(report, Report)
    (state,) = report.status["containerStatuses"]
    assert state["state"]["waiting"]["message"] == "no such claim"


def test_without_rights_nothing_is_started() -> None:
    assert kinds(decide.decide(seen(pod(), READY, can_mount=False))) == ["SetUp", "WaitFor"]


def test_a_container_is_started_then_reported() -> None:
    start = Start("main", 0, "container main is due")
    assert decide.decide(seen(pod())) == [start, AGAIN]
    steps = decide.decide(seen(pod(), containers={"main": RUNNING}))
    assert kinds(steps) == ["Report"]
    assert phase_of(steps) == "Running"


def test_what_is_reported_already_is_not_written_again() -> None:
    it = pod()
    told = lifecycle.status(seen(it, containers={"main": RUNNING}), it)
    same = model.Pod(metadata=it.metadata, spec=it.spec, status=told)
    later = seen(same, containers={"main": RUNNING}, now=NOW_UNIX + 100)
    assert decide.decide(later) == []


def test_init_containers_go_one_by_one() -> None:
    init: Any = {"initContainers": [{"name": "a"}, {"name": "b"}]}
    start, _ = decide.decide(seen(pod(**init)))
    assert isinstance(start, Start)
    assert start.container == "a"
    start, *_ = decide.decide(seen(pod(**init), containers={"a": ended(0)}))
    assert isinstance(start, Start)
    assert start.container == "b"
    steps = decide.decide(seen(pod(**init), containers={"a": ended(0), "b": RUNNING}))
    assert phase_of(steps) == "Pending"
    failed = seen(pod(restartPolicy="Never", **init), containers={"a": ended(1)})
    assert phase_of(decide.decide(failed)) == "Failed"


@pytest.mark.parametrize(
    ("policy", "code", "fate"),
    [
        ("Always", 0, lifecycle.Fate.RESTART),
        ("Always", 1, lifecycle.Fate.RESTART),
        ("OnFailure", 0, lifecycle.Fate.DONE),
        ("OnFailure", 1, lifecycle.Fate.RESTART),
        ("Never", 0, lifecycle.Fate.DONE),
        ("Never", 1, lifecycle.Fate.FAILED),
    ],
)
def test_restart_policies(policy: str, code: int, fate: lifecycle.Fate) -> None:
    assert lifecycle.fate(pod(restartPolicy=policy), ended(code), init=False) is fate


def test_init_containers_that_succeed_are_done_under_every_policy() -> None:
    assert lifecycle.fate(pod(), ended(0), init=True) is lifecycle.Fate.DONE


def test_restarts_wait_longer_each_time() -> None:
    first = decide.decide(seen(pod(), containers={"main": ended(1)}))
    assert first == [Start("main", 1, "container main ended and starts again"), AGAIN]
    steps = decide.decide(seen(pod(), containers={"main": ended(1, attempt=3)}))
    assert steps[-1] == WaitFor("container main ended and starts again later", 4.0)
    long_ago = ended(1, attempt=3, finished=NOW_UNIX - 100)
    assert kinds(decide.decide(seen(pod(), containers={"main": long_ago}))) == ["Start", "WaitFor"]
    assert lifecycle.restart_delay(ended(1, attempt=50), NOW_UNIX) == lifecycle.RESTART_MAX


@pytest.mark.parametrize(
    ("codes", "phase"), [((0, 0), "Succeeded"), ((0, 3), "Failed"), ((3, 0), "Failed")]
)
def test_a_pod_ends_with_its_containers(codes: tuple[int, int], phase: str) -> None:
    two = pod(restartPolicy="Never", containers=[{"name": "a"}, {"name": "b"}])
    states = {"a": ended(codes[0]), "b": ended(codes[1])}
    full = model.Record(uid="u", namespace="ns", name="p", ready=True, volumes=(MOUNTED,))
    steps = decide.decide(seen(two, full, containers=states))
    assert phase_of(steps) == phase
    assert kinds(steps) == ["Report", "TearDown"]


def test_a_finished_pod_keeps_its_folder_only() -> None:
    full = model.Record(uid="u", namespace="ns", name="p", ready=True, volumes=(MOUNTED,))
    assert kinds(decide.decide(seen(pod(phase="Failed"), full))) == ["TearDown"]
    assert decide.decide(seen(pod(phase="Succeeded"))) == []
    assert decide.decide(seen(pod(phase="Succeeded"), None)) == []


def test_a_deleted_pod_is_asked_to_end_then_killed() -> None:
    later = "2026-01-02T03:04:15Z"
    steps = decide.decide(seen(pod(grace=30, deleted=later), containers={"main": RUNNING}))
    assert steps == [
        Kill("main", False, "the pod is deleted"),
        WaitFor("containers must end", 10.0),
    ]
    asked = {"main": Container(0, running=True, asked=True)}
    assert kinds(decide.decide(seen(pod(grace=30, deleted=later), containers=asked))) == ["WaitFor"]
    over = decide.decide(seen(pod(grace=30), containers=asked))
    assert over[0] == Kill("main", True, "the pod is deleted")


@pytest.mark.parametrize("it", [None, pod(grace=0)], ids=["object gone", "no grace"])
def test_what_has_no_grace_is_killed_at_once(it: model.Pod | None) -> None:
    kill, _ = decide.decide(seen(it, containers={"main": RUNNING, "other": ended(0)}))
    assert isinstance(kill, Kill)
    assert kill.force


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (137, "Failed")])
def test_how_a_deleted_pod_ended_is_told_before_it_goes(code: int, phase: str) -> None:
    over = seen(pod(phase="Running", grace=30), containers={"main": ended(code)})
    steps = decide.decide(over)
    assert kinds(steps) == ["Report", "TearDown", "Forget", "Finish"]
    assert phase_of(steps) == phase


def test_what_is_left_goes_in_order() -> None:
    steps = decide.decide(seen(pod(grace=0)))
    assert kinds(steps) == ["TearDown", "Forget", "Finish"]
    assert kinds(decide.decide(seen(None))) == ["TearDown", "Forget"]
    assert kinds(decide.decide(seen(pod(grace=0), None))) == ["Finish"]


def test_settling() -> None:
    action = SetUp("why")
    assert decide.settle(seen(pod()), Done(action)) == []
    failed = Failed(Forget("why"), OSError("busy"))
    assert decide.settle(seen(pod()), failed) == [RetryLater("Forget: busy")]
    late = Failed(action, model.VolumeError("not attached", wait=3.0))
    assert decide.settle(seen(pod()), late) == [WaitFor("not attached", 3.0)]
    wrong = Failed(Finish("why"), model.VolumeError("no"))
    assert decide.settle(seen(pod()), wrong) == [RetryLater("Finish: no")]


def test_a_terminated_container_tells_all() -> None:
    it = pod(restartPolicy="Never")
    end = Container(0, code=3, message="bye", started=NOW_UNIX, finished=NOW_UNIX)
    (state,) = lifecycle.status(seen(it, containers={"main": end}), it)["containerStatuses"]
    assert state["containerID"].startswith("devcluster://")
    assert state["state"]["terminated"] == {
        "containerID": state["containerID"],
        "exitCode": 3,
        "reason": "Error",
        "message": "bye",
        "startedAt": NOW,
        "finishedAt": NOW,
    }


def test_every_run_of_a_container_has_its_own_id() -> None:
    runs = [Container(), ended(1, attempt=0), ended(1, attempt=1)]
    ids = [lifecycle.container_id("uid", "main", run) for run in runs]
    assert ids[0] == ""
    assert len({*ids, lifecycle.container_id("uid", "other", runs[1])}) == 4


def test_a_crash_loop_shows_the_last_end() -> None:
    it = pod()
    found = lifecycle.status(seen(it, containers={"main": ended(1, attempt=2)}), it)
    (state,) = found["containerStatuses"]
    assert state["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert state["lastState"]["terminated"]["exitCode"] == 1
    assert state["restartCount"] == 2
    assert found["phase"] == "Running"


def test_an_end_of_which_no_moment_is_known_is_told_without_moments() -> None:
    it = pod(restartPolicy="Never")
    end = Container(0, code=137)
    (state,) = lifecycle.status(seen(it, containers={"main": end}), it)["containerStatuses"]
    assert set(state["state"]["terminated"]) == {"containerID", "exitCode", "reason"}
