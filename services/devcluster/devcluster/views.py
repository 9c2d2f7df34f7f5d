"""One object under several API versions: events by two names, custom resources by versions.

``show`` turns what is stored into what a version of the resource displays, ``store`` is its
inverse. For a row that is no view both are the identity.
"""

from collections.abc import Callable

from devcluster import errors, selectors
from devcluster.resources import Object, Resource
from devcluster.rules import IMMUTABLE
from devcluster.store import Stored, encode

_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_FIELDS_BACK = {shown: stored for stored, shown in _EVENT_FIELDS.items()}


def show(resource: Resource, value: Object) -> Object:
    """Return an object as this resource displays it."""
    if not resource.view_of:
        return value
    names = _EVENT_FIELDS if resource.view_of == "events" else {}
    shown = {names.get(name, name): part for name, part in value.items()}
    return shown | {"apiVersion": resource.api_version}


def store(resource: Resource, stored_as: Resource, value: Object) -> Object:
    """Return what a client wrote to this resource in the stored shape."""
    if not resource.view_of:
        return value
    names = _EVENT_FIELDS_BACK if resource.view_of == "events" else {}
    kept = {names.get(name, name): part for name, part in value.items()}
    return kept | {"apiVersion": stored_as.api_version}


_EVENT_FIXED = (
    "regarding",
    "related",
    "reason",
    "note",
    "type",
    "action",
    "eventTime",
    "reportingController",
    "reportingInstance",
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
)
"""Fields of an event that ``events.k8s.io`` does not let change; ``v1`` does."""


def through(
    resource: Resource, stored_as: Resource, transform: Callable[[Object], Object]
) -> Callable[[Object], Object]:
    """Return a change of the stored value for one of the displayed value; raises ApiError 422."""

    def change(old: Object) -> Object:
        before = show(resource, old)
        after = transform(before)
        if resource.view_of == "events":
            causes = [
                errors.invalid_value(_EVENT_FIELDS_BACK.get(name, name), after.get(name), IMMUTABLE)
                for name in _EVENT_FIXED
                if before.get(name) != after.get(name)
            ]
            if causes:
                raise errors.invalid("", "Event", old["metadata"]["name"], causes)
        return store(resource, stored_as, after)

    return change


def encoded(resource: Resource, stored: Stored) -> bytes:
    """Return an object's bytes as this resource displays it; shared where it is no view."""
    return encode(show(resource, stored.value)) if resource.view_of else stored.data


def selection(resource: Resource, label: str, field: str) -> selectors.Predicate:
    """Return a predicate over stored values for selectors that speak of displayed ones."""
    matches = selectors.compile_selectors(resource, label, field)
    if not resource.view_of or matches is selectors.matches_all:
        return matches
    return lambda value: matches(show(resource, value))
