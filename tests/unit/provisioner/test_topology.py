import pytest
from csi_provisioner import topology
from csi_provisioner.topology import Nodes, NodeVanishedError, Requirement, Settings, TopologyError
from hypothesis import given, settings
from hypothesis import strategies as st

ZONE, RACK = "example.com/zone", "example.com/rack"
Z1, Z2, Z3 = ((ZONE, "z1"),), ((ZONE, "z2"),), ((ZONE, "z3"),)
NODES = Nodes(
    {"a": (ZONE,), "b": (ZONE,), "c": (ZONE,), "bare": (), "unlabelled": (ZONE,)},
    {
        "a": {ZONE: "z1"},
        "b": {ZONE: "z2"},
        "c": {ZONE: "z3"},
        "bare": {ZONE: "z9"},
        "x": {ZONE: "z8"},
    },
)
STRICT, LOOSE, IMMEDIATE_OFF = Settings(strict=True), Settings(), Settings(immediate=False)


def allowed(*zones: str) -> topology.Allowed:
    return [[(ZONE, zones)]]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("testpvc", 1684622678),
        ("data-web-0", 1181096325),
        ("logs-web-2", 1181096325 + 2),
        ("vol-7", 543694016 + 7),
        ("data-my-app-1", 899422574 + 1),
        ("data-web-4294967295", (1181096325 + 4294967295) % 2**32),
        ("web", 1181096325),
    ],
)
def test_spread_follows_the_name(name: str, number: int) -> None:
    assert topology.spread(name) == number


@pytest.mark.parametrize("name", ["web-x", "data-web-4294967296", "web-", "web-²"])
def test_what_is_no_ordinal_is_part_of_the_name(name: str) -> None:
    assert topology.spread(name) == topology._fnv1(name)


@pytest.mark.parametrize(
    ("terms", "settings_", "requisite", "preferred"),
    [
        ((), STRICT, (Z2,), (Z2,)),
        (allowed("z1", "z2"), STRICT, (Z2,), (Z2,)),
        ((), LOOSE, (Z1, Z2, Z3), (Z2, Z3, Z1)),
        (allowed("z3", "z2"), LOOSE, (Z2, Z3), (Z2, Z3)),
        (allowed("z1", "z2"), LOOSE, (Z1, Z2), (Z2, Z1)),
    ],
    ids=["strict", "strict allowed", "loose", "loose allowed", "loose rotated"],
)
def test_late_binding_puts_the_selected_node_first(
    terms: topology.Allowed,
    settings_: Settings,
    requisite: tuple[topology.Term, ...],
    preferred: tuple[topology.Term, ...],
) -> None:
    found = topology.requirement("claim", "b", terms, NODES, settings_)
    assert found == Requirement(requisite, preferred)


def test_loose_late_binding_with_empty_allowed_terms_restricts_nothing() -> None:
    assert topology.requirement("claim", "b", [[]], NODES, LOOSE) is None


