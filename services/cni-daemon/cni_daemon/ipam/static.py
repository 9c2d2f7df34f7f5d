"""static: addresses as the configuration, CNI_ARGS or the runtime say (cni.dev: ipam/static)."""

from dataclasses import dataclass

from bitts.cni import args, results
from bitts.cni.config import PluginConfig
from bitts.cni.documents import DocumentError, OutOfRangeError
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Ip, IpInterface, Result

from cni_daemon.ipam.interface import Ipam
from cni_daemon.ipam.stores import Stores
from cni_daemon.model import Call
from cni_daemon.operations import Operation


@dataclass(frozen=True, slots=True)
class Options:
    """The result, which is all there is to this plugin."""

    result: Result


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the addresses; each later source appends to or replaces the former."""
    if "ipam" not in config.fields and call.command in {Command.ADD, Command.CHECK}:
        raise CniError(Code.INTERNAL, "IPAM config missing 'ipam' key")
    ipam = config.fields.nested("ipam")
    try:
        found = [
            Ip(
                _cidr(each.text("address"), "the 'address' field"),
                each.converted("gateway", results.parse_address, None),
            )
            for each in ipam.objects("addresses")
        ]
        found += _from_args(call.invocation.args)
        for source in (config.fields.nested("args").nested("cni"), call.runtime):
            given = source.texts("ips")
            if given:
                found = [Ip(_cidr(each, "an entry in the 'ips' field")) for each in given]
        routes = tuple(results.decode_route(each) for each in ipam.objects("routes"))
        dns = results.decode_dns(ipam.nested("dns"))
    except OutOfRangeError as error:
        raise CniError(Code.INVALID_CONFIG, str(error)) from None
    except (DocumentError, ValueError) as error:
        raise CniError(Code.INTERNAL, str(error)) from None
    return Options(Result(ips=tuple(found), routes=routes, dns=dns))


def _cidr(text: str, what: str) -> IpInterface:
    try:
        return results.parse_interface(text)
    except ValueError as error:
        if what == "the 'address' field":
            message = f"the 'address' field is expected to be in CIDR notation, got: '{text}'"
        else:
            message = f"an entry in the 'ips' field is NOT in CIDR notation, got: '{text}'"
        raise ValueError(f"{message} - {error}") from None


def _from_args(text: str) -> list[Ip]:
    """Read ``IP=a/len,b/len`` and ``GATEWAY=x,y``: a gateway serves the subnets it is in."""
    if not text:
        return []
    known = args.parse(text, {"IP", "GATEWAY"})
    found: list[Ip] = []
    gateways = [results.parse_address(each) for each in known.get("GATEWAY", "").split(",") if each]
    for each in filter(None, known.get("IP", "").split(",")):
        try:
            address = results.parse_interface(each)
        except ValueError:
            raise ValueError(
                f"the 'ip' field is expected to be in CIDR notation, got: '{each}'"
            ) from None
        gateway = next((gw for gw in gateways if gw in address.network), None)
        found.append(Ip(address, gateway))
    return found


def undo(_call: Call) -> tuple[Operation, ...]:
    """Return nothing: nothing is kept."""
    return ()


def allocate(options: Options, _stores: Stores, _call: Call) -> Result:
    """Return what was configured."""
    return options.result


def check(options: Options, _stores: Stores, call: Call) -> None:
    """Raise CniError where a configured address has another gateway in the result."""
    if call.previous is None:
        raise CniError(Code.INTERNAL, "Required prevResult missing")
    wanted = {ip.address: ip.gateway for ip in options.result.ips}
    for ip in call.previous.ips:
        gateway = wanted.get(ip.address)
        if gateway is not None and gateway != ip.gateway:
            raise CniError(
                Code.INTERNAL,
                f"static: Failed to match addr {ip.address} with its gateway {gateway}",
            )


IPAM = Ipam(type="static", parse=parse, undo=undo, allocate=allocate, check=check)
