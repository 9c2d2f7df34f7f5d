"""Whether a pod fits a node, and if not why: the scheduler's filters as pure functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bitts.kube import quantity

from devcluster.loops import facts, matching, names
from devcluster.loops.facts import Obj


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A claim that the pod's volumes name, with what decides where it can be used."""

    key: str
    claim: Obj | None
    volume: Obj | None = None  # the one it is bound to
    storage_class: Obj | None = None
    free: Sequence[Obj] = ()  # unclaimed volumes of its class
    capacities: Sequence[Obj] = ()  # CSIStorageCapacity objects of its class
    driver: Obj | None = None  # CSIDriver of its volume or class
    user: str = ""  # another pod that uses it, bound to a node

    @property
    def is_bound(self) -> bool:
        """Whether the bond with its volume is complete."""
        claim = self.claim
        return claim is not None and facts.annotation(claim, names.BIND_COMPLETED) is not None

    @property
    def driver_name(self) -> str:
        """The CSI driver of its volume, or the one that its class would have make it."""
        if self.volume:
            return str((self.volume["spec"].get("csi") or {}).get("driver", ""))
        provisioner = str((self.storage_class or {}).get("provisioner", ""))
        return "" if provisioner == names.NO_PROVISIONER else provisioner

    @property
    def selected_node(self) -> str | None:
        """The node that its volume is being made for."""
        return facts.annotation(self.claim, names.SELECTED_NODE) if self.claim else None


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node with what is on it."""

    node: Obj
    csi_node: Obj | None = None
    pods: int = 0
    attached: Callable[[], Mapping[str, frozenset[str]]] = dict  # driver → volume handles

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.node["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Fit:
    """How the pod's unbound claims would be served on a node."""

    node: str
    static: tuple[tuple[str, str], ...] = ()  # (claim key, volume name) to bind
    dynamic: tuple[str, ...] = ()  # keys of claims to provision there
    problem: str = ""  # why the pod does not fit, empty if it does


@dataclass(slots=True)
class _Trial:
    static: dict[str, str] = field(default_factory=dict)
    dynamic: list[str] = field(default_factory=list)


def on_node(pod: Obj, claims: Sequence[ClaimSeen], seen: NodeSeen) -> Fit:
    """Try one node; a reason is worded so that ``N node(s) …`` reads well."""
    trial = _Trial()
    problem = _node_problem(pod, seen) or _volumes_problem(claims, seen, trial)
    if problem:
        return Fit(seen.name, problem=problem)
    return Fit(seen.name, tuple(trial.static.items()), tuple(trial.dynamic))


def _node_problem(pod: Obj, seen: NodeSeen) -> str | None:
    spec, node = pod["spec"], seen.node
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return "were not ready"
    if node["spec"].get("unschedulable"):
        return "were unschedulable"
    labels = node["metadata"].get("labels") or {}
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    labelled = all(labels.get(name) == value for name, value in wanted.items())
    if not labelled or not matching.selects_node(required, node):
        return "didn't match Pod's node affinity/selector"
    return None


def _volumes_problem(claims: Sequence[ClaimSeen], seen: NodeSeen, trial: _Trial) -> str | None:
    for claim in claims:
        insists = ((claim.driver or {}).get("spec") or {}).get("preventPodSchedulingIfMissing")
        if insists and claim.driver_name not in _drivers(seen):
            return "didn't have the CSI driver of a claim"
        if claim.is_bound:
            if claim.volume and not matching.reaches(claim.volume, seen.node):
                return "had volume node affinity conflict"
        elif problem := _unbound_problem(claim, seen, trial):
            return problem
    return _limit_problem(claims, seen)


def _unbound_problem(seen: ClaimSeen, node: NodeSeen, trial: _Trial) -> str | None:
    claim, storage_class = seen.claim, seen.storage_class
    if claim is None or storage_class is None:
        return "didn't find the storage class of a claim"
    if seen.selected_node is not None:
        return None if seen.selected_node == node.name else "didn't match the selected node"
    taken = frozenset(trial.static.values())
    if volume := matching.best(claim, seen.free, node.node, taken):
        trial.static[seen.key] = volume["metadata"]["name"]
        return None
    if storage_class["provisioner"] == names.NO_PROVISIONER:
        return "didn't find available persistent volumes to bind"
    labels = node.node["metadata"].get("labels") or {}
    if not matching.allows(storage_class.get("allowedTopologies") or (), labels):
        return "didn't match the allowed topologies of the storage class"
    if not _has_room(seen, matching.requested(claim), labels):
        return "did not have enough free storage"
    trial.dynamic.append(seen.key)
    return None


def _has_room(seen: ClaimSeen, wanted: int, labels: Mapping[str, str]) -> bool:
    """Drivers that publish capacity are believed; a node no object speaks of has none."""
    if not seen.driver or not seen.driver["spec"].get("storageCapacity"):
        return True
    for capacity in seen.capacities:
        free = capacity.get("maximumVolumeSize") or capacity.get("capacity")
        here = matching.selects(capacity.get("nodeTopology") or {}, labels)
        if free and here and "nodeTopology" in capacity and quantity.to_bytes_ceil(free) >= wanted:
            return True
    return False


def _drivers(seen: NodeSeen) -> dict[str, Obj]:
    """The CSI drivers registered on the node, by name."""
    entries: Iterable[Obj] = ((seen.csi_node or {}).get("spec") or {}).get("drivers") or ()
    return {entry["name"]: entry for entry in entries}


def _limit_problem(claims: Sequence[ClaimSeen], seen: NodeSeen) -> str | None:
    """A driver takes only so many volumes on one node; those it has there already are free."""
    new: dict[str, set[str]] = {}
    for claim in claims:
        source = ((claim.volume or {}).get("spec") or {}).get("csi") or {}
        volume = source.get("volumeHandle") or claim.key
        new.setdefault(claim.driver_name, set()).add(volume)
    for name, entry in _drivers(seen).items():
        limit = (entry.get("allocatable") or {}).get("count")
        if limit is None or name not in new:
            continue
        if len(new[name] | seen.attached().get(name, frozenset())) > limit:
            return "exceed max volume count"
    return None
