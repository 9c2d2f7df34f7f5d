"""Plans of plugins that make or move links: values only, no kernel."""

import ipaddress
from collections.abc import Mapping
from typing import Any

import pytest
from bitts.cni.errors import CniError
from bitts.net import addresses, links, routes, taps
from bitts.net.addresses import Address
from bitts.net.links import Change, Link
from bitts.net.routes import Route
from bitts.net.rules import Rule
from cni_daemon import operations as op
from cni_daemon.devices import HandBack, HandOver, MakeTap, RemoveIdleVrf
from cni_daemon.model import Observed, Place, Plan, View
from cni_daemon.plugins import dummy, host_device, ipvlan, tap, vlan, vrf
from cni_daemon.plugins.interface import AnyPlugin
from cni_daemon.routing import AddRule, RemoveRule, ReplaceRoute
from support import cnicalls

UP = Link(7, "up0", "veth", "02:00:00:00:00:77", 1450)
HOST = View(
    links={"up0": UP, "ens3": Link(8, "ens3", "", "02:00:00:00:00:88", 9000, alias="rack 4")},
    routes=(Route(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.1"), 7),),
)
BRIDGE = Link(4, "br0", "bridge", "02:00:00:00:00:44", 1500)
SEEN = Observed(host=HOST, pod=View(links={"br0": BRIDGE}))
ADDRESSED = cnicalls.addressed("10.55.0.2/24 10.55.0.1", routes=("192.0.2.0/24",))
IPAM = {"ipam": {"type": "host-local"}}
ETH0 = Link(5, "eth0", "veth", "02:00:00:00:00:05", 1500)


def planned(
    plugin: AnyPlugin, document: Mapping[str, Any], observed: Observed = SEEN, *, args: str = ""
) -> Plan:
    given = ADDRESSED if "ipam" in document else None
    made = cnicalls.call({"type": plugin.type, **document}, addressing=given, args=args)
    return plugin.plan(plugin.parse(made.config, made), made, observed)


def done(plan: Plan) -> list[op.Operation]:
    return [step.do for step in plan.steps if step.do is not None]


def undone(plan: Plan) -> list[op.Operation]:
    return [step.undo for step in reversed(plan.steps) if step.undo is not None]


@pytest.mark.parametrize(
    ("plugin", "keys", "data"),
    [
        (vlan.PLUGIN, {"master": "up0", "vlanId": 5}, links.kind_data("vlan", 5)),
        (ipvlan.PLUGIN, {"mode": "l3s"}, links.kind_data("ipvlan", 2)),
        (ipvlan.PLUGIN, {"master": "up0"}, links.kind_data("ipvlan", 0)),
    ],
    ids=["vlan", "ipvlan of the default route", "ipvlan of a master"],
)
def test_a_link_on_another_is_made_under_a_passing_name_with_its_masters_address(
    plugin: AnyPlugin, keys: Mapping[str, Any], data: bytes
) -> None:
    plan = planned(plugin, {**keys, **IPAM, "mtu": 1400})
    making, naming = done(plan)[:2]
    assert isinstance(making, op.MakeLink)
    assert (making.place, making.kind, making.lower) == (Place.HOST, plugin.type, UP.index)
    assert (making.change, making.data) == (Change(mtu=1400), data)
    assert making.is_born_in_pod
    assert naming == op.ChangeLink(Place.POD, Change(name="eth0"), making.index)
    assert undone(plan) == [
        op.DeleteLink(Place.POD, "eth0"), op.DeleteLink(Place.POD, making.name),
    ]  # fmt: skip
    assert plan.result.interfaces[0].mac == UP.mac
    assert plan.result.ips[0].interface == 0


def test_a_link_inside_the_container_may_be_the_master() -> None:
    making = done(planned(vlan.PLUGIN, {"master": "br0", "linkInContainer": True}))[0]
    assert isinstance(making, op.MakeLink)
    assert (making.place, making.lower, making.is_born_in_pod) == (Place.POD, BRIDGE.index, False)


def test_ipvlan_gives_what_an_earlier_plugin_allocated() -> None:
    previous = {
        "cniVersion": "1.1.0", "interfaces": [{"name": "ens3"}],
        "ips": [{"address": "10.9.0.2/24", "interface": 0}], "routes": [{"dst": "0.0.0.0/0"}],
    }  # fmt: skip
    plan = planned(ipvlan.PLUGIN, {"prevResult": previous})
    making = done(plan)[0]
    assert isinstance(making, op.MakeLink)
    assert making.lower == HOST.links["ens3"].index
    assert [each.name for each in plan.result.interfaces] == ["eth0"]
    assert [str(each.address) for each in plan.result.ips] == ["10.9.0.2/24"]
    assert len(plan.result.routes) == 1


REFUSED: list[tuple[AnyPlugin, Mapping[str, Any], str]] = [
    (vlan.PLUGIN, {"vlanId": 5}, '"master" field is required'),
    (vlan.PLUGIN, {"master": "up0", "vlanId": 4095}, "invalid VLAN ID 4095"),
    (vlan.PLUGIN, {"master": "up0", "mtu": 1451}, r"must be \[0, master MTU\(1450\)\]"),
    (vlan.PLUGIN, {"master": "no"}, 'failed to lookup master "no"'),
    (ipvlan.PLUGIN, {"mode": "l4"}, 'unknown ipvlan mode: "l4"'),
    (ipvlan.PLUGIN, {"prevResult": {"cniVersion": "1.1.0"}}, "chained master failure"),
    (dummy.PLUGIN, {}, "dummy interface requires an IPAM configuration"),
    (tap.PLUGIN, {"mac": "02:00"}, "address 02:00: invalid MAC address"),
    (tap.PLUGIN, {"bridge": "br9"}, "failed to get bridge br9"),
    (vrf.PLUGIN, {}, "valid vrf name"),
    (vrf.PLUGIN, {"vrfname": "blue"}, "missing prevResult from earlier plugin"),
    (host_device.PLUGIN, {}, 'specify either "device"'),
    (host_device.PLUGIN, {"device": "no"}, "failed to find host device: Link not found"),
    (host_device.PLUGIN, {"hwaddr": "x"}, 'failed to parse MAC address "x"'),
    (host_device.PLUGIN, {"hwaddr": "02:00:00:00:00:99"}, "failed to find physical interface"),
    (host_device.PLUGIN, {"kernelpath": "/sys/devices/../bus"}, "must be absolute and begin"),
    (host_device.PLUGIN, {"pciBusID": "../../x"}, "names no device"),
    (host_device.PLUGIN, {"runtimeConfig": {"deviceID": ".."}}, "names no device"),
]


@pytest.mark.parametrize(("plugin", "keys", "message"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_is_refused_with_the_reason(
    plugin: AnyPlugin, keys: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(CniError, match=message):
        planned(plugin, keys)


@pytest.mark.parametrize("plugin", [dummy.PLUGIN, ipvlan.PLUGIN], ids=lambda plugin: plugin.type)
def test_an_answer_without_addresses_is_refused(plugin: AnyPlugin) -> None:
    made = cnicalls.call({"type": plugin.type, **IPAM}, addressing=cnicalls.addressed())
    with pytest.raises(CniError, match="IPAM plugin returned missing IP config"):
        plugin.plan(plugin.parse(made.config, made), made, SEEN)


@pytest.mark.parametrize("plugin", [vlan.PLUGIN, tap.PLUGIN, dummy.PLUGIN, host_device.PLUGIN],
                         ids=lambda plugin: plugin.type)  # fmt: skip
def test_a_name_that_is_taken_inside_is_refused(plugin: AnyPlugin) -> None:
    seen = Observed(host=HOST, pod=View(links={"eth0": ETH0}))
    with pytest.raises(CniError, match="file exists"):
        planned(plugin, {"master": "up0", "device": "ens3", **IPAM}, seen)


@pytest.mark.parametrize(
    ("keys", "flags"),
    [
        ({}, taps.WITHOUT_PACKET_INFO),
        ({"owner": 0, "multiQueue": True}, taps.WITHOUT_PACKET_INFO | taps.MULTI_QUEUE),
        ({"owner": 0, "group": 0}, taps.VIRTIO_HEADER),
        (
            {"owner": 0, "group": 0, "multiQueue": True},
            taps.VIRTIO_HEADER | taps.WITHOUT_PACKET_INFO | taps.MULTI_QUEUE,
        ),
    ],
    ids=["plain", "queues", "owned", "owned, queues"],
)
def test_a_tap_is_made_as_the_reference_makes_it(keys: Mapping[str, Any], flags: int) -> None:
    making = done(planned(tap.PLUGIN, keys))[0]
    assert isinstance(making, MakeTap)
    assert (making.tap.flags, making.tap.owner) == (flags, keys.get("owner"))


def test_a_tap_of_a_context_is_made_on_the_host_and_taken_from_there_if_need_be() -> None:
    plan = planned(tap.PLUGIN, {"selinuxContext": "c", "bridge": "br0", "mac": "02-00-00-00-00-01"})
    making, changing = done(plan)[:2]
    assert isinstance(making, MakeTap)
    assert making.passing.startswith("veth")
    assert undone(plan) == [
        op.DeleteLink(Place.POD, "eth0"), op.DeleteLink(Place.HOST, making.passing),
    ]  # fmt: skip
    assert isinstance(changing, op.ChangeLink)
    assert changing.change == Change(mac="02:00:00:00:00:01", master=BRIDGE.index)


def test_a_runtimes_address_wins_over_that_of_the_configuration() -> None:
    keys = {"mac": "02:00:00:00:00:01", "runtimeConfig": {"mac": "02:00:00:00:00:03"}}
    assert planned(tap.PLUGIN, keys).result.interfaces[0].mac.endswith(":03")
    keys.pop("runtimeConfig")
    plan = planned(tap.PLUGIN, keys, args="MAC=02:00:00:00:00:02")
    assert plan.result.interfaces[0].mac.endswith(":02")


@pytest.mark.parametrize("keys", [{"device": "ens3"}, {"hwaddr": "02-00-00-00-00-88"}], ids=str)
def test_a_device_moves_in_and_what_it_was_is_written_down(keys: Mapping[str, Any]) -> None:
    plan = planned(host_device.PLUGIN, keys)
    moving = done(plan)[0]
    assert isinstance(moving, HandOver)
    assert (moving.name, moving.index, moving.ifname) == ("ens3", 8, "eth0")
    assert undone(plan) == [HandBack("eth0", "ens3", 8, "rack 4")]
    assert plan.result.interfaces[0].mac == "02:00:00:00:00:88"


PCI = "0000:00:05.0"
OWN, DRIVER, NET, VIRTIO = (
    f"/sys/bus/pci/devices/{PCI}", f"/sys/bus/pci/drivers/*/{PCI}",
    f"/sys/bus/pci/devices/{PCI}/net/*", f"/sys/bus/pci/devices/{PCI}/virtio*/net/*",
)  # fmt: skip
AUXILIARY = f"/sys/bus/auxiliary/devices/{PCI}"


def bus(driver: str = "e1000", found: Mapping[str, tuple[str, ...]] | None = None) -> Observed:
    paths = {
        OWN: (OWN,), NET: (f"{OWN}/net/ens3",), VIRTIO: (),
        DRIVER: (f"/sys/bus/pci/drivers/{driver}/{PCI}",) if driver else (),
        AUXILIARY: (), f"{AUXILIARY}/net/*": (),
    }  # fmt: skip
    return Observed(host=HOST, pod=View(), paths={**paths, **(found or {})})


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ({"pciBusID": PCI}, bus()),
        ({"pciBusID": PCI}, bus(found={NET: (), VIRTIO: (f"{OWN}/virtio2/net/ens3",)})),
        ({"runtimeConfig": {"deviceID": PCI}}, bus()),
        (
            {"runtimeConfig": {"deviceID": PCI}},
            bus("", {
                OWN: (), AUXILIARY: (AUXILIARY,), f"{AUXILIARY}/net/*": (f"{AUXILIARY}/net/ens3",),
            }),
        ),
        (
            {"kernelpath": "/sys/devices/pci[0]/x/"},
            bus(found={"/sys/devices/pci[[]0]/x/net/*": ("/sys/devices/pci[0]/x/net/ens3",)}),
        ),
    ],
    ids=["pci", "virtio", "runtime's pci", "runtime's auxiliary", "kernel path"],
)  # fmt: skip
def test_a_device_is_found_by_its_place(keys: Mapping[str, Any], seen: Observed) -> None:
    moving = done(planned(host_device.PLUGIN, keys, seen))[0]
    assert isinstance(moving, HandOver)
    assert moving.name == "ens3"


def test_a_device_without_driver_or_links_is_refused() -> None:
    with pytest.raises(CniError, match="error with host device"):
        planned(host_device.PLUGIN, {"pciBusID": PCI}, bus(""))
    with pytest.raises(CniError, match=f"failed to find network device under pci device {PCI}"):
        planned(host_device.PLUGIN, {"pciBusID": PCI}, bus(found={NET: ()}))
    with pytest.raises(CniError, match=f"DeviceID {PCI} not found or unsupported"):
        planned(host_device.PLUGIN, {"runtimeConfig": {"deviceID": PCI}}, bus(found={OWN: ()}))


@pytest.mark.parametrize("driver", ["vfio-pci", "uio_pci_generic", "igb_uio"])
def test_a_device_of_a_program_in_user_space_is_not_touched(driver: str) -> None:
    plan = planned(host_device.PLUGIN, {"pciBusID": PCI, **IPAM}, bus(driver))
    assert plan.steps == ()
    assert plan.result.interfaces[0].mac == ""
    assert len(plan.result.ips) == 1


def has(*found: Rule) -> Observed:
    """Return a node whose ens3 has addresses and routes of all kinds, and rules."""
    own, gateway = ipaddress.ip_interface("10.1.0.2/24"), ipaddress.ip_address("10.1.0.1")
    given = [
        Address(8, own), Address(8, ipaddress.ip_interface("fe80::1/64"), routes.LINK),
        Address(8, ipaddress.ip_interface("fd01::2/64"), flags=addresses.PERMANENT),
        Address(8, ipaddress.ip_interface("fd02::2/64")),  # from an advertisement
    ]  # fmt: skip
    known = [
        Route(ipaddress.ip_network("0.0.0.0/0"), gateway, 8),
        Route(ipaddress.ip_network("192.0.2.0/24"), None, 8, table=9, scope=routes.LINK),
        Route(own.network, None, 8, scope=routes.LINK, protocol=2),
        Route(ipaddress.ip_network("fe80::/64"), None, 8),
        Route(ipaddress.ip_network("::/0"), ipaddress.ip_address("fe80::9"), 8, protocol=9),
        Route(ipaddress.ip_network("198.51.100.0/24"), None, 7),
    ]
    host = View(HOST.links, {"ens3": tuple(given)}, routes=tuple(known), rules=found)
    return Observed(host=host, pod=View())


def test_a_device_brings_its_addresses_routes_and_rules() -> None:
    network = ipaddress.ip_address("10.1.0.0")
    wanted = Rule(4, 9, network, 16, priority=77)
    others = [
        Rule(4, 9, network, 16, is_narrow=True), Rule(4, 8, network, 16), Rule(4, 9),
        Rule(4, 9, ipaddress.ip_address("10.2.0.1")),
    ]  # fmt: skip
    keys = {"device": "ens3", "useInterfaceNetwork": True}
    plan = planned(host_device.PLUGIN, keys, has(wanted, *others))
    assert [str(each.address) for each in plan.result.ips] == ["10.1.0.2/24", "fd01::2/64"]
    told = [(str(each.destination), each.table, each.scope) for each in plan.result.routes]
    assert told == [("192.0.2.0/24", 9, routes.LINK), ("0.0.0.0/0", routes.MAIN, None)]
    index = plan.planned[Place.POD][0].index
    added = [each.route for each in done(plan) if isinstance(each, op.AddRoute)]
    assert [each.index for each in added] == [index, index]
    assert [each.rule for each in done(plan) if isinstance(each, AddRule)] == [wanted]
    assert undone(plan)[0] == RemoveRule(Place.POD, wanted)


def of_vrf(*tables: int, master: int = 0) -> Observed:
    """Return a container with a link that has an address of each family and routes."""
    gateway, inside = ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/24")
    vrfs = {
        f"vrf{table}": Link(50 + table, f"vrf{table}", "vrf", setting=table) for table in tables
    }
    found = [
        Route(ipaddress.ip_network("0.0.0.0/0"), gateway, 5),
        Route(inside, None, 5, scope=routes.LINK, protocol=2),
        Route(ipaddress.ip_network("fd00::/64"), None, 5, protocol=2),
        Route(ipaddress.ip_network("192.0.2.0/24"), gateway, 5, table=3),
    ]
    linked = Link(5, "eth0", "veth", master=master)
    global6 = Address(5, ipaddress.ip_interface("fd00::2/64"), addresses.GLOBAL)
    local6 = Address(5, ipaddress.ip_interface("fe80::2/64"), routes.LINK)
    return Observed(
        pod=View({"eth0": linked, "br0": BRIDGE, **vrfs}, {"eth0": (global6, local6)},
                 routes=tuple(found))
    )  # fmt: skip


VRF = {"vrfname": "blue", "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "fd00::2/64"}]}}


def test_a_link_enters_a_new_vrf_with_its_addresses_and_routes() -> None:
    plan = planned(vrf.PLUGIN, VRF, of_vrf(1, 2))
    making, entering, keeping, waiting, routing = done(plan)
    assert isinstance(making, op.MakeLink)
    assert making.data == links.kind_data("vrf", 4)  # 3 has routes
    assert entering == op.ChangeLink(Place.POD, Change(master=making.index), name="eth0")
    address = ipaddress.ip_interface("fd00::2/64")
    assert keeping == op.AddAddress(Place.POD, 5, address, is_shared=True)
    assert waiting == op.AwaitAddresses(Place.POD, 5)
    assert isinstance(routing, ReplaceRoute)
    assert (str(routing.route.destination), routing.route.table) == ("0.0.0.0/0", 4)
    leaving, back, idle = undone(plan)
    assert leaving == op.ChangeLink(Place.POD, Change(master=0), name="eth0")
    assert isinstance(back, ReplaceRoute)
    assert back.route.table == routes.MAIN
    assert idle == RemoveIdleVrf("blue")


def test_a_vrf_that_is_there_is_joined() -> None:
    plan = planned(vrf.PLUGIN, {**VRF, "vrfname": "vrf2", "table": 2}, of_vrf(2))
    assert done(plan)[0] == op.ChangeLink(Place.POD, Change(master=52), name="eth0")
    assert undone(plan)[-1] == RemoveIdleVrf("vrf2")


@pytest.mark.parametrize(
    ("keys", "seen", "message"),
    [
        ({"vrfname": "vrf2", "table": 3}, of_vrf(2), "different routing table 2"),
        ({"vrfname": "br0"}, of_vrf(), "br0 is not a VRF"),
        ({}, of_vrf(master=4), "has already a master set: br0"),
        ({}, Observed(pod=View()), "could not get link by name eth0"),
        ({}, Observed(pod=View({"eth0": ETH0})), "list it for the runtime"),
    ],
    ids=["table", "no VRF", "master", "no link", "planned only"],
)
def test_a_vrf_that_does_not_fit_is_refused(
    keys: Mapping[str, Any], seen: Observed, message: str
) -> None:
    with pytest.raises(CniError, match=message):
        planned(vrf.PLUGIN, {**VRF, **keys}, seen)


def test_undo_operations_come_back_from_the_journal() -> None:
    for undo in (HandBack("eth0", "ens3", 8, "x"), RemoveIdleVrf("blue")):
        assert op.decode(op.encode(undo)) == undo
