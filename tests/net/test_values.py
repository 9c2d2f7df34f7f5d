"""Values of the right type that nothing can be done with: refused by the name of their field."""

from typing import Any

import pytest
from support import cnidaemon, netns

pytestmark = pytest.mark.root

TOO_LARGE = 1 << 40


def ipam(**keys: Any) -> dict[str, Any]:
    return {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], **keys}


def route(**keys: Any) -> dict[str, Any]:
    return ipam(routes=[{"dst": "10.0.0.0/8", **keys}])


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    *(
        ("mtu", plugin, {"mtu": mtu, "ipam": ipam(), "master": "up0", "vlanId": 5})
        for plugin in ("bridge", "ptp", "macvlan", "ipvlan", "vlan", "tap", "tuning")
        for mtu in (-5, TOO_LARGE)
    ),
    ("txQLen", "tuning", {"txQLen": -1}),
    ("mtu", "tuning", {"args": {"cni": {"mtu": -1}}}),
    ("table", "sbr", {"table": -1}),
    ("table", "sbr", {"table": TOO_LARGE}),
    ("table", "vrf", {"vrfname": "red", "table": TOO_LARGE}),
    ("bcqueuelen", "macvlan", {"master": "up0", "bcqueuelen": -1}),
    ("owner", "tap", {"owner": -1}),
    *(
        (name, "bridge", {"ipam": route(**{name: value})})
        for name in ("mtu", "advmss", "priority", "table", "scope")
        for value in (-1, TOO_LARGE)
    ),
    ("scope", "bridge", {"ipam": {**route(scope=256), "type": "static"}}),
    ("dataDir", "bridge", {"ipam": ipam(dataDir="/tmp/a\0b")}),
    ("resolvConf", "bridge", {"ipam": ipam(resolvConf="/etc/a\0b")}),
    ("bridge", "bridge", {"bridge": "a\0b"}),
    ("master", "macvlan", {"master": "a\0b"}),
    ("vrfname", "vrf", {"vrfname": "a\0b"}),
]


def test_a_value_out_of_range_is_refused_by_its_field_s_name(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    for field, plugin, keys in REFUSED:
        given = {"dataDir": str(daemon.ipam), **keys["ipam"]} if "ipam" in keys else None
        config = daemon.config(plugin, **{**keys, **({"ipam": given} if given else {})})
        config["prevResult"] = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}]}
        refused = daemon.call("ADD", config, pod=pod)
        assert refused.error.startswith("7: "), (plugin, keys, refused.error)
        assert field in refused.error, (plugin, keys, refused.error)
        removed = daemon.call("DEL", config, pod=pod)
        assert removed.status == 0, (plugin, keys, removed.error)
    assert "Unexpected failure" not in daemon.log()


@pytest.mark.parametrize("plugin", ["macvlan", "tuning"])
def test_a_mac_address_may_be_spelled_with_dashes(
    plugin: str, daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    netns.run(daemon.host, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
    if plugin == "macvlan":
        config = daemon.config("macvlan", master="up0", mac="02-00-00-00-00-0A")
    else:
        netns.run(pod, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer")
        config = daemon.config("tuning", mac="02-00-00-00-00-0A")
        config["prevResult"] = {
            "cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": pod}],
        }  # fmt: skip
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.error
    assert added.document["interfaces"][0]["mac"] == "02:00:00:00:00:0a"
    checked = daemon.call("CHECK", {**config, "prevResult": added.document}, pod=pod)
    assert checked.status == 0, checked.error
    assert daemon.call("DEL", config, pod=pod).status == 0


def test_a_macvlan_inside_hangs_on_the_link_of_the_container_s_default_route(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    netns.run(pod, "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
    netns.run(pod, "ip", "link", "set", "up0", "up")
    netns.run(pod, "ip", "address", "add", "10.1.0.2/24", "dev", "up0")
    netns.run(pod, "ip", "route", "add", "default", "via", "10.1.0.1")
    config = daemon.config("macvlan", linkInContainer=True)
    added = daemon.call("ADD", config, pod=pod)
    assert added.status == 0, added.error
    present = netns.links(pod)
    assert present["eth0"]["link"] == "up0"
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert "eth0" not in netns.links(pod)
