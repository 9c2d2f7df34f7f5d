"""Links: what they look like, and the messages that make, change and remove them.

Numbers and structures are those of ``linux/if_link.h``. The index of a new link may be chosen
by its maker, on both sides of a veth pair, so that nothing need be looked up afterwards; the
peer's index counts only together with the host's. A peer must not be up when it is made.
"""

import errno
import fcntl
import socket
import struct
import threading
from dataclasses import dataclass

from bitts.net import wire
from bitts.net.wire import Message, Reply

NEW, DELETE, GET, SET = 16, 17, 18, 19
UP = 0x1
RUNNING = 0x40
PROMISCUOUS = 0x100
ALL_MULTICAST = 0x200
OPERSTATE_UP = 6

_INFO = struct.Struct("=BxHiII")
_REQUEST = struct.Struct("=16sH22x")
_NAMELESS, _NAME_SIZE = struct.Struct("=16xi20x"), 16
_GET_FLAGS, _GET_NAME = 0x8913, 0x8910
_local = threading.local()
_BRIDGE_FAMILY = 7
_MAC, _NAME, _MTU, _LINK, _MASTER = 1, 3, 4, 5, 10
_OPERSTATE, _LINKINFO, _ALIAS, _GROUP, _NETNS_FD, _LINK_NETNS = 16, 18, 20, 27, 28, 37
_NEW_INDEX = 49
_TXQLEN = 13
_AF_SPEC = 26
_EXTENSIONS, _WITHOUT_COUNTERS = 29, 8
_PORT_HAIRPIN, _PORT_ISOLATED = 4, 33
_BRIDGE_VLAN_FILTERING = 7
_SETTING = 1
_SETTINGS = {"vlan": wire.u16, "ipvlan": wire.u16, "macvlan": wire.u32, "vrf": wire.u32}
"""Kinds whose first attribute says what matters: number of the VLAN, mode, routing table."""

_VLAN_INFO = 2
_VLAN_PVID, _VLAN_UNTAGGED = 2, 4
_LINKINFO_KIND, _LINKINFO_DATA, _LINKINFO_SLAVE_KIND, _LINKINFO_SLAVE_DATA = 1, 2, 4, 5
_INET_CONF, _CONF_ARP_NOTIFY = 1, 22


@dataclass(frozen=True, slots=True)
class Link:
    """A link as the kernel describes it; ``peer_index`` is the other end or lower link.

    ``setting`` is a VLAN's number, a macvlan's or ipvlan's mode, a VRF's routing table.
    """

    index: int
    name: str
    kind: str = ""
    mac: str = ""
    mtu: int = 0
    flags: int = 0
    operstate: int = 0
    master: int = 0
    peer_index: int = 0
    peer_netns: int | None = None
    alias: str = ""
    is_hairpin: bool = False
    is_isolated: bool = False
    filters_vlans: bool = False
    queue_length: int | None = None
    setting: int = 0

    @property
    def is_up(self) -> bool:
        """Whether it is switched on (its carrier is another matter)."""
        return bool(self.flags & UP)

    @property
    def is_promiscuous(self) -> bool:
        """Whether it was told to take every frame."""
        return bool(self.flags & PROMISCUOUS)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair to be made."""

    name: str
    index: int
    mac: str


@dataclass(frozen=True, slots=True)
class Change:
    """What to change on a link; None leaves it alone. ``flags`` are set, ``cleared`` unset.

    A link that moves to the namespace ``netns_fd`` may be given an index there (Linux 5.13).
    ``hairpin`` and ``isolated`` are a bridge port's; ``arp_notify`` lets a link tell its IPv4
    addresses when it is switched on.
    """

    flags: int = 0
    cleared: int = 0
    name: str | None = None
    mac: str | None = None
    mtu: int | None = None
    master: int | None = None
    alias: str | None = None
    txqlen: int | None = None
    netns_fd: int | None = None
    new_index: int | None = None
    hairpin: bool | None = None
    isolated: bool | None = None
    arp_notify: bool | None = None


def mac_bytes(mac: str) -> bytes:
    """Return the bytes of a MAC address such as ``02:00:00:00:00:01``."""
    return bytes.fromhex(mac.replace(":", "").replace("-", "").replace(".", ""))


def mac_text(data: bytes | memoryview) -> str:
    """Return a MAC address in its usual form."""
    return bytes(data).hex(":")


def veth(
    host: End, pod: End, *, netns_fd: int, mtu: int = 0, master: int = 0, is_up: bool = True
) -> Message:
    """Make a pair whose ``pod`` end is born in another namespace: moving costs an RCU wait."""
    size = wire.u32(_MTU, mtu) if mtu else b""
    peer = (
        _INFO.pack(0, 0, pod.index, 0, 0)
        + wire.text(_NAME, pod.name)
        + wire.u32(_NETNS_FD, netns_fd)
        + (wire.attribute(_MAC, mac_bytes(pod.mac)) if pod.mac else b"")
        + size
    )
    flags = UP if is_up else 0
    body = (
        _INFO.pack(0, 0, host.index, flags, flags)
        + wire.text(_NAME, host.name)
        + (wire.attribute(_MAC, mac_bytes(host.mac)) if host.mac else b"")
        + size
        + (wire.u32(_MASTER, master) if master else b"")
        + wire.nested(
            _LINKINFO,
            wire.text(_LINKINFO_KIND, "veth"),
            wire.nested(_LINKINFO_DATA, wire.attribute(1, peer)),
        )
    )
    return Message(NEW, wire.CREATE | wire.EXCLUSIVE, body)


def create(
    kind: str, name: str, *, index: int = 0, change: Change | None = None, data: bytes = b"",
    lower: int = 0,
) -> Message:  # fmt: skip
    """Make a link of any kind; ``data`` are the kind's own attributes, ``lower`` its parent."""
    wanted = change or Change()
    body = (
        _INFO.pack(0, 0, index, wanted.flags, wanted.flags | wanted.cleared)
        + wire.text(_NAME, name)
        + _attributes(wanted)
        + (wire.u32(_LINK, lower) if lower else b"")
        + wire.nested(
            _LINKINFO,
            wire.text(_LINKINFO_KIND, kind),
            wire.nested(_LINKINFO_DATA, data) if data else b"",
        )
    )
    return Message(NEW, wire.CREATE | wire.EXCLUSIVE, body)


