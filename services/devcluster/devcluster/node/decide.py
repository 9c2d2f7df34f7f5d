"""A pod's next steps, from what is known of it alone (pure).

Each pass takes the steps that are due and looks again; nothing is remembered between passes, so
an agent that was killed goes on where its predecessor was. A pod whose object is gone, or is to
go, is taken apart in the reverse order: processes, volumes, folder, object.
"""

import datetime as dt
from collections.abc import Sequence

from bitts.core.plans import Done, Failed, RetryLater, WaitFor

from devcluster.node import lifecycle, model
from devcluster.node.lifecycle import Fate
from devcluster.node.model import (
    Action,
    Finish,
    Forget,
    Kill,
    Report,
    Seen,
    SetUp,
    Start,
    TearDown,
    VolumeError,
)

Step = Action | RetryLater | WaitFor
FINISHED = {"Succeeded", "Failed"}


def decide(seen: Seen) -> list[Step]:
    """What to do about a pod now."""
    pod = seen.pod
    if pod is None or pod.deleting:
        return _take_apart(seen)
    if pod.status.get("phase") in FINISHED:
        return _release(seen)
    started = seen.record is not None and seen.record.ready
    if not seen.can_mount or not started:
        report = _report(seen, pod) if seen.problem else []
        return [*report, SetUp("the pod is bound to this node"), _again()]
    report = _report(seen, pod)
    if lifecycle.phase(seen, pod) in FINISHED:
        return [*report, *_release(seen)]
    steps = _run(seen, pod)
    soon = any(isinstance(step, Start) for step in steps) and not seen.problem
    return steps if soon else [*report, *steps]  # one write less: the next pass reports the start


def settle(seen: Seen, outcome: Done[Action] | Failed[Action]) -> Sequence[Step]:
    """What an outcome means; only failures change the plan."""
    if isinstance(outcome, Done):
        return []
    error = outcome.error
    if isinstance(error, VolumeError) and error.wait is not None:
        return [WaitFor(str(error), error.wait)]
    return [RetryLater(f"{type(outcome.action).__name__}: {error}")]


def _again() -> WaitFor:
    return WaitFor("what was done changes what is next", 0.0)


def _report(seen: Seen, pod: model.Pod) -> list[Step]:
    status = lifecycle.status(seen, pod)
    if all(pod.status.get(name) == value for name, value in status.items()):
        return []
    return [Report(status, f"phase {status['phase']}")]


def _release(seen: Seen) -> list[Step]:
    """A finished pod keeps its folder with the logs, but no volumes."""
    if seen.record is None or not seen.record.volumes:
        return []
    return [TearDown("all containers have ended")]


def _run(seen: Seen, pod: model.Pod) -> list[Step]:
    for name, fate in lifecycle.fates(seen, pod, init=True).items():
        if fate is not Fate.DONE:
            return _start(seen, name, fate, f"init container {name}")
    plan: list[Step] = []
    for name, fate in lifecycle.fates(seen, pod, init=False).items():
        plan += _start(seen, name, fate, f"container {name}")
    return plan


def _start(seen: Seen, name: str, fate: Fate, what: str) -> list[Step]:
    container = seen.containers.get(name, model.Container())
    if fate is Fate.NEW:
        return [Start(name, max(container.attempt, 0), f"{what} is due"), _again()]
    if fate is not Fate.RESTART:
        return []
    if delay := lifecycle.restart_delay(container, seen.now):
        return [WaitFor(f"{what} ended and starts again later", delay)]
    return [Start(name, container.attempt + 1, f"{what} ended and starts again"), _again()]


def _take_apart(seen: Seen) -> list[Step]:
    pod = seen.pod
    running = {name: one for name, one in seen.containers.items() if one.running}
    if running:
        left = _grace_left(pod, seen.now)
        why = "the pod is deleted" if pod else "the pod is gone"
        kills: list[Step] = [
            Kill(name, left <= 0, why)
            for name, one in running.items()
            if left <= 0 or not one.asked
        ]
        return [*kills, WaitFor("containers must end", max(left, 0.5))]
    plan: list[Step] = []
    if pod is not None and lifecycle.is_over(seen, pod):
        plan += _report(seen, pod)
    if seen.record is not None:
        plan += [TearDown("the pod is to go"), Forget("nothing is mounted any more")]
    if pod is not None:
        plan.append(Finish("nothing of the pod is left"))
    return plan


def _grace_left(pod: model.Pod | None, now: float) -> float:
    """Seconds that the deletion leaves the pod's processes."""
    if pod is None or not pod.metadata.deletion_grace_period_seconds:
        return 0.0
    deadline = dt.datetime.fromisoformat(pod.metadata.deletion_timestamp or "")
    return deadline.timestamp() - now
