"""Which rules of another plugin are a container's, by the names that the reference gives."""

import pytest
from cni_daemon import inherited
from support import cnicalls


@pytest.mark.parametrize(
    ("plugin", "container", "names"),
    [
        ("bridge", "c9", ["CNI-84399f1cbf95073dd06522e8"]),
        ("ptp", "c9", ["CNI-84399f1cbf95073dd06522e8"]),
        ("portmap", "c1", ["CNI-DN-bf975393d85d8292ac12f", "CNI-SN-bf975393d85d8292ac12f"]),
        ("loopback", "c1", []),
    ],
)
def test_chains_are_named_as_upstream_names_them(
    plugin: str, container: str, names: list[str]
) -> None:
    call = cnicalls.call({"name": "tnet", "type": plugin}, container=container)
    assert [each.name for each in inherited.chains(plugin, call)] == names


def test_rules_lead_to_a_chain_by_their_last_words() -> None:
    rules = (
        '-A X -s 10.0.0.2/32 -m comment --comment "a -j CNI-1" -j CNI-1',
        '-A X -m comment --comment "-j CNI-1" -j CNI-2',
        "-A X -j CNI-11",
        "-A X -g CNI-1",
    )
    assert [*inherited.leading_to("CNI-1", rules)] == [rules[0], rules[3]]


def test_rules_about_an_address_accept_it_alone() -> None:
    rules = (
        "-A CNI-FORWARD -d 10.0.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A CNI-FORWARD -s 10.0.0.2/32 -j ACCEPT",
        "-A CNI-FORWARD -s 10.0.0.22/32 -j ACCEPT",
        "-A CNI-FORWARD -s 10.0.0.0/24 -j ACCEPT",
        "-A CNI-FORWARD -s 10.0.0.2/32 -j DROP",
        "-A CNI-FORWARD -s 10.0.0.2/32 -d 10.0.0.3/32 -j ACCEPT",
        "-A CNI-FORWARD -m mark --mark 0x1000/0x1000 -j ACCEPT",
        "-A CNI-FORWARD -s fd00::2/128 -j ACCEPT",
    )
    assert [*inherited.about(["10.0.0.2"], rules)] == [*rules[:2]]
    assert [*inherited.about(["fd00::2"], rules)] == [rules[7]]