def kind_data(kind: str, setting: int) -> bytes:
    """Return the attributes of a kind: see ``Link.setting``."""
    return _SETTINGS[kind](_SETTING, setting)


def bridge(name: str, *, mac: str, mtu: int = 0, filters_vlans: bool = False) -> Message:
    """Make a bridge, up from the start, with a MAC address that stays."""
    data = wire.u8(_BRIDGE_VLAN_FILTERING, 1) if filters_vlans else b""
    return create("bridge", name, change=Change(flags=UP, mac=mac, mtu=mtu or None), data=data)


def change(index: int, wanted: Change, *, name: str = "") -> Message:
    """Change a link, found by index or, where that is 0, by ``name``."""
    body = _INFO.pack(0, 0, index, wanted.flags, wanted.flags | wanted.cleared)
    if not index:
        body += wire.text(_NAME, name)
    return Message(NEW, 0, body + _attributes(wanted))


def _attributes(wanted: Change) -> bytes:
    parts: list[bytes] = []
    if wanted.name is not None:
        parts.append(wire.text(_NAME, wanted.name))
    if wanted.mac is not None:
        parts.append(wire.attribute(_MAC, mac_bytes(wanted.mac)))
    if wanted.alias is not None:
        parts.append(wire.attribute(_ALIAS, wanted.alias.encode()))
    numbers = (
        (_MTU, wanted.mtu), (_MASTER, wanted.master), (_TXQLEN, wanted.txqlen),
        (_NETNS_FD, wanted.netns_fd), (_NEW_INDEX, wanted.new_index),
    )  # fmt: skip
    parts += [wire.u32(kind, value) for kind, value in numbers if value is not None]
    if wanted.hairpin is not None or wanted.isolated is not None:
        port = _port_settings(hairpin=bool(wanted.hairpin), isolated=bool(wanted.isolated))
        slave = wire.text(_LINKINFO_SLAVE_KIND, "bridge") + wire.nested(_LINKINFO_SLAVE_DATA, port)
        parts.append(wire.nested(_LINKINFO, slave))
    if wanted.arp_notify is not None:
        setting = wire.u32(_CONF_ARP_NOTIFY, wanted.arp_notify)
        parts.append(
            wire.nested(_AF_SPEC, wire.nested(socket.AF_INET, wire.nested(_INET_CONF, setting)))
        )
    return b"".join(parts)


def _port_settings(*, hairpin: bool, isolated: bool) -> bytes:
    return wire.u8(_PORT_HAIRPIN, hairpin) + wire.u8(_PORT_ISOLATED, isolated)


