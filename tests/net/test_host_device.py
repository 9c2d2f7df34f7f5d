"""host-device with devices that are hardware, and what becomes of one when something goes wrong."""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from support import cluster, cnidaemon, cnilinks, cnisnapshot, netns, processes, waiting

pytestmark = pytest.mark.root

VIRTIO, CARD = "02:00:00:00:0b:01", "02:00:00:00:0b:02"
"""The MAC addresses of the test machine's network devices."""


def held(host: str) -> dict[str, tuple[str, str]]:
    """Return a node's devices: name → MAC address and alias."""
    return {
        name: (link["address"], link.get("ifalias", ""))
        for name, link in netns.links(host).items()
        if name not in {"lo", "up0", "up1", "hd1"}
    }


def prepared(daemon: cnidaemon.Daemon) -> dict[str, Any]:
    cnilinks.prepare(daemon.host)
    return daemon.config("host-device", device="hd0", ipam="host-local")


def test_a_device_comes_back_under_another_name_when_its_own_is_taken(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config, pod = prepared(daemon), namespaces.make("pod")
    netns.run(pod, "ip", "link", "add", "hd0", "type", "bridge")  # taken inside, too
    assert daemon.call("ADD", config, pod=pod).status == 0
    netns.run(daemon.host, "ip", "link", "add", "hd0", "type", "bridge")
    assert daemon.call("DEL", config, pod=pod).status == 0
    (name,) = [name for name, found in held(daemon.host).items() if found[1] == "hd0"]
    assert name.startswith("dev")
    assert list(netns.links(pod)) == ["lo", "hd0"]
    assert daemon.addresses() == {}


def test_what_the_reference_attached_is_given_back_and_the_other_way_round(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config, pod = prepared(daemon), namespaces.make("pod")
    before = held(daemon.host)["hd0"][0]
    theirs = cnilinks.reference(daemon.folder / "theirs", "host-device") / "host-device"
    for adding, removing in ((theirs, None), (None, theirs)):
        programs = [each or daemon.plugins / "host-device" for each in (adding, removing)]
        for program, command in zip(programs, ("ADD", "DEL"), strict=True):
            outcome = cnidaemon.execute(program, command, config, host=daemon.host, pod=pod)
            assert outcome.status == 0, outcome.stdout
        assert held(daemon.host)["hd0"] == (before, "")
        assert list(netns.links(pod)) == ["lo"]
    assert daemon.addresses() == {}
    # Our journal still has the second: its DEL finds nothing to do.
    assert daemon.call("DEL", config, pod=pod).status == 0


def test_a_name_that_is_taken_inside_leaves_the_device_where_it_is(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config, pod = prepared(daemon), namespaces.make("pod")
    netns.run(pod, "ip", "link", "add", "eth0", "type", "bridge")
    before = held(daemon.host)
    refused = daemon.call("ADD", config, pod=pod)
    assert 'failed to rename host device "hd0" to "eth0"' in refused.error
    assert held(daemon.host) == before
    assert daemon.addresses() == {}


def test_a_route_that_cannot_be_added_brings_the_device_back(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config, pod = prepared(daemon), namespaces.make("pod")
    config["ipam"]["routes"] = [{"dst": "192.0.2.0/24", "gw": "203.0.113.1"}]  # leads nowhere
    before = held(daemon.host)
    assert "failed to add route" in daemon.call("ADD", config, pod=pod).error
    assert held(daemon.host) == before
    assert list(netns.links(pod)) == ["lo"]
    assert daemon.addresses() == {}


def test_a_device_may_bring_what_it_had(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """Addresses, routes of all tables, and rules; beside the reference."""
    theirs = cnilinks.reference(daemon.folder / "theirs", "host-device")
    lines = (
        "link set hd0 up", "link set hd1 up", "addr add 10.61.0.2/24 dev hd0",
        "addr add fd61::2/64 dev hd0 nodad", "route add 192.0.2.0/24 via 10.61.0.1",
        "route add 198.51.100.0/24 via 10.61.0.1 table 77 metric 5",
        "route add 203.0.113.0/24 dev hd0 src 10.61.0.2", "route add fd62::/64 via fd61::1",
        "rule add from 10.61.0.0/24 table 77 priority 900", "rule add from 10.61.0.2 table 78",
        "rule add from 10.61.0.2 fwmark 7 table 76",
    )  # fmt: skip
    config = daemon.config("host-device", device="hd0", useInterfaceNetwork=True)
    seen = []
    for plugins, host in ((daemon.plugins, daemon.host), (theirs, namespaces.make("theirs"))):
        pod = namespaces.make("pod")
        cnilinks.prepare(host)
        netns.run(host, "ip", "-batch", "-", text="\n".join(lines))
        program = plugins / "host-device"
        added = cnidaemon.execute(program, "ADD", config, host=host, pod=pod)
        rules = netns.as_json(pod, "ip", "-j", "rule", "show")
        told = cnisnapshot.outcome(added, pod)
        told["document"]["routes"].sort(key=str)
        seen.append({"told": told, "pod": cnisnapshot.pod(pod), "rules": rules})
        assert cnidaemon.execute(program, "DEL", config, host=host, pod=pod).status == 0
    assert cnisnapshot.differences(seen[0], seen[1]) == []
    assert len(seen[0]["told"]["document"]["ips"]) == 2
    assert [each["priority"] for each in seen[0]["rules"]] == [0, 900, 32766, 32767]
    config["ipam"] = daemon.config("host-device", ipam="host-local")["ipam"]
    pod = namespaces.make("pod")
    netns.run(daemon.host, "ip", "-batch", "-", text="\n".join(lines[:8]))
    added = daemon.call("ADD", config, pod=pod)
    assert [each["address"] for each in added.document["ips"]] == [
        "10.88.0.2/24", "10.61.0.2/24", "fd61::2/64",
    ]  # fmt: skip
    checked = {**config, "prevResult": added.document}
    assert daemon.call("CHECK", checked, pod=pod).status == 0  # theirs looks in one table only
    netns.run(pod, "ip", "route", "flush", "table", "77")
    assert "Expected Route 198.51.100.0/24" in daemon.call("CHECK", checked, pod=pod).error
    assert daemon.call("DEL", config, pod=pod).status == 0
    assert len(netns.as_json(pod, "ip", "-j", "rule", "show")) == 3


@pytest.fixture
def machine(
    spawner: processes.Processes, namespaces: netns.Namespaces, short_dir: pathlib.Path
) -> Iterator[cnidaemon.Daemon]:
    """A daemon on the machine itself: hardware falls back to nowhere else."""
    for module in ("virtio_net", "e1000", "uio_pci_generic"):
        netns.run("/proc/1/ns/net", "modprobe", module)
    made = cnidaemon.Daemon(spawner, "/proc/1/ns/net", short_dir)
    made.start()
    yield made
    cluster.remove_tree(made.folder)


@pytest.mark.guest(reason="hands the machine's network devices to containers")
def test_hardware_is_found_by_its_place_and_falls_back(
    machine: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    theirs = cnilinks.reference(machine.folder / "theirs", "host-device") / "host-device"
    ours = machine.plugins / "host-device"
    virtio, card = (place(machine.host, each) for each in (VIRTIO, CARD))
    pod, before = namespaces.make("pod"), held(machine.host)
    bus = pathlib.Path("/sys/bus/pci/devices")
    ways: list[dict[str, Any]] = [
        {"pciBusID": virtio}, {"pciBusID": card}, {"runtimeConfig": {"deviceID": card}},
        {"kernelpath": str((bus / card).resolve())}, {"pciBusID": virtio.replace("0000", "0001")},
    ]  # fmt: skip
    for keys in ways:
        config = machine.config("host-device", **keys)
        told = []
        for program in (theirs, ours):
            added = cnidaemon.execute(program, "ADD", config, pod=pod)
            told.append(added.document if not added.status else added.status)
            if not added.status:
                assert "eth0" in netns.links(pod)
                assert cnidaemon.execute(program, "DEL", config, pod=pod).status == 0
            assert held(machine.host) == before, keys
        assert told[0] == told[1], keys
    config = machine.config("host-device", pciBusID=card)
    assert machine.call("ADD", config, pod=pod).status == 0
    namespaces.remove(pod)  # the kernel moves the device back, as eth0
    assert machine.call("DEL", config, pod=pod).status == 0
    waiting.until_blocking(lambda: held(machine.host) == before, "the device back as it was")
    assert_driven_elsewhere(machine, theirs, card, namespaces.make("pod"))


def place(host: str, mac: str) -> str:
    """Return the bus address of the device with that MAC address."""
    name = next(name for name, found in held(host).items() if found[0] == mac)
    device = pathlib.Path(f"/sys/class/net/{name}/device").resolve()
    return device.name if device.name.startswith("0000:") else device.parent.name


def assert_driven_elsewhere(
    machine: cnidaemon.Daemon, theirs: pathlib.Path, card: str, pod: str
) -> None:
    """A device that a program in user space drives is not touched: only addresses are given."""
    device = pathlib.Path("/sys/bus/pci/devices") / card
    config = machine.config("host-device", pciBusID=card, ipam="host-local")
    config["ipam"]["ranges"] = [[{"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.9"}]]
    (device / "driver" / "unbind").write_text(card)
    assert "error with host device" in machine.call("ADD", config, pod=pod).error
    (device / "driver_override").write_text("uio_pci_generic")
    pathlib.Path("/sys/bus/pci/drivers_probe").write_text(card)
    told = []
    for program in (theirs, machine.plugins / "host-device"):
        added = cnidaemon.execute(program, "ADD", config, pod=pod)
        assert added.status == 0, added.stdout
        told.append(
            {**added.document, "ips": [each["interface"] for each in added.document["ips"]]}
        )
        checked = {**config, "prevResult": added.document}
        assert cnidaemon.execute(program, "CHECK", checked, pod=pod).status == 0
        assert cnidaemon.execute(program, "DEL", config, pod=pod).status == 0
    assert told[0] == told[1]
    assert list(netns.links(pod)) == ["lo"]
    assert machine.addresses() == {}
