"""What the agent knows and decides about a pod, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from bitts.kube import kinds, objects


class VolumeError(Exception):
    """A volume cannot be mounted now; the text says which and why.

    ``wait`` is given (in seconds) when nothing failed and it is only a matter of time.
    """

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class PodMeta(objects.ObjectMeta, frozen=True):
    """Metadata with the grace that a deletion leaves the pod, in seconds."""

    deletion_grace_period_seconds: int | None = None


class Pod(objects.Object, frozen=True):
    """A pod with all of its spec: the agent reads more of it than any sidecar."""

    metadata: PodMeta = PodMeta()
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


PODS = kinds.Kind("", "v1", "pods", "Pod", True, Pod)


class Mounted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CSI volume that a pod has, or is about to get: all that is needed to take it away."""

    name: str  # in the pod's spec
    driver: str
    handle: str
    volume: str  # the PersistentVolume
    staging: str
    target: str
    staged: bool = False  # whether the driver stages at all
    unique_name: str = ""  # in node.status.volumesInUse; empty if it is not attached
    attachment: str = ""  # its VolumeAttachment, likewise


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent keeps on disk of a pod, written before it acts."""

    uid: str
    namespace: str
    name: str
    volumes: tuple[Mounted, ...] = ()
    ready: bool = False  # all volumes are mounted


@dataclass(frozen=True, slots=True)
class Container:
    """A container's latest run: not started, running, or ended with a code."""

    attempt: int = -1
    running: bool = False
    asked: bool = False  # to end, by SIGTERM
    code: int | None = None
    message: str = ""
    started: float = 0.0  # Unix time
    finished: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A pod's UID with everything that decides the next step."""

    uid: str
    pod: Pod | None
    record: Record | None
    containers: Mapping[str, Container]
    problem: str  # why its volumes are not ready, from the last attempt
    can_mount: bool
    now: float  # Unix time


@dataclass(frozen=True, slots=True)
class SetUp:
    """Attach, stage and publish the pod's volumes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Run a container."""

    container: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a container: asked by SIGTERM, or told by SIGKILL."""

    container: str
    force: bool
    reason: str


@dataclass(frozen=True, slots=True)
class TearDown:
    """Unpublish and unstage the pod's volumes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove the pod's folder."""

    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Write the pod's status."""

    status: Mapping[str, Any] = field(hash=False)
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Tell the API server that nothing of a deleted pod is left."""

    reason: str


Action = SetUp | Start | Kill | TearDown | Forget | Report | Finish