@pytest.mark.parametrize(
    ("node", "terms", "settings_", "message"),
    [
        ("bare", (), LOOSE, "no topology key found for node bare"),
        (
            "unlabelled",
            (),
            LOOSE,
            "topology labels from selected node unlabelled does not match topology keys from"
            f" CSINode {ZONE}: no label {ZONE}",
        ),
        (
            "b",
            allowed("z1"),
            STRICT,
            """selected node '"b"' topology 'example.com/zone=z2' is not in allowed topologies: """,
        ),
        ("b", [[]], STRICT, "is not in allowed topologies"),
        (
            "b",
            allowed("z1"),
            LOOSE,
            'from selected node "b" is not in requisite: example.com/zone=z1',
        ),
    ],
)
def test_late_binding_errors_say_what_is_missing_where(
    node: str, terms: topology.Allowed, settings_: Settings, message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        topology.requirement("claim", node, terms, NODES, settings_)
    assert message in str(caught.value)
    assert not isinstance(caught.value, NodeVanishedError)


def test_a_node_without_csinode_has_to_be_selected_anew() -> None:
    with pytest.raises(NodeVanishedError, match='CSINode for selected node "gone"'):
        topology.requirement("claim", "gone", (), NODES, LOOSE)


@pytest.mark.parametrize(
    ("name", "preferred"),
    [("data-web-0", (Z1, Z2, Z3)), ("data-web-1", (Z2, Z3, Z1)), ("data-web-2", (Z3, Z1, Z2))],
)
def test_immediate_binding_spreads_the_claims_of_a_stateful_set(
    name: str, preferred: tuple[topology.Term, ...]
) -> None:
    found = topology.requirement(name, "", (), NODES, LOOSE)
    assert found == Requirement((Z1, Z2, Z3), preferred)


def test_immediate_binding_without_topology_asks_for_none() -> None:
    assert topology.requirement("claim", "", (), NODES, IMMEDIATE_OFF) is None


def test_allowed_topologies_count_even_then() -> None:
    found = topology.requirement("data-web-0", "", allowed("z7"), NODES, IMMEDIATE_OFF)
    assert found == Requirement((((ZONE, "z7"),),), (((ZONE, "z7"),),))


def test_immediate_binding_with_empty_allowed_terms_restricts_nothing() -> None:
    assert topology.requirement("claim", "", [[]], NODES, LOOSE) is None


def test_immediate_binding_without_registered_nodes_waits() -> None:
    with pytest.raises(TopologyError, match="no available topology found"):
        topology.requirement("claim", "", (), Nodes({"a": ()}, {"a": {ZONE: "z1"}}), LOOSE)


def test_immediate_binding_without_labelled_nodes_names_the_keys() -> None:
    with pytest.raises(
        TopologyError, match=r"topologyKeys \[\['example.com/zone'\]\] were not found"
    ):
        topology.requirement("claim", "", (), Nodes({"a": (ZONE,)}, {}), LOOSE)


def test_several_key_sets_are_joined_shortest_first() -> None:
    nodes = Nodes(
        {"a": (ZONE,), "b": (RACK, ZONE)}, {"a": {ZONE: "z1"}, "b": {ZONE: "z1", RACK: "r1"}}
    )
    found = topology.requirement("data-web-0", "", (), nodes, LOOSE)
    assert found is not None
    assert found.requisite == (Z1, ((RACK, "r1"), (ZONE, "z1")))


def test_only_nodes_that_registered_the_keys_count() -> None:
    nodes = Nodes({"a": (ZONE,), "b": (RACK,)}, {"a": {ZONE: "z1"}, "b": {ZONE: "z2", RACK: "r"}})
    assert nodes.terms((ZONE,)) == (Z1,)


def test_flatten_makes_every_combination() -> None:
    terms = topology.flatten([[(ZONE, ("z1", "z2")), (RACK, ("r1",))], [], [(ZONE, ("z3",))]])
    assert terms == [((RACK, "r1"), (ZONE, "z1")), ((RACK, "r1"), (ZONE, "z2")), Z3]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["z1", "z2", "z3"]), min_size=1),
    st.text(alphabet="ab-01", min_size=1, max_size=8),
)
@settings(max_examples=100)
def test_preferred_is_a_rotation_of_requisite(zones: dict[str, str], name: str) -> None:
    nodes = Nodes(dict.fromkeys(zones, (ZONE,)), {n: {ZONE: zone} for n, zone in zones.items()})
    found = topology.requirement(name, "", (), nodes, LOOSE)
    assert found is not None
    assert sorted(found.preferred) == sorted(found.requisite)
    assert len(found.requisite) == len(set(zones.values()))
    selected = next(iter(zones))
    late = topology.requirement(name, selected, (), nodes, LOOSE)
    assert late is not None
    assert late.preferred[0] == ((ZONE, zones[selected]),)
