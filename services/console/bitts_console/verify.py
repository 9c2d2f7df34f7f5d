"""Whether what the demo sees is right: volumes as promised, bytes as written. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitts.kube import quantity

CHECKSUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PodResult:
    """How a pod ended, and the checksum it left."""

    pod: str
    data: str
    phase: str
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement that was checked."""

    subject: str
    text: str
    ok: bool


def volume(claim: Mapping[str, Any], found: Mapping[str, Any] | None) -> Verdict:
    """Judge the PersistentVolume that a bound claim got."""
    name = claim["metadata"]["name"]
    faults = ["there is none"] if found is None else _volume_faults(claim, found)
    if faults or found is None:
        return Verdict(name, f"volume: {'; '.join(faults)}", ok=False)
    size = found["spec"]["capacity"]["storage"]
    return Verdict(name, f"volume of {size} in class {found['spec']['storageClassName']}", ok=True)


def _volume_faults(claim: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    spec, wanted = found["spec"], claim["spec"]
    faults = []
    reference = spec.get("claimRef") or {}
    if reference.get("uid") != claim["metadata"]["uid"]:
        faults.append(f"spec.claimRef.uid is {reference.get('uid')!r}, not the claim's")
    size = quantity.to_bytes_ceil(spec["capacity"]["storage"])
    needed = quantity.to_bytes_ceil(wanted["resources"]["requests"]["storage"])
    if size < needed:
        faults.append(f"has {size} bytes, requested were {needed}")
    fields = ("storageClassName", "volumeMode", "accessModes")
    differing = [field for field in fields if spec.get(field) != wanted.get(field)]
    return faults + [
        f"spec.{field} is {spec.get(field)!r}, not {wanted.get(field)!r}" for field in differing
    ]


def at_driver(known: Iterable[str], listed: Iterable[str], *, is_exclusive: bool) -> Verdict:
    """Judge whether the driver has the volume handles that the cluster knows of.

    ``is_exclusive``: nobody else uses the driver, so it must have none besides.
    """
    expected, present = set(known), set(listed)
    text = f"{len(expected & present)} volumes in the cluster and at the driver"
    strays = [f"only in the cluster: {name}" for name in sorted(expected - present)]
    if is_exclusive:
        strays += [f"only at the driver: {name}" for name in sorted(present - expected)]
    return Verdict("driver", "; ".join([text, *strays]), ok=not strays)


def data(results: Sequence[PodResult]) -> list[Verdict]:
    """Judge each piece of data: every pod that wrote or read it must report one checksum."""
    groups: dict[str, list[PodResult]] = {}
    for result in results:
        groups.setdefault(result.data, []).append(result)
    return [_data_verdict(name, group) for name, group in sorted(groups.items())]


def _data_verdict(name: str, group: Sequence[PodResult]) -> Verdict:
    for result in group:
        if result.phase != "Succeeded":
            return Verdict(name, f"pod {result.pod} ended as {result.phase}", ok=False)
        if not CHECKSUM.fullmatch(result.message):
            return Verdict(name, f"pod {result.pod} left no checksum: {result.message!r}", ok=False)
    sums = {result.message for result in group}
    pods = ", ".join(result.pod for result in group)
    if len(sums) > 1:
        told = "; ".join(f"{result.pod} has {result.message[:12]}" for result in group)
        return Verdict(name, f"the bytes differ: {told}", ok=False)
    return Verdict(name, f"bytes with sha256 {sums.pop()[:12]}…, told by {pods}", ok=True)


def pod_result(pod: Mapping[str, Any], data_id: str) -> PodResult:
    """Read a pod's end from its status (the termination message of its first container)."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    terminated = (containers[0].get("state") or {}).get("terminated") or {}
    return PodResult(
        pod=pod["metadata"]["name"],
        data=data_id,
        phase=status.get("phase", "Pending"),
        message=terminated.get("message", "").strip(),
    )
