"""Templates: whatever is filled in, it is what the plugins would have planned with it."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from bitts.net import links
from bitts.net.addresses import Address
from bitts.net.links import Link
from cni_daemon import forms, holes, rehearsing, templates
from cni_daemon.forms import Form
from cni_daemon.holes import Given
from cni_daemon.model import Look, Observed, View
from cni_daemon.protocol import Frame
from cni_daemon.rehearsing import UnfitError
from hypothesis import given, settings
from hypothesis import strategies as st

BRIDGE = Link(7, "cni0", "bridge", "02:00:00:00:00:07", 1500, links.UP)
GATEWAYS = [ipaddress.ip_interface(each) for each in ("10.88.0.1/24", "fd00:88::1/64")]
HOST = View(
    {"cni0": BRIDGE},
    {"cni0": tuple(Address(7, each) for each in GATEWAYS)},
    {"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"},
)


class Everything(frozenset[str]):
    """Foundations of which all are laid."""

    def __contains__(self, _key: object) -> bool:
        return True


def see(_look: Look) -> Observed:
    return Observed(HOST, None, Everything())


def ipam(*subnets: str, **keys: Any) -> dict[str, Any]:
    return {"type": "host-local", "ranges": [[{"subnet": each}] for each in subnets], **keys}


DUAL = ipam("10.88.0.0/24", "fd00:88::/64")
BRIDGED: dict[str, Any] = {"type": "bridge", "isDefaultGateway": True, "ipam": DUAL}
LIMITS = dict.fromkeys(("ingressRate", "ingressBurst", "egressRate", "egressBurst"), 8_000_000)
CHAIN: dict[str, Any] = {
    "type": "bitts",
    "plugins": [
        {**BRIDGED, "ipMasq": True, "hairpinMode": True},
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "firewall"},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    ],
    "runtimeConfig": {
        "bandwidth": LIMITS,
        "portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": "10.0.0.1"},
        ],
    },
}
CONFIGS = {
    "plain": BRIDGED,
    "old": {**BRIDGED, "cniVersion": "0.2.0"},
    "listed": {**BRIDGED, "cniVersion": "0.4.0"},
    "with duplicate address detection": {**BRIDGED, "enabledad": True},
    "with a network that has percent signs": {**BRIDGED, "dns": {"domain": "100%s%d%"}},
    "VLANs": {**BRIDGED, "ipam": ipam("10.88.0.0/24"), "vlan": 5, "isDefaultGateway": False},
    "chain": CHAIN,
}


def frame(config: Mapping[str, Any], **variables: str) -> Frame:
    environment = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c0ffee00", "CNI_NETNS": "/run/netns/p",
        "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", **variables,
    }  # fmt: skip
    document = {"cniVersion": "1.0.0", "name": "net", **config}
    return Frame("ab" * 16, str(config["type"]), environment, json.dumps(document).encode())


def form(config: Mapping[str, Any], **variables: str) -> Form:
    order = forms.read(frame(config, **variables))
    assert order is not None
    return order.form


MACS = st.binary(min_size=6, max_size=6).map(lambda data: data.hex(":"))
INDEXES = st.integers(1 << 20, (1 << 31) - 1)
GIVEN = st.builds(
    Given,
    container_id=st.text("abcdef0123456789", min_size=8, max_size=8),
    digest=st.just(""),
    netns=st.from_regex(r"/[a-zA-Z0-9_.\-/]{1,60}", fullmatch=True),
    nonce=st.text("abcdef0123456789", min_size=32, max_size=32),
    identity=st.tuples(st.integers(0, 2**32), st.integers(1, 2**64)),
    descriptor=st.integers(0, 2**31 - 1),
    drawn=st.builds(
        holes.drawn,
        names=st.lists(
            st.text("abcdef0123456789", min_size=8, max_size=8).map("veth{}".format),
            min_size=8, max_size=8, unique=True,
        ).map(tuple),
        indexes=st.lists(INDEXES, min_size=8, max_size=8, unique=True).map(tuple),
        macs=st.lists(MACS, min_size=8, max_size=8, unique=True).map(tuple),
    ),
)  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@settings(deadline=None, max_examples=40)
@given(given=GIVEN, ports=st.lists(st.integers(1, 65535), min_size=2, max_size=2, unique=True),
       position=st.integers(3, 200))  # fmt: skip
def test_a_template_filled_is_what_is_planned_with_the_same_values(
    config: Mapping[str, Any], given: Given, ports: list[int], position: int
) -> None:
    alike = form(config)
    given = replace(given, ports=tuple(ports[: len(alike.pieces) - 1]))
    template = made(alike)
    played, setting = rehearsing.play(alike, given, position, see)
    values = setting.given.values()
    assert template.plan.filled(values) == played.plan
    assert template.done.filled(values) == played.done
    assert template.answer.filled(values) == played.answer
    assert template.undo(values) == played.undo
    assert template.carriers(values) == played.carriers
    assert template.steps(values) == played.steps
    sent = [each.message.filled(values) for each in template.deeds if each.message.pattern]
    assert sent == [each.data for each in played.acts if each.data]


_made: dict[Form, templates.Template] = {}


def made(alike: Form) -> templates.Template:
    """Return a form's template, made once."""
    if alike not in _made:
        _made[alike] = templates.of(alike, see)
    return _made[alike]


@pytest.mark.parametrize(
    "config",
    [
        {**BRIDGED, "ipam": {"type": "static", "addresses": [{"address": "10.88.0.9/24"}]}},
        {**BRIDGED, "ipam": {**DUAL, "resolvConf": "/etc/resolv.conf"}},
        {**BRIDGED, "ipam": ipam("10.88.0.0/30")},
        {**BRIDGED, "args": {"cni": {"ips": ["10.88.0.9"]}}},
        {"type": "loopback"},
        {"type": "bandwidth", **LIMITS},
        {"type": "macvlan", "master": "eth9", "ipam": DUAL},
    ],
    ids=["static", "resolv.conf", "small", "asked for", "no IPAM", "meta", "macvlan"],
)
def test_what_depends_on_more_has_no_template(config: dict[str, Any]) -> None:
    with pytest.raises(UnfitError):
        templates.of(form(config), see)


def test_a_foundation_that_is_missing_is_laid_before_there_is_a_template() -> None:
    with pytest.raises(UnfitError, match="something shared"):
        templates.of(form(BRIDGED), lambda _look: Observed(View({"cni0": BRIDGE}), None))


def test_made_up_values_differ_from_each_other() -> None:
    texts = holes.rehearsed(0x5A, 12, 3).values().texts
    assert len({*texts}) == len(texts)
