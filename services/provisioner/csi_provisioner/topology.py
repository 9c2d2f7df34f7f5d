"""Where a volume has to be accessible: CreateVolume's accessibility requirements, as arithmetic.

A driver with topology names the label keys that matter on each node (CSINode); the nodes'
labels give the values. From these, the StorageClass and the selected node follow the
requisite and preferred terms. Everything is sorted, so that a repeated call repeats its words.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Term = tuple[tuple[str, str], ...]
"""One place: (key, value) pairs sorted by key."""

Allowed = Sequence[Sequence[tuple[str, Sequence[str]]]]
"""StorageClass.allowedTopologies: terms of (key, values)."""

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_MASK = 0xFFFFFFFF


class TopologyError(Exception):
    """No requirement can be made now; the text names what is missing where."""


class NodeVanishedError(TopologyError):
    """The selected node has no CSINode any more: another node has to be selected."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """``TopologyRequirement`` in plain values; preferred is an ordering of some requisite."""

    requisite: tuple[Term, ...]
    preferred: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """--strict-topology and --immediate-topology."""

    strict: bool = False
    immediate: bool = True


class Nodes:
    """What the cluster's nodes say about one driver; immutable, so that sums are kept.

    ``registered`` holds the topology keys per CSINode (empty: driver not registered there, or
    registered without keys), ``labels`` the labels per Node.
    """

    def __init__(
        self,
        registered: Mapping[str, tuple[str, ...]] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.registered = dict(registered or {})
        self.labels = dict(labels or {})
        self._key_sets: tuple[tuple[str, ...], ...] | None = None
        self._terms: dict[tuple[str, ...], tuple[Term, ...]] = {}

    def key_sets(self) -> tuple[tuple[str, ...], ...]:
        """Every distinct set of keys that nodes registered, in lexical order."""
        if self._key_sets is None:
            distinct = {tuple(sorted(keys)) for keys in self.registered.values() if keys}
            self._key_sets = tuple(sorted(distinct))
        return self._key_sets

    def terms(self, keys: tuple[str, ...]) -> tuple[Term, ...]:
        """One term per node that registered at least ``keys`` and carries them as labels."""
        if keys not in self._terms:
            found = {
                term_of(self.labels[node], keys)
                for node, registered in self.registered.items()
                if set(keys) <= set(registered) and set(keys) <= self.labels.get(node, {}).keys()
            }
            self._terms[keys] = tuple(sorted(found, key=_order))
        return self._terms[keys]


def requirement(
    claim_name: str, selected_node: str, allowed: Allowed, nodes: Nodes, settings: Settings
) -> Requirement | None:
    """The accessibility requirement for one claim; None where nothing restricts the volume.

    ``selected_node`` is empty for immediate binding. Raises TopologyError.
    """
    if selected_node:
        return _late(selected_node, allowed, nodes, settings)
    if not allowed and not settings.immediate:
        return None
    requisite = _tidy(flatten(allowed)) if allowed else _aggregate(nodes.key_sets(), nodes)
    if not requisite:
        return None
    start = spread(claim_name) % len(requisite)
    return Requirement(requisite, requisite[start:] + requisite[:start])


def _late(node: str, allowed: Allowed, nodes: Nodes, settings: Settings) -> Requirement | None:
    keys = _registered_keys(node, nodes)
    selected = _selected_term(node, keys, nodes)
    if settings.strict:
        terms = flatten(allowed)
        if allowed and not any(is_within(term, selected) for term in terms):
            raise TopologyError(
                f"selected node '\"{node}\"' topology '{_text(selected)}' is not in allowed"
                f" topologies: {'; '.join(map(_text, terms))}"
            )
        return Requirement((selected,), (selected,))
    requisite = _tidy(flatten(allowed)) if allowed else _aggregate((keys,), nodes)
    if not requisite:
        return None
    for start, term in enumerate(requisite):
        if is_within(term, selected):
            return Requirement(requisite, requisite[start:] + requisite[:start])
    raise TopologyError(
        f'topology {_text(selected)} from selected node "{node}" is not in requisite:'
        f" {'; '.join(map(_text, requisite))}"
    )


def _registered_keys(node: str, nodes: Nodes) -> tuple[str, ...]:
    if node not in nodes.registered:
        raise NodeVanishedError(f'error getting CSINode for selected node "{node}": not found')
    keys = tuple(sorted(nodes.registered[node]))
    if not keys:
        raise TopologyError(
            f"no topology key found for node {node}: its CSINode does not list the driver"
            " with topologyKeys (is the driver's node plugin running there?)"
        )
    return keys


def _selected_term(node: str, keys: tuple[str, ...], nodes: Nodes) -> Term:
    labels = nodes.labels.get(node, {})
    missing = [key for key in keys if key not in labels]
    if missing:
        raise TopologyError(
            f"topology labels from selected node {node} does not match topology keys from CSINode"
            f" {' '.join(keys)}: no label {', '.join(missing)}"
        )
    return term_of(labels, keys)


def _aggregate(key_sets: Sequence[tuple[str, ...]], nodes: Nodes) -> tuple[Term, ...]:
    if not key_sets:
        raise TopologyError(
            "no available topology found: no CSINode lists topologyKeys of the driver"
        )
    if len(key_sets) == 1:
        found = nodes.terms(key_sets[0])
    else:
        found = _tidy([term for keys in key_sets for term in nodes.terms(keys)])
    if not found:
        raise TopologyError(
            f"topologyKeys {[list(keys) for keys in key_sets]} were not found on any nodes"
        )
    return found


def flatten(allowed: Allowed) -> list[Term]:
    """Every combination of values that each allowedTopologies term stands for."""
    terms: list[Term] = []
    for expressions in allowed:
        if not expressions:
            continue
        choices = [[(key, value) for value in values] for key, values in expressions]
        terms += [tuple(sorted(pairs)) for pairs in itertools.product(*choices)]
    return terms


def is_within(term: Term, other: Term) -> bool:
    """Whether every (key, value) of ``term`` is one of ``other``."""
    return set(term) <= set(other)


def term_of(labels: Mapping[str, str], keys: Sequence[str]) -> Term:
    """The place that ``labels`` name for ``keys``, all of which must be there."""
    return tuple(sorted((key, labels[key]) for key in keys))


def spread(claim_name: str) -> int:
    """A number from the claim's name that places a StatefulSet's claims side by side.

    ``data-web-2`` gives the hash of ``web`` plus 2, in 32-bit arithmetic.
    """
    base, dash, ordinal = claim_name.rpartition("-")
    if not (dash and ordinal.isascii() and ordinal.isdigit() and int(ordinal) <= _MASK):
        return _fnv1(claim_name)
    return (_fnv1(base.rpartition("-")[2]) + int(ordinal)) & _MASK


def _fnv1(text: str) -> int:
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value * _FNV_PRIME & _MASK) ^ byte
    return value


def _order(term: Term) -> tuple[int, Term]:
    return len(term), term


def _tidy(terms: Sequence[Term]) -> tuple[Term, ...]:
    return tuple(sorted(set(terms), key=_order))


def _text(term: Term) -> str:
    return ",".join(f"{key}={value}" for key, value in term) or "(none)"