def port_vlan(index: int, vlan: int, *, is_pvid: bool = False, remove: bool = False) -> Message:
    """Let a VLAN through a bridge port: untagged as the port's own, or tagged; or no longer."""
    flags = (_VLAN_PVID | _VLAN_UNTAGGED) if is_pvid else 0
    entry = wire.attribute(_VLAN_INFO, struct.pack("=HH", flags, vlan))
    body = _INFO.pack(_BRIDGE_FAMILY, 0, index, 0, 0) + wire.nested(_AF_SPEC, entry)
    return Message(DELETE if remove else SET, 0, body)


def delete(*, index: int = 0, name: str = "") -> Message:
    """Remove a link by index or by name (the index wins)."""
    body = _INFO.pack(0, 0, index, 0, 0) + (wire.text(_NAME, name) if not index else b"")
    return Message(DELETE, 0, body)


def regroup(name: str, group: int) -> Message:
    """Put a link into a group, which is a number and nothing else."""
    return Message(SET, 0, _INFO.pack(0, 0, 0, 0, 0) + wire.text(_NAME, name) + _group(group))


def delete_group(group: int) -> Message:
    """Remove all links of a group at once, for which the kernel waits once instead of for each."""
    return Message(DELETE, 0, _INFO.pack(0, 0, 0, 0, 0) + _group(group))


def _group(group: int) -> bytes:
    return wire.u32(_GROUP, group)


def get(*, index: int = 0, name: str = "") -> Message:
    """Ask for one link, without its counters."""
    body = _INFO.pack(0, 0, index, 0, 0) + (wire.text(_NAME, name) if not index else b"")
    return Message(GET, 0, body + wire.u32(_EXTENSIONS, _WITHOUT_COUNTERS))


def every() -> Message:
    """Ask for all links."""
    return Message(GET, 0, _INFO.pack(0, 0, 0, 0, 0))


def is_running(name: str) -> bool:
    """Say whether a link of the calling thread's namespace has its carrier; no if there is none.

    Asked by ``ioctl``, which waits for no change of other links and describes nothing else.
    Raises OSError.
    """
    asked = _REQUEST.pack(name.encode(), 0)
    try:
        answer = fcntl.ioctl(_asking(), _GET_FLAGS, asked)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return False
        raise
    return bool(_REQUEST.unpack(answer)[1] & RUNNING)


def name_of(index: int) -> str:
    """Return the name of a link of the calling thread's namespace. Raises OSError."""
    answer = fcntl.ioctl(_asking(), _GET_NAME, _NAMELESS.pack(index))
    return answer[:_NAME_SIZE].split(b"\0", 1)[0].decode()


def _asking() -> socket.socket:
    """Return the calling thread's socket for such questions: it belongs to one namespace."""
    kept: socket.socket | None = getattr(_local, "socket", None)
    if kept is None:
        kept = _local.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    return kept


@wire.decoder("which link is meant")
def identify(body: memoryview) -> tuple[int, int, int]:
    """Return address family, index and flags without decoding the rest. Raises NetlinkError."""
    family, _, index, flags, _ = _INFO.unpack_from(body)
    return family, index, flags


@wire.decoder("a link")
def decode(reply: Reply) -> Link:
    """Read a link's description. Raises NetlinkError."""
    _, _, index, flags, _ = _INFO.unpack_from(reply.body)
    found = wire.attributes(reply.body[_INFO.size :])
    info = wire.attributes(found.get(_LINKINFO, memoryview(b"")))
    own = wire.attributes(info.get(_LINKINFO_DATA, memoryview(b"")))
    port_settings = wire.attributes(info.get(_LINKINFO_SLAVE_DATA, memoryview(b"")))
    kind = wire.string(info.get(_LINKINFO_KIND))
    return Link(
        index=index,
        name=wire.string(found.get(_NAME)),
        kind=kind,
        mac=mac_text(found[_MAC]) if _MAC in found else "",
        mtu=wire.number(found.get(_MTU)),
        flags=flags,
        operstate=wire.number(found.get(_OPERSTATE)),
        master=wire.number(found.get(_MASTER)),
        peer_index=wire.number(found.get(_LINK)),
        peer_netns=wire.number(found[_LINK_NETNS]) if _LINK_NETNS in found else None,
        alias=wire.string(found.get(_ALIAS)),
        queue_length=wire.number(found[_TXQLEN]) if _TXQLEN in found else None,
        is_hairpin=bool(wire.number(port_settings.get(_PORT_HAIRPIN))),
        is_isolated=bool(wire.number(port_settings.get(_PORT_ISOLATED))),
        setting=wire.number(own.get(_SETTING)) if kind in _SETTINGS else 0,
        filters_vlans=kind == "bridge" and bool(wire.number(own.get(_BRIDGE_VLAN_FILTERING))),
    )
