"""What the demo applies: manifests, and which of them this machine can carry out. Pure.

The manifests are plain Kubernetes YAML, equally good for ``kubectl apply`` on any cluster.
Pods that carry the annotation ``bitts.dev/data`` with the same value leave a checksum of the
same data as their termination message; the demo compares them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

DATA_ANNOTATION = "bitts.dev/data"
FILESYSTEM_PARAMETER = "csi.storage.k8s.io/fstype"
ORDER = ("Namespace", "CSIDriver", "StorageClass", "PersistentVolumeClaim", "Pod")


class ManifestError(Exception):
    """A manifest is not usable; the message names the file, the document and the field."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object to create."""

    kind: str
    name: str
    namespace: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this machine allows.

    ``mounts``: mounting and new mount namespaces; ``filesystems``: those that files can be given
    and mounted (none where there are no loop devices); ``hindrance`` says why something is
    missing.
    """

    mounts: bool
    filesystems: frozenset[str]
    hindrance: str = ""

    @property
    def images(self) -> bool:
        """Whether the driver can offer its image backend."""
        return bool(self.filesystems - {"btrfs"})

    def hindrance_of(self, backend: str) -> str:
        """Say why the driver cannot offer a backend here; empty where it can."""
        if backend == "image" and not self.images:
            return f"the image backend needs loop devices and mounts: {self.hindrance}"
        if backend == "btrfs" and "btrfs" not in self.filesystems:
            lacking = "the kernel has none, or mkfs.btrfs is missing (package btrfs-progs)"
            return f"the btrfs backend needs a btrfs: {self.hindrance or lacking}"
        return ""


@dataclass(frozen=True, slots=True)
class Omission:
    """Steps that are left out, and why."""

    what: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything the demo creates, in order of creation."""

    manifests: tuple[Manifest, ...]

    def of_kind(self, kind: str) -> list[Manifest]:
        """Return the manifests of one kind."""
        return [manifest for manifest in self.manifests if manifest.kind == kind]

    @property
    def claims(self) -> list[Manifest]:
        """The claims to be bound."""
        return self.of_kind("PersistentVolumeClaim")

    @property
    def pods(self) -> list[Manifest]:
        """The pods to be run to their end."""
        return self.of_kind("Pod")


def parse(texts: Mapping[str, str]) -> Scenario:
    """Read manifests from YAML texts by file name.

    Raises ManifestError for what is no YAML, no object, or of a kind the demo cannot follow.
    """
    found = [
        _manifest(document, f"{source}, document {number}")
        for source, text in sorted(texts.items())
        for number, document in enumerate(_documents(text, source), start=1)
        if document is not None
    ]
    if not found:
        raise ManifestError("there are no manifests: give a folder with *.yaml files")
    return Scenario(tuple(sorted(found, key=lambda manifest: ORDER.index(manifest.kind))))


