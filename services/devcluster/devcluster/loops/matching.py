"""Which existing volume suits a claim: the rules of the volume controller and the scheduler."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from bitts.kube import objects, quantity, selectors

from devcluster.loops import facts
from devcluster.loops.facts import Obj


def is_reserved_for(volume: Obj, claim: Obj) -> bool:
    """Whether the volume's claimRef names this claim (a reservation may leave out the UID)."""
    ref = volume["spec"].get("claimRef")
    if not ref or facts.claim_ref_key(volume) != facts.key(claim):
        return False
    return ref.get("uid", "") in {"", facts.uid(claim)}


def mismatch(claim: Obj, volume: Obj) -> str | None:
    """Why a claim that names this volume cannot have it, or None."""
    if size(volume) < requested(claim):
        return "requested PV is too small"
    if facts.class_name(volume) != facts.class_name(claim):
        return "storageClassName does not match"
    if volume_mode(volume) != volume_mode(claim):
        return "incompatible volumeMode"
    if not set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"]):
        return "incompatible accessMode"
    return None


def best(
    claim: Obj, volumes: Iterable[Obj], node: Obj | None = None, taken: frozenset[str] = frozenset()
) -> Obj | None:
    """The volume reserved for the claim, else the smallest free one that suits (and, with a
    node, that the node can reach); volumes named in ``taken`` are left out."""
    suitable = []
    for volume in volumes:
        if volume["metadata"]["name"] in taken or facts.is_deleting(volume):
            continue
        if size(volume) < requested(claim) or volume_mode(volume) != volume_mode(claim):
            continue
        reachable = node is None or reaches(volume, node)
        if is_reserved_for(volume, claim):
            return volume if reachable else None
        if reachable and _is_free_for(claim, volume):
            suitable.append(volume)
    return min(
        suitable, key=lambda volume: (size(volume), volume["metadata"]["name"]), default=None
    )


def _is_free_for(claim: Obj, volume: Obj) -> bool:
    spec = claim["spec"]
    return (
        not volume["spec"].get("claimRef")
        and facts.phase(volume) == "Available"
        and facts.class_name(volume) == facts.class_name(claim)
        and set(spec["accessModes"]) <= set(volume["spec"]["accessModes"])
        and spec.get("volumeAttributesClassName") == volume["spec"].get("volumeAttributesClassName")
        and _selected(spec.get("selector"), volume["metadata"].get("labels") or {})
    )


def _selected(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selects(selector, labels)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a label selector; an empty one matches everything."""
    return selectors.matches_labels(msgspec.convert(selector, objects.LabelSelector), labels)


def selects_node(selector: Mapping[str, Any] | None, node: Obj) -> bool:
    """Whether a node satisfies a node selector; a missing one matches every node."""
    if selector is None:
        return True
    meta = node["metadata"]
    wanted = msgspec.convert(selector, objects.NodeSelector)
    return selectors.matches_node(wanted, meta["name"], meta.get("labels") or {})


def allows(topologies: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    """Whether a class's ``allowedTopologies`` permit a node with these labels; none permit all."""
    terms = msgspec.convert(list(topologies), list[objects.TopologySelectorTerm])
    return not terms or any(
        selectors.is_within(term, labels) for term in selectors.topology_terms(terms)
    )


def reaches(volume: Obj, node: Obj) -> bool:
    """Whether the volume's node affinity lets this node use it."""
    return selects_node((volume["spec"].get("nodeAffinity") or {}).get("required"), node)


def size(volume: Obj) -> int:
    """Capacity in bytes."""
    return quantity.to_bytes_ceil(volume["spec"].get("capacity", {}).get("storage", "0"))


def requested(claim: Obj) -> int:
    """Requested size in bytes, rounded up."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity.to_bytes_ceil(requests.get("storage", "0"))


def volume_mode(obj: Obj) -> str:
    """``Filesystem`` or ``Block``."""
    return str(obj["spec"].get("volumeMode") or "Filesystem")
