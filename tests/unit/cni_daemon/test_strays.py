"""What of ours is in use although the journal does not know it, and what is not."""

import pytest
from bitts.net.links import Link
from bitts.net.nftables import Element, Goto
from cni_daemon import strays
from cni_daemon.devices import RemoveIdleGateway
from cni_daemon.operations import DeleteLink, Operation
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.sweeping import Kept

LABEL = "bitts-cni net/c1/eth0"


def link(name: str, kind: str = "veth", alias: str = LABEL, peer_netns: int | None = 4) -> Link:
    return Link(7, name, kind, alias=alias, peer_index=9, peer_netns=peer_netns)


def knowing(*undo: Operation) -> list[Entry]:
    return [Entry(Key("net", "c1", "eth0", "bridge#aa"), Phase.DONE, undo=undo)]


@pytest.mark.parametrize(
    ("found", "undo", "expected"),
    [
        ([link("veth1")], (), (["veth1"], [], [])),
        ([link("veth1")], (DeleteLink("host", "veth1", 7),), ([], [], [])),
        ([link("veth1", peer_netns=None)], (), ([], [], ["veth1"])),
        ([link("veth1", alias="somebody else's")], (), ([], [], [])),
        ([link("bwp1", "ifb")], (), ([], [], ["bwp1"])),
        ([link("cni0.5", alias="bitts-cni gateway of VLAN 5")], (), ([], ["cni0.5"], [])),
        ([link("cni0.5", alias="bitts-cni gateway of VLAN 5")],
         (RemoveIdleGateway("cni0.5", 5),), ([], [], [])),
    ],
    ids=["in use", "known", "leads nowhere", "not ours", "of none", "gateway", "known gateway"],
)  # fmt: skip
def test_a_pair_stays_as_long_as_its_other_end_is_somewhere(
    found: list[Link], undo: tuple[Operation, ...], expected: tuple[list[str], ...]
) -> None:
    parts = strays.parted(found, knowing(*undo))
    names = [[e.name for e in part] for part in (parts.standing, parts.gateways, parts.idle)]
    assert tuple(names) == expected


def test_what_slows_a_container_stays_with_its_pair() -> None:
    pair = Link(7, "veth1", "veth", alias=LABEL, peer_index=9, peer_netns=4)
    slowing = Link(8, "bwp1", "ifb", alias=LABEL)
    assert strays.parted([slowing, pair], []).standing == (slowing, pair)


@pytest.mark.parametrize(
    ("element", "stays"),
    [
        (Element(b"\x0a\x58\0\x02", Goto("masq")), True),
        (Element(b"\x0a\x58\0\x03", Goto("masq")), False),
        (Element(b"\x06\0\0\0\x1f\x90\0\0", b"\x0a\x58\0\x02\0\x50\0\0"), True),
        (Element(b"\x06\0\0\0\x1f\x90\0\0", b"\x0a\x58\0\x03\0\x50\0\0"), False),
        (Element(b"\x06\0\0\0\x1f\x90\0\0", bytes(15) + b"\x02\0\x50\0\0"), True),
        (Element(b"veth1".ljust(16, b"\0")), True),
        (Element(b"veth1".ljust(16, b"\0") + b"\x02\0\0\0\0\x01\0\0"), True),
        (Element(b"veth12".ljust(16, b"\0")), False),
    ],
    ids=["address", "other address", "port to it", "port to another", "port by IPv6", "name",
         "name and MAC", "other name"],
)  # fmt: skip
def test_elements_about_somebody_who_stands_stay(element: Element, *, stays: bool) -> None:
    kept = Kept(frozenset([b"\x0a\x58\0\x02", bytes(15) + b"\x02"]), frozenset(["veth1"]))
    assert (element in kept) is stays
