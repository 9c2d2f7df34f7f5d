"""A scenario moved to one backend of local-driver, and what that cannot keep. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bitts_console import scenario
from bitts_console.scenario import Manifest, Omission, Scenario

EVERY = ("directory", "image", "btrfs")
_FILESYSTEMS = {"directory": (), "image": ("ext4", "xfs"), "btrfs": ("btrfs",)}
"""Which file systems a class may ask of a backend, on any node."""


def working(hindrance: Callable[[str], str]) -> tuple[list[str], list[Omission]]:
    """Return the backends that nothing hinders, and the others with what does."""
    reasons = {name: hindrance(name) for name in EVERY}
    left_out = [Omission((f"backend {n}",), reason) for n, reason in reasons.items() if reason]
    return [name for name, reason in reasons.items() if not reason], left_out


def kept_by(backend: str, plan: Scenario) -> tuple[Scenario, list[Omission]]:
    """Return a scenario all of whose classes choose ``backend``, and what that cannot keep.

    A class that has to change gets a name of its own, so that it is never taken for the one
    that a user may have applied already.
    """
    classes = {one.name: _class(one, backend) for one in plan.of_kind("StorageClass")}
    moved = tuple(_moved(manifest, classes) for manifest in plan.manifests)
    reason = f"backend {backend} has no raw volumes"
    return scenario.leave_out(
        Scenario(moved), lambda claim: reason if backend != "image" and _is_raw(claim) else ""
    )


def _is_raw(claim: Manifest) -> bool:
    return bool(claim.body.get("spec", {}).get("volumeMode") == "Block")


def _class(manifest: Manifest, backend: str) -> Manifest:
    given: Mapping[str, Any] = manifest.body.get("parameters") or {}
    allowed = _FILESYSTEMS[backend]
    wanted = {
        key: value
        for key, value in given.items()
        if key != scenario.FILESYSTEM_PARAMETER or value in allowed
    } | {"backend": backend}
    if wanted == given:
        return manifest
    name = f"{manifest.name}-as-{backend}"
    metadata = {**manifest.body["metadata"], "name": name}
    body = {**manifest.body, "metadata": metadata, "parameters": wanted}
    return replace(manifest, name=name, body=body)


def _moved(manifest: Manifest, classes: Mapping[str, Manifest]) -> Manifest:
    if manifest.kind == "StorageClass":
        return classes[manifest.name]
    spec = manifest.body.get("spec") or {}
    chosen = spec.get("storageClassName", "")
    if manifest.kind != "PersistentVolumeClaim" or chosen not in classes:
        return manifest
    body = {**manifest.body, "spec": {**spec, "storageClassName": classes[chosen].name}}
    return replace(manifest, body=body)
