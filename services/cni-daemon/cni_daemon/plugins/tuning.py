"""tuning: settings and attributes of the container's link (cni.dev: meta/tuning).

What a link was before is in the journal, as the undo of the change, so there are no backup
files. Settings stay as they are on DEL, as with the reference.
"""

import functools
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bitts.cni import args
from bitts.cni.config import PluginConfig
from bitts.cni.documents import SIZES, Fields
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result
from bitts.net import links
from bitts.net.links import Change, Link

from cni_daemon.model import Call, Look, Observed, Place, Plan, Step
from cni_daemon.operations import ChangeLink, SetSysctl
from cni_daemon.plugins import checking
from cni_daemon.plugins.interface import Plugin

ALLOW_LIST = "/etc/cni/tuning/allowlist.conf"
"""Regular expressions, one a line: a setting must match one of them, if there is such a file."""

_ROOT = "/proc/sys/net/"
_MAC_SIZES = {6, 8, 20}
_REMEMBERED = 128


@dataclass(frozen=True, slots=True)
class Options:
    """What to set; None leaves an attribute alone. ``settings`` are keys as written, and values."""

    settings: tuple[tuple[str, str], ...] = ()
    mac: str = ""
    mtu: int = 0
    is_promiscuous: bool = False
    takes_all_multicast: bool | None = None
    queue_length: int | None = None

    @property
    def changes_link(self) -> bool:
        """Whether the link itself is to be changed."""
        return self != Options(self.settings)


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the configuration and what overrides it. Raises CniError."""
    own = config.fields
    try:
        known = args.parse(call.invocation.args, {"MAC"})
    except ValueError as error:
        raise CniError(Code.INTERNAL, str(error)) from None
    wanted = _overridden(Options(), own)
    mac = _usual(call.runtime.text("mac") or known.get("MAC") or wanted.mac)
    return _overridden(replace(wanted, mac=mac), own.nested("args").nested("cni"))


def _overridden(wanted: Options, fields: Fields) -> Options:
    settings = dict(wanted.settings) | _settings(fields.mapping("sysctl"))
    multicast = wanted.takes_all_multicast
    if fields.raw("allmulti") is not None:
        multicast = fields.boolean("allmulti")
    length = fields.optional_integer("txQLen", low=0, high=SIZES)
    return Options(
        tuple(settings.items()),
        _usual(fields.text("mac", wanted.mac)),
        fields.integer("mtu", wanted.mtu, low=0, high=SIZES),
        fields.boolean("promisc", default=wanted.is_promiscuous),
        multicast,
        wanted.queue_length if length is None else length,
    )


def _settings(given: Mapping[str, object]) -> dict[str, str]:
    wrong = [key for key, value in given.items() if not isinstance(value, str)]
    if wrong:
        raise CniError(Code.INTERNAL, f"failed to load netconf: sysctl.{wrong[0]}: no string")
    return {key: str(value) for key, value in given.items()}


def path(key: str, ifname: str) -> str:
    """Return the file of a setting below ``net``. Raises CniError for any other."""
    written = key.replace(".", "/").replace("IFNAME", ifname, 1)
    full = posixpath.normpath("/proc/sys/" + written.lstrip("/"))
    if not full.startswith(_ROOT) or "\0" in full:
        raise CniError(Code.INTERNAL, f'invalid net sysctl key: "{written}"')
    return full.removeprefix(_ROOT)


def looks(options: Options, call: Call) -> Look:
    """Look at the link; for CHECK at the settings, before a change at the list of allowed ones."""
    _previous(call)
    keys = tuple(path(key, call.ifname) for key, _ in options.settings)
    if call.command == "CHECK":
        return Look(pod=(call.ifname,), pod_settings=keys)
    files = (ALLOW_LIST,) if options.settings else ()
    return Look(pod=(call.ifname,) if options.changes_link else (), files=files)


def _previous(call: Call) -> Result:
    if call.previous is None:
        raise CniError(Code.INTERNAL, "Required prevResult missing")
    return call.previous


def _check_allowed(options: Options, listed: str | None) -> None:
    if listed is None:
        return
    allowed = [line.strip() for line in listed.splitlines() if line.strip()]
    for key, _ in options.settings:
        if not any(_matches(pattern, key) for pattern in allowed):
            raise CniError(
                Code.INTERNAL,
                f"Sysctl {key} is not allowed. Only the following sysctls are allowed: "
                f"[{' '.join(allowed)}]",
            )


@functools.lru_cache(_REMEMBERED)
def _matches(pattern: str, key: str) -> bool:
    try:
        return re.search(pattern, key) is not None
    except re.error as error:
        raise CniError(Code.INTERNAL, f"{ALLOW_LIST}: {pattern!r}: {error}") from None


def plan(options: Options, call: Call, observed: Observed) -> Plan:
    """Plan settings, then the link; of the result only the MAC address changes."""
    _check_allowed(options, observed.files.get(ALLOW_LIST))
    steps = [
        Step(SetSysctl(Place.POD, path(key, call.ifname), value)) for key, value in options.settings
    ]
    result = _previous(call)
    if options.changes_link:
        steps.append(_change(options, call, checking.pod(observed, call).links))
    if options.mac:
        result = replace(
            result,
            interfaces=tuple(
                replace(each, mac=options.mac) if each.name == call.ifname else each
                for each in result.interfaces
            ),
        )
    return Plan(tuple(steps), result)


def _change(options: Options, call: Call, present: Mapping[str, Link]) -> Step:
    link = present.get(call.ifname)
    if link is None:
        raise CniError(Code.INTERNAL, f'failed to get "{call.ifname}": Link not found')
    wanted, former = Change(), Change()
    if options.mac:
        _check_mac(options.mac)
        wanted, former = replace(wanted, mac=options.mac), replace(former, mac=link.mac)
    if options.mtu:
        wanted, former = replace(wanted, mtu=options.mtu), replace(former, mtu=link.mtu)
    if options.queue_length is not None:
        wanted = replace(wanted, txqlen=options.queue_length)
        former = replace(former, txqlen=link.queue_length)
    switches = [(links.PROMISCUOUS, True)] if options.is_promiscuous else []
    if options.takes_all_multicast is not None:
        switches.append((links.ALL_MULTICAST, options.takes_all_multicast))
    return Step(
        ChangeLink(Place.POD, _switched(wanted, switches), name=call.ifname),
        ChangeLink(
            Place.POD,
            _switched(former, [(flag, bool(link.flags & flag)) for flag, _ in switches]),
            name=call.ifname,
        ),
    )


def _switched(change: Change, switches: Sequence[tuple[int, bool]]) -> Change:
    on = sum(flag for flag, is_on in switches if is_on)
    return replace(change, flags=on, cleared=sum(flag for flag, is_on in switches if not is_on))


def _usual(mac: str) -> str:
    """Return an address as the kernel tells it; what is none is refused when it is to be set."""
    return links.mac_text(links.mac_bytes(mac)) if _is_mac(mac) else mac


def _is_mac(text: str) -> bool:
    try:
        return len(links.mac_bytes(text)) in _MAC_SIZES
    except ValueError:
        return False


def _check_mac(mac: str) -> None:
    if _is_mac(mac):
        return
    raise CniError(Code.INTERNAL, f"invalid args {mac} for MAC addr: address {mac}: invalid MAC")


def check(options: Options, call: Call, observed: Observed) -> None:
    """Compare settings and link with the configuration."""
    pod = checking.pod(observed, call)
    for key, value in options.settings:
        present = pod.settings.get(path(key, call.ifname))
        if present is None:
            raise checking.fail(f"the kernel has no setting {key}")
        if present != value:
            raise checking.fail(
                f"Error: Tuning configured value of {_ROOT}{path(key, call.ifname)} is {value}, "
                f"current value is {present}"
            )
    link = pod.links.get(call.ifname)
    if link is None:
        raise checking.fail(f"Cannot find container link {call.ifname}")
    _compare(options, call.ifname, link)


def _compare(options: Options, ifname: str, link: Link) -> None:
    has_all = bool(link.flags & links.ALL_MULTICAST)
    found = (
        ("Ethernet", options.mac.lower() or link.mac, link.mac),
        ("promisc", options.is_promiscuous, link.is_promiscuous),
        ("MTU", options.mtu or link.mtu, link.mtu),
        (
            "all-multicast mode",
            has_all if options.takes_all_multicast is None else options.takes_all_multicast,
            has_all,
        ),
        (
            "Transmit Queue Length",
            link.queue_length if options.queue_length is None else options.queue_length,
            link.queue_length,
        ),
    )
    for name, wanted, present in found:
        if wanted != present:
            raise checking.fail(
                f"Error: Tuning configured {name} of {ifname} is {wanted}, "
                f"current value is {present}"
            )


PLUGIN = Plugin(type="tuning", parse=parse, plan=plan, looks=looks, check=check)
