"""What becomes of a container, and of a pod by its containers: the kubelet's rules, pure."""

import datetime as dt
import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from bitts.core import backoff

from devcluster.node import model
from devcluster.node.model import Container, Seen

RESTART_START, RESTART_MAX = 1.0, 60.0  # seconds; the first restart is immediate
Obj = dict[str, Any]


class Fate(enum.Enum):
    """Where a container is on its way."""

    NEW = "new"
    RUNNING = "running"
    RESTART = "restart"
    DONE = "done"
    FAILED = "failed"


def fate(pod: model.Pod, container: Container, *, init: bool) -> Fate:
    """Judge a container by its end and the pod's restart policy."""
    if container.running:
        return Fate.RUNNING
    if container.code is None:
        return Fate.NEW
    policy = pod.spec.get("restartPolicy", "Always")
    if container.code == 0 and (init or policy != "Always"):
        return Fate.DONE
    return Fate.FAILED if policy == "Never" else Fate.RESTART


def restart_delay(container: Container, now: float) -> float:
    """Seconds until an ended container may start again."""
    if container.attempt <= 0:
        return 0.0
    pause = backoff.delay(container.attempt - 1, RESTART_START, RESTART_MAX)
    return max(0.0, container.finished + pause - now)


def names(pod: model.Pod, *, init: bool) -> list[str]:
    """The pod's (init) containers in their order."""
    return [
        str(one["name"]) for one in pod.spec.get("initContainers" if init else "containers") or ()
    ]


def fates(seen: Seen, pod: model.Pod, *, init: bool) -> dict[str, Fate]:
    """The fate of each (init) container."""
    none = Container()
    return {
        name: fate(pod, seen.containers.get(name, none), init=init)
        for name in names(pod, init=init)
    }


def phase(seen: Seen, pod: model.Pod) -> str:
    """The pod's phase by its containers."""
    before, after = fates(seen, pod, init=True), fates(seen, pod, init=False)
    if Fate.FAILED in before.values():
        return "Failed"
    if set(before.values()) - {Fate.DONE} or Fate.NEW in after.values():
        return "Pending"
    if is_over(seen, pod):
        codes = {seen.containers[name].code for name in after}
        return "Succeeded" if codes == {0} else "Failed"
    if {Fate.RUNNING, Fate.RESTART} & set(after.values()):
        return "Running"
    return "Failed" if Fate.FAILED in after.values() else "Succeeded"


def is_over(seen: Seen, pod: model.Pod) -> bool:
    """Whether a deleted pod has run and does so no longer, whatever its restart policy."""
    after = fates(seen, pod, init=False).values()
    return pod.deleting and not {Fate.NEW, Fate.RUNNING} & set(after)


def status(seen: Seen, pod: model.Pod) -> Obj:
    """The parts of the pod's status that the node agent writes."""
    initialized = all(one is Fate.DONE for one in fates(seen, pod, init=True).values())
    found = phase(seen, pod)
    running = fates(seen, pod, init=False).values()
    ready = found == "Running" and all(one is Fate.RUNNING for one in running)
    why = "PodCompleted" if found == "Succeeded" else "ContainersNotReady"
    truth = {"Initialized": initialized, "ContainersReady": ready, "Ready": ready}
    result: Obj = {
        "phase": found,
        "conditions": _conditions(pod, truth, why, seen.now),
        "containerStatuses": _statuses(seen, pod, init=False),
        "hostIP": "127.0.0.1",
        "startTime": pod.status.get("startTime") or _time(seen.now),
    }
    if pod.spec.get("initContainers"):
        result["initContainerStatuses"] = _statuses(seen, pod, init=True)
    return result


def _conditions(pod: model.Pod, truth: Mapping[str, bool], why: str, now: float) -> list[Obj]:
    old: Sequence[Obj] = pod.status.get("conditions") or ()
    kept = [one for one in old if one["type"] not in truth]
    for kind, value in truth.items():
        new: Obj = {"type": kind, "status": str(value), **({} if value else {"reason": why})}
        before = next((one for one in old if one["type"] == kind), {})
        same = before.get("status") == new["status"]
        new["lastTransitionTime"] = before["lastTransitionTime"] if same else _time(now)
        kept.append(new)
    return kept


def _statuses(seen: Seen, pod: model.Pod, *, init: bool) -> list[Obj]:
    images = {one["name"]: one.get("image", "") for one in _all_containers(pod)}
    found = []
    for name, state in fates(seen, pod, init=init).items():
        container = seen.containers.get(name, Container())
        running = state is Fate.RUNNING
        run = container_id(seen.uid, name, container)
        one: Obj = {
            "name": name,
            "image": images[name],
            "imageID": "",
            "ready": running if not init else state is Fate.DONE,
            "started": running,
            "restartCount": max(container.attempt, 0),
            "state": _state(seen, container, state, run),
        }
        if run:
            one["containerID"] = run
        if state is Fate.RESTART:
            one["lastState"] = {"terminated": _terminated(container, run)}
        found.append(one)
    return found


def container_id(uid: str, name: str, container: Container) -> str:
    """Return what tells this run of a container from every other; "" before the first."""
    if container.attempt < 0:
        return ""
    run = f"{uid}/{name}/{container.attempt}"
    return f"devcluster://{hashlib.sha256(run.encode()).hexdigest()}"


def _all_containers(pod: model.Pod) -> list[Mapping[str, Any]]:
    return [*(pod.spec.get("initContainers") or ()), *(pod.spec.get("containers") or ())]


def _state(seen: Seen, container: Container, state: Fate, run: str) -> Obj:
    if state is Fate.RUNNING:
        return {"running": {"startedAt": _time(container.started)}}
    if state is Fate.NEW:
        waiting = {"reason": "ContainerCreating"}
        return {"waiting": {**waiting, **({"message": seen.problem} if seen.problem else {})}}
    if state is Fate.RESTART:
        text = f"restarting after exit code {container.code}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": text}}
    return {"terminated": _terminated(container, run)}


def _terminated(container: Container, run: str) -> Obj:
    reason = "Completed" if container.code == 0 else "Error"
    ended: Obj = {"exitCode": container.code, "reason": reason, "containerID": run}
    if container.message:
        ended["message"] = container.message
    for name, moment in (("startedAt", container.started), ("finishedAt", container.finished)):
        if moment:
            ended[name] = _time(moment)
    return ended


def _time(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
