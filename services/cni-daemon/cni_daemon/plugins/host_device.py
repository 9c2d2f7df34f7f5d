"""host-device: a device of the host itself moves into the container (cni.dev: main/host-device).

It keeps its old name in its alias, as with the reference, and DEL brings it back under that,
switched off; also when the container's namespace is gone, where the reference fails. A device
that a program in user space drives (DPDK) is not touched: only its addresses are handed out.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bitts.cni import results
from bitts.cni.config import PluginConfig
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Interface, Result
from bitts.net import links, routes
from bitts.net.links import Link

from cni_daemon.devices import HandBack, HandOver
from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import Operation
from cni_daemon.plugins import addressing, captured, checking, sublinks
from cni_daemon.plugins.interface import Plugin

_PCI = "/sys/bus/pci/devices"
_DRIVERS = "/sys/bus/pci/drivers"
_AUXILIARY = "/sys/bus/auxiliary/devices"
_USERSPACE_DRIVERS = {"vfio-pci", "uio_pci_generic", "igb_uio"}
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]+")
_HOW = 'specify either "device", "hwaddr", "kernelpath" or "pciBusID"'


@dataclass(frozen=True, slots=True)
class Options:
    """Which device: the first of these that is given; ``assigned`` is the runtime's choice."""

    device: str = ""
    mac: str = ""
    kernel_path: str = ""
    pci: str = ""
    assigned: str = ""
    takes_network: bool = False
    ipam: str = ""
    dns: Dns = results.NO_DNS


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration. Raises CniError."""
    fields = config.fields
    assigned = call.runtime.text("deviceID")
    options = Options(
        device=fields.text("device"),
        mac=fields.text("hwaddr"),
        kernel_path=fields.text("kernelpath"),
        pci=assigned or fields.text("pciBusID"),
        assigned=assigned,
        takes_network=fields.boolean("useInterfaceNetwork"),
        ipam=config.ipam_type,
        dns=results.decode_dns(fields.nested("dns")),
    )
    if not (options.device or options.mac or options.kernel_path or options.pci):
        raise CniError(Code.INTERNAL, _HOW)
    _check_paths(options)
    return options


def _check_paths(options: Options) -> None:
    """Refuse what would lead elsewhere: these become paths below ``/sys``."""
    if options.pci and (
        not _IDENTIFIER.fullmatch(options.pci)
        or options.pci in {posixpath.curdir, posixpath.pardir}
    ):
        raise CniError(Code.INTERNAL, f"{options.pci!r} names no device: give its bus address")
    path = options.kernel_path
    if path and (not posixpath.normpath(path).startswith("/sys/devices/") or "\0" in path):
        raise CniError(
            Code.INTERNAL,
            f'kernel device path "{path}" must be absolute and begin with /sys/devices/',
        )


def _pci_patterns(options: Options) -> tuple[str, ...]:
    """Return files that tell about a PCI device: itself, its driver, its links."""
    own = f"{_PCI}/{options.pci}"
    return (own, f"{_DRIVERS}/*/{options.pci}", f"{own}/net/*", f"{own}/virtio*/net/*")


def _auxiliary_patterns(options: Options) -> tuple[str, ...]:
    own = f"{_AUXILIARY}/{options.assigned}"
    return (own, f"{own}/net/*")


def _kernel_pattern(options: Options) -> str:
    """Return the pattern of a device's links; what is special in patterns counts as itself."""
    own = re.sub(r"([*?[])", r"[\1]", posixpath.normpath(options.kernel_path))
    return f"{own}/net/*"


def looks(options: Options, call: Call) -> Look:
    """Look for the device, and at what has the container's name."""
    paths = _pci_patterns(options) if options.pci else ()
    if options.assigned:
        paths += _auxiliary_patterns(options)
    if options.kernel_path:
        paths += (_kernel_pattern(options),)
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), has_pod_routes=True, paths=paths)
    if options.takes_network:
        return Look(
            has_host_links=True, has_host_addresses=True, has_host_routes=True,
            has_host_rules=True, pod=(call.ifname,), paths=paths,
        )  # fmt: skip
    if options.device:
        return Look(host=(options.device,), pod=(call.ifname,), paths=paths)
    return Look(has_host_links=True, pod=(call.ifname,), paths=paths)


