"""CHECK as tables: what was recorded against what is seen."""

from dataclasses import replace
from typing import Any

import pytest
from bitts.cni import results
from bitts.cni.errors import CniError
from bitts.net import links
from bitts.net.addresses import Address
from bitts.net.links import Link
from bitts.net.routes import Route
from cni_daemon.model import Observed, View
from cni_daemon.plugins import bridge, loopback, ptp
from support.cnicalls import NETNS, call

MAC, BRIDGE_MAC = "02:00:00:00:00:05", "02:00:00:00:00:07"
PREVIOUS: dict[str, Any] = {
    "interfaces": [
        {"name": "cni0", "mac": BRIDGE_MAC},
        {"name": "veth1"},
        {"name": "eth0", "mac": MAC, "sandbox": NETNS},
    ],
    "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1", "interface": 2}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
}
ADDRESS = results.parse_interface("10.0.0.5/24")
CONNECTED = Route(ADDRESS.network, index=2)
DEFAULT = Route(results.parse_interface("0.0.0.0/0").network, results.parse_address("10.0.0.1"), 2)
INNER = Link(2, "eth0", "veth", MAC, 1500, links.UP, peer_index=9)
OUTER = Link(9, "veth1", "veth", "02:00:00:00:00:06", 1500, links.UP, master=7, peer_index=2)
BRIDGE = Link(7, "cni0", "bridge", BRIDGE_MAC, 1500, links.UP)
POD = View({"eth0": INNER}, {"eth0": (Address(2, ADDRESS),)}, {}, (CONNECTED, DEFAULT))
HOST = View({"cni0": BRIDGE, "veth1": OUTER})


def check(host: View = HOST, pod: View | None = POD, **keys: Any) -> None:
    document = {"type": "bridge", "prevResult": PREVIOUS, **keys}
    made = call(document, command="CHECK")
    bridge.check(bridge.parse(made.config, made), made, Observed(host, pod))


def test_what_is_as_recorded_is_fine() -> None:
    check()


@pytest.mark.parametrize(
    ("host", "pod", "message"),
    [
        (HOST, None, "failed to open netns"),
        (View({"veth1": OUTER}), POD, "Interface cni0 is missing"),
        (View({"cni0": replace(BRIDGE, kind="veth"), "veth1": OUTER}), POD, "not of type bridge"),
        (View({"cni0": replace(BRIDGE, mac=MAC), "veth1": OUTER}), POD, "doesn't match"),
        (View({"cni0": BRIDGE}), POD, "no port of bridge"),
        (View({"cni0": BRIDGE, "veth1": replace(OUTER, master=8)}), POD, "no port of bridge"),
        (
            View({"cni0": replace(BRIDGE, flags=links.PROMISCUOUS), "veth1": OUTER}), POD,
            "promiscuous",
        ),
        (HOST, View(), "Interface eth0 is missing"),
        (HOST, replace(POD, addresses={}), "Failed to match addr"),
        (HOST, replace(POD, routes=(DEFAULT,)), "Failed to find route for 10.0.0.0/24"),
        (HOST, replace(POD, routes=(CONNECTED,)), "not found in routing table"),
        (HOST, replace(POD, routes=(CONNECTED, replace(DEFAULT, table=9))), "not found"),
    ],
)  # fmt: skip
def test_what_differs_is_told(host: View, pod: View | None, message: str) -> None:
    with pytest.raises(CniError, match=message):
        check(host, pod)


def test_a_result_is_needed_and_must_name_the_bridge() -> None:
    with pytest.raises(CniError, match="Required prevResult missing"):
        check(prevResult=None)
    with pytest.raises(CniError, match="names no bridge other"):
        check(bridge="other")


def test_ptp_and_loopback_check_their_own() -> None:
    previous = {**PREVIOUS, "interfaces": PREVIOUS["interfaces"][1:], "ips": []}
    made = call({"type": "ptp", "prevResult": previous}, command="CHECK")
    ptp.check(ptp.parse(made.config, made), made, Observed(pod=POD))
    with pytest.raises(CniError, match="is missing"):
        ptp.check(ptp.parse(made.config, made), made, Observed(pod=View()))
    up = View({"lo": Link(1, "lo", flags=links.UP)})
    loopback.check(loopback.parse(made.config, made), made, Observed(pod=up))
    with pytest.raises(CniError, match="down"):
        loopback.check(loopback.parse(made.config, made), made, Observed(pod=View()))