def _documents(text: str, source: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ManifestError(f"{source}: not valid YAML: {error}") from error


def _manifest(document: Any, where: str) -> Manifest:
    if not isinstance(document, dict):
        raise ManifestError(f"{where}: expected an object with apiVersion and kind")
    kind = document.get("kind")
    if kind not in ORDER:
        raise ManifestError(f"{where}: kind {kind!r}: the demo knows {', '.join(ORDER)}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ManifestError(f"{where}: metadata.name is missing")
    namespaced = kind in ("PersistentVolumeClaim", "Pod")
    namespace = metadata.get("namespace", "default") if namespaced else ""
    return Manifest(kind, metadata["name"], namespace, document)


def restrict(scenario: Scenario, abilities: Abilities) -> tuple[Scenario, list[Omission]]:
    """Return what can be done here, and what is left out for which reason."""
    classes = {manifest.name: manifest.body for manifest in scenario.of_kind("StorageClass")}
    return leave_out(
        scenario,
        lambda claim: _claim_hindrance(claim, classes, abilities),
        "" if abilities.mounts else f"pods need mounts and namespaces: {abilities.hindrance}",
    )


def leave_out(
    scenario: Scenario, hindrance: Callable[[Manifest], str], pods: str = ""
) -> tuple[Scenario, list[Omission]]:
    """Return a scenario without the claims that have a hindrance, and without their pods.

    ``pods`` is what hinders every pod, if anything does.
    """
    reasons: dict[str, list[str]] = {}
    dropped_claims = set()
    for claim in scenario.claims:
        reason = hindrance(claim)
        if reason:
            dropped_claims.add((claim.namespace, claim.name))
            reasons.setdefault(reason, []).append(f"claim {claim.name}")
    dropped_pods = set()
    for pod in scenario.pods:
        reason = pods or _missing_claim(pod, dropped_claims)
        if reason:
            dropped_pods.add((pod.namespace, pod.name))
            reasons.setdefault(reason, []).append(f"pod {pod.name}")
    kept = tuple(
        manifest
        for manifest in scenario.manifests
        if (manifest.namespace, manifest.name)
        not in {"PersistentVolumeClaim": dropped_claims, "Pod": dropped_pods}.get(manifest.kind, ())
    )
    return Scenario(kept), [Omission(tuple(what), reason) for reason, what in reasons.items()]


def within(scenario: Scenario, namespace: str) -> Scenario:
    """Return the scenario with everything in one other namespace.

    So a demo never meets what a user made of the same manifests. Raises ManifestError when
    the manifests use several namespaces.
    """
    spaces = {manifest.namespace for manifest in scenario.manifests if manifest.namespace}
    if len(spaces) != 1:
        raise ManifestError("all claims and pods of a demo must be in one namespace")
    moved = tuple(_moved(manifest, namespace) for manifest in scenario.manifests)
    if not any(manifest.kind == "Namespace" for manifest in moved):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        moved = (Manifest("Namespace", namespace, "", body), *moved)
    return Scenario(moved)


def _moved(manifest: Manifest, namespace: str) -> Manifest:
    metadata = manifest.body["metadata"]
    if manifest.kind == "Namespace":
        body = {**manifest.body, "metadata": {**metadata, "name": namespace}}
        return replace(manifest, name=namespace, body=body)
    if not manifest.namespace:
        return manifest
    body = {**manifest.body, "metadata": {**metadata, "namespace": namespace}}
    return replace(manifest, namespace=namespace, body=body)


def _claim_hindrance(
    claim: Manifest, classes: Mapping[str, Mapping[str, Any]], abilities: Abilities
) -> str:
    storage_class = classes.get(claim.body.get("spec", {}).get("storageClassName", ""), {})
    parameters = storage_class.get("parameters") or {}
    backend = parameters.get("backend", "")
    if hindrance := abilities.hindrance_of(backend):
        return hindrance
    if backend == "image":
        wanted = parameters.get(FILESYSTEM_PARAMETER, "ext4")
        if wanted not in abilities.filesystems:
            return f"mkfs.{wanted} is missing: install the packages of debian-packages.txt"
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" and not abilities.mounts:
        return (
            f"a class that waits for the first consumer binds only for pods: {abilities.hindrance}"
        )
    return ""


def _missing_claim(pod: Manifest, dropped: Iterable[tuple[str, str]]) -> str:
    missing = [name for name in claims_of(pod) if (pod.namespace, name) in dropped]
    return f"claim {missing[0]} is left out" if missing else ""


def claims_of(pod: Manifest) -> list[str]:
    """Return the names of the claims that a pod uses."""
    volumes: Sequence[Mapping[str, Any]] = pod.body.get("spec", {}).get("volumes", ())
    sources = [volume.get("persistentVolumeClaim") for volume in volumes]
    return [source["claimName"] for source in sources if source]


def data_id(pod: Manifest) -> str:
    """Return which data a pod writes or reads ("" if it does not say)."""
    annotations: Mapping[str, str] = pod.body["metadata"].get("annotations") or {}
    return annotations.get(DATA_ANNOTATION, "")