def _is_pci(options: Options, observed: Observed) -> bool:
    """Say whether a PCI device is meant; the runtime's choice may be of the auxiliary bus."""
    if not options.assigned:
        return bool(options.pci)
    if observed.paths[_pci_patterns(options)[0]]:
        return True
    if observed.paths[_auxiliary_patterns(options)[0]]:
        return False
    raise CniError(
        Code.INTERNAL, f"runtime config DeviceID {options.assigned} not found or unsupported"
    )


def _is_driven_elsewhere(options: Options, observed: Observed) -> bool:
    if not _is_pci(options, observed):
        return False
    drivers = observed.paths[_pci_patterns(options)[1]]
    if not drivers:
        raise CniError(
            Code.INTERNAL,
            f"error with host device: lstat {_PCI}/{options.pci}/driver: no such file or directory",
        )
    return posixpath.basename(posixpath.dirname(drivers[0])) in _USERSPACE_DRIVERS


def _device(options: Options, observed: Observed) -> Link:
    """Return the link that is meant. Raises CniError."""
    present = observed.host.links
    if options.device:
        found = present.get(options.device)
    elif options.mac:
        found = _of_mac(options.mac, present.values())
    else:
        found = present.get(_name(options, observed))
    if found is None:
        raise _unfound("Link not found" if options.device else "failed to find physical interface")
    return found


def _of_mac(mac: str, present: Iterable[Link]) -> Link | None:
    try:
        wanted = links.mac_text(links.mac_bytes(mac))
    except ValueError:
        raise _unfound(f'failed to parse MAC address "{mac}"') from None
    return next((each for each in present if each.mac == wanted), None)


def _name(options: Options, observed: Observed) -> str:
    if options.kernel_path:
        pattern = _kernel_pattern(options)
        found = observed.paths[pattern]
        where = f"in path {posixpath.dirname(pattern)}"
    elif _is_pci(options, observed):
        direct, virtio = _pci_patterns(options)[2:]
        found = observed.paths[direct] or observed.paths[virtio]
        where = f"under pci device {options.pci}"
    else:
        found = observed.paths[_auxiliary_patterns(options)[1]]
        where = f"under auxiliary device {options.assigned}"
    if not found:
        raise _unfound(f"failed to find network device {where}")
    return posixpath.basename(found[0])


def _unfound(why: str) -> CniError:
    return CniError(Code.INTERNAL, f"failed to find host device: {why}")


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan the move, and what the device gets."""
    if _is_driven_elsewhere(options, observed):
        if options.takes_network:
            raise CniError(
                Code.INTERNAL, "useInterfaceNetwork is not supported for dpdk-bound devices"
            )
        return Plan((), _result(options, call, ""))
    device, ifname = _device(options, observed), call.ifname
    if observed.pod is not None and ifname in observed.pod.links:
        raise CniError(
            Code.INTERNAL,
            f'failed to move link failed to rename host device "{device.name}" to "{ifname}": '
            "file exists",
        )
    index = call.draws.index()
    result = _result(options, call, device.mac)
    had = captured.capture(device, observed.host) if options.takes_network else captured.NOTHING
    steps = [
        Step(
            HandOver(device.name, device.index, ifname, index),
            HandBack(ifname, device.name, device.index, device.alias),
        ),
        addressing.up(Place.POD, index),
        *captured.steps(had, index, ifname),
    ]
    if options.ipam:
        steps += addressing.configure(result, 0, index, ifname, skips_dad=False)
    planned = sublinks.planned(call, device.kind, index, device.mac, device.mtu)
    return Plan(tuple(steps), captured.told(result, had), planned=planned)


def _result(options: Options, call: Call, mac: str) -> Result:
    if options.ipam:
        return sublinks.result(call, mac, options.dns, is_addressed=not options.takes_network)
    return Result(interfaces=(Interface(call.ifname, mac, call.netns),))


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare the device, its addresses and routes with the result."""
    previous = checking.previous(call)
    if _is_driven_elsewhere(options, observed):
        return
    if options.takes_network:  # routes may be in any table, where the reference looks in one
        pod = checking.pod(observed, call)
        for route in previous.routes:
            checking.all_routes(pod, (route,), table=route.table or routes.MAIN)
        call = replace(call, previous=replace(previous, routes=()))
    sublinks.check(call, observed, "")


def remove(_options: object, call: Call, _observed: Observed) -> tuple[Operation, ...]:
    """Give back the container's link under the name in its alias."""
    return (HandBack(call.ifname),)


PLUGIN = Plugin(
    type="host-device",
    parse=parse,
    plan=plan,
    looks=looks,
    check=check,
    remove=remove,
    uses_ipam=lambda options: bool(options.ipam),
)
