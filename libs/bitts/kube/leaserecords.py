"""What stands in a leader election's Lease, spelled as client-go spells it (pure).

Source: coordination.k8s.io/v1 LeaseSpec and client-go's leader election, so that replicas
of ours and of upstream's can take over from each other.
"""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Protocol

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9-]")


class ElectionError(ValueError):
    """The durations of a leader election do not fit each other."""


class Options(Protocol):
    """Durations in seconds; ``labels`` are merged into the Lease's."""

    @property
    def namespace(self) -> str:
        """Where the Lease is; "" for the process's own namespace."""
        ...

    @property
    def lease_duration(self) -> float:
        """How long others wait for an unrenewed Lease."""
        ...

    @property
    def renew_deadline(self) -> float:
        """How long the leader tries to renew before it gives up."""
        ...

    @property
    def retry_period(self) -> float:
        """Between attempts to acquire and between renewals."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels for the Lease."""
        ...


def validate(options: Options) -> None:
    """Raises ElectionError if a leader could lose its Lease while it believes to hold it."""
    if not options.lease_duration > options.renew_deadline:
        raise ElectionError(
            f"leader-election-lease-duration ({options.lease_duration:g}s) must be longer than "
            f"leader-election-renew-deadline ({options.renew_deadline:g}s)"
        )
    if not options.renew_deadline > 1.2 * options.retry_period > 0:
        raise ElectionError(
            f"leader-election-renew-deadline ({options.renew_deadline:g}s) must be longer than "
            f"1.2 times leader-election-retry-period ({options.retry_period:g}s), and that above 0"
        )


def sanitise(name: str) -> str:
    """A Lease name or identity: whatever is no letter, digit or "-" becomes "-".

    A name that then ends in "-" gets an "X": ``hostpath.csi.k8s.io`` is
    ``hostpath-csi-k8s-io``, ``csi.`` is ``csi-X``.
    """
    name = _FORBIDDEN.sub("-", name)
    return f"{name}X" if name.endswith("-") else name


def micro_time(when: dt.datetime) -> str:
    """meta/v1 MicroTime: UTC with six decimals."""
    return when.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def holder(lease: Mapping[str, Any]) -> str:
    """Who holds it; "" for nobody."""
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def duration(lease: Mapping[str, Any]) -> float:
    """For how many seconds after a renewal it is valid, as its holder wrote."""
    return float(lease.get("spec", {}).get("leaseDurationSeconds") or 0)


def transitions(lease: Mapping[str, Any]) -> int:
    """How often it changed hands."""
    return int(lease.get("spec", {}).get("leaseTransitions") or 0)


def created(name: str, identity: str, options: Options, now: dt.datetime) -> dict[str, Any]:
    """The first Lease of its name."""
    metadata: dict[str, Any] = {"name": name}
    if options.labels:
        metadata["labels"] = dict(options.labels)
    spec = _held(identity, options, now) | {"acquireTime": micro_time(now), "leaseTransitions": 0}
    return {"metadata": metadata, "spec": spec}


def held(
    lease: Mapping[str, Any], identity: str, options: Options, now: dt.datetime
) -> dict[str, Any]:
    """The Lease as seen, taken over or renewed; what we do not know in it stays."""
    spec = dict(lease.get("spec", {})) | _held(identity, options, now)
    if holder(lease) != identity:
        spec |= {"acquireTime": micro_time(now), "leaseTransitions": transitions(lease) + 1}
    metadata = dict(lease["metadata"])
    if options.labels:
        metadata["labels"] = {**metadata.get("labels", {}), **options.labels}
    return {**lease, "metadata": metadata, "spec": spec}


def released(lease: Mapping[str, Any], now: dt.datetime) -> dict[str, Any]:
    """The Lease given back: whoever looks next may take it at once."""
    spec = dict(lease.get("spec", {})) | {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": micro_time(now),
        "renewTime": micro_time(now),
    }
    return {**lease, "spec": spec}


def _held(identity: str, options: Options, now: dt.datetime) -> dict[str, Any]:
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(options.lease_duration),
        "renewTime": micro_time(now),
    }
