"""Leases (coordination.k8s.io/v1) and events (core/v1)."""

from bitts.kube.objects import meta


class LeaseSpec(meta.View, frozen=True):
    """coordination.k8s.io/v1 LeaseSpec; times are MicroTime texts."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(meta.Object, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = LeaseSpec()


class EventSource(meta.View, frozen=True):
    """Who reported an event."""

    component: str = ""
    host: str = ""


class Event(meta.Object, frozen=True):
    """core/v1 Event."""

    involved_object: meta.ObjectReference = meta.ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    source: EventSource = EventSource()
    reporting_component: str = ""
    first_timestamp: str | None = None
    last_timestamp: str | None = None
