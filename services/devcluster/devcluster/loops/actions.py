"""What the loops decide, as plain values, and the one place that carries it out."""

import collections
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from devcluster import api as apis
from devcluster import errors, metadata
from devcluster.loops import facts, names
from devcluster.loops.facts import Obj

EVENTS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge-patch an object, or one of its subresources."""

    kind: names.Kind
    key: str
    body: Obj
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; one that exists already is left alone."""

    kind: names.Kind
    body: Obj


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it still is the one that was seen."""

    kind: names.Kind
    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell the user something in an event about the object."""

    about: Obj
    reason: str
    message: str
    type: str = "Normal"


@dataclass(frozen=True, slots=True)
class Again:
    """Look once more after a delay in seconds, whatever happens meanwhile."""

    delay: float


Action = Patch | Create | Delete | Emit | Again


def describe(action: Action) -> str:
    """Say what an action does, without the values that it writes."""
    match action:
        case Patch(kind, key, body, subresource):
            fields = [f"metadata.{name}" for name in body.get("metadata") or ()]
            fields += [
                f"{part}.{name}" for part in ("spec", "status") for name in body.get(part) or ()
            ]
            where = f"{subresource} of {kind[0]}" if subresource else kind[0]
            return f"{where} {key}: {', '.join(fields)}"
        case Create(kind, body):
            return f"{kind[0]} {facts.key(body)}"
        case Delete(kind, key):
            return f"{kind[0]} {key}"
        case Emit(_, reason, message):
            return f"{reason}: {message}"
        case Again(delay):
            return f"in {delay:g} s"


class Performer:
    """Carries out actions under one component's name, as a part of the program that has it."""

    def __init__(self, api: apis.Api, component: str, told: Callable[[str, str], None]) -> None:
        """``told`` gets each action's name and what it does, before it is carried out."""
        self._api = api
        self._component = component
        self._manager = names.PROGRAMS.get(component, names.CONTROLLER_MANAGER)
        self._told = told
        self._events: collections.OrderedDict[tuple[str, str, str], tuple[str, int]] = (
            collections.OrderedDict()
        )

    def perform(self, actions: Iterable[Action]) -> float | None:
        """Carry out the actions in order; answers the soonest delay asked for, in seconds.

        Raises ApiError of the first action that the API server refuses. What an object's
        disappearance made pointless, and an event that cannot be written, are no errors.
        """
        delays = []
        for action in actions:
            self._told(type(action).__name__, describe(action))
            if isinstance(action, Again):
                delays.append(action.delay)
            else:
                self._perform(action)
        return min(delays, default=None)

    def _perform(self, action: Patch | Create | Delete | Emit) -> None:
        try:
            match action:
                case Patch(kind, key, body, subresource):
                    self._patch(kind, key, body, subresource)
                case Create(kind, body):
                    namespace = body["metadata"].get("namespace", "")
                    self._api.create(
                        self._api.resource(*kind), body, namespace, manager=self._manager
                    )
                case Delete(kind, key, uid):
                    namespace, name = facts.split(key)
                    self._api.delete(self._api.resource(*kind), name, namespace, uid=uid)
                case Emit():
                    self._emit(action)
        except errors.ApiError as error:
            is_late = error.reason in {"NotFound", "AlreadyExists"}
            if not is_late and not isinstance(action, Emit):
                raise

    def _patch(self, kind: names.Kind, key: str, body: Obj, subresource: str = "") -> None:
        namespace, name = facts.split(key)
        self._api.patch(
            self._api.resource(*kind),
            name,
            body,
            namespace,
            subresource=subresource,
            manager=self._manager,
        )

    def _emit(self, event: Emit) -> None:
        """Write an event, or count it up if the same was written before and is still there."""
        identity = (facts.uid(event.about), event.reason, event.message)
        key, count = self._events.get(identity, ("", 0))
        now = metadata.now()
        namespace, name = facts.split(key)
        if count and self._api.get(self._api.resource(*names.EVENTS), name, namespace):
            self._patch(names.EVENTS, key, {"count": count + 1, "lastTimestamp": now})
        else:
            body = self._event(event, now)
            key = facts.key(body)
            namespace = body["metadata"]["namespace"]
            self._api.create(
                self._api.resource(*names.EVENTS), body, namespace, manager=self._manager
            )
        self._events[identity] = (key, count + 1)
        self._events.move_to_end(identity)
        if len(self._events) > EVENTS_REMEMBERED:
            self._events.popitem(last=False)

    def _event(self, event: Emit, now: str) -> Obj:
        meta = event.about["metadata"]
        namespace = meta.get("namespace") or "default"
        regarding: dict[str, Any] = {
            "kind": event.about["kind"],
            "apiVersion": event.about["apiVersion"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        if "namespace" in meta:
            regarding["namespace"] = namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": regarding,
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
