"""The rules around published ports (pure): maps from ports to containers, and the way back.

A packet for this host is marked, looked up in the maps, and unmarked if none of them knows its
port. The mark tells the way back which packets were published ones: those whose sender could
be answered past this host (it is in the container's own subnet, or on this host's loopback) are
masqueraded, as the reference does it with its own mark.

A configuration with conditions or with a mark of its own gets chains and maps of its own.
"""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bitts.cni.errors import CniError, Code
from bitts.cni.results import IpInterface

from cni_daemon.names import HAIRPIN_MARK, TABLE
from cni_daemon.operations import ApplyRules, Once

EVERY_SOURCE = "hairpin_all"
_TYPES = {4: "ipv4_addr", 6: "ipv6_addr"}
_WORDS = {4: "ip", 6: "ip6"}
_BEFORE_MASQUERADE = 99
_ALL_BITS = 0xFFFFFFFF
_REMEMBERED = 128
_IPTABLES_MATCHES = {
    "-s": "{word} saddr", "--source": "{word} saddr", "-d": "{word} daddr",
    "--destination": "{word} daddr", "-i": "iifname", "--in-interface": "iifname",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """What one set of rules depends on; conditions are nft expressions, empty for none."""

    mark: int = HAIRPIN_MARK
    condition4: str = ""
    condition6: str = ""

    @property
    def suffix(self) -> str:
        """Return what tells its chains and maps from those of other rules."""
        if self == USUAL:
            return ""
        text = f"{self.mark} {self.condition4} / {self.condition6}".encode()
        return "_" + hashlib.blake2b(text, digest_size=4).hexdigest()

    def ports(self, version: int, *, has_address: bool) -> str:
        """Return the map's name for ports of one address of the host, or of any."""
        return f"{'addressports' if has_address else 'hostports'}{version}{self.suffix}"

    def hairpins(self, version: int) -> str:
        """Return the name of the map from containers to the sources to masquerade."""
        return f"hairpin{version}{self.suffix}"


USUAL = Rules()


def condition(name: str, words: Sequence[str], backend: str) -> str:
    """Return conditions as one nft expression. Raises CniError for what cannot be expressed."""
    if not words:
        return ""
    style = "iptables" if words[0][:1] in {"-", "!"} else "nftables"
    if backend and backend != style:
        raise CniError(
            Code.INTERNAL,
            f"failed to parse config: {backend} backend was requested but configuration contains "
            f"{style}-specific options [{name}]",
        )
    if any(not word or set(word) & set(';\n\r#\\"') for word in words):
        raise CniError(Code.INVALID_CONFIG, f'{name}: words may not contain any of ; # \\ "')
    version = 4 if name.endswith("4") else 6
    return _translated(name, words, version) if style == "iptables" else " ".join(words)


def _translated(name: str, words: Sequence[str], version: int) -> str:
    found: list[str] = []
    rest = list(words)
    while rest:
        is_not = rest[0] == "!"
        match = rest[1:3] if is_not else rest[:2]
        template = _IPTABLES_MATCHES.get(match[0] if match else "")
        if template is None or len(match) < 2:
            raise CniError(
                Code.UNSUPPORTED_FIELD,
                f"{name}: only -s, -d and -i are understood of iptables' matches: "
                f"write {' '.join(rest)!r} as an nft expression",
            )
        operator = "!= " if is_not else ""
        found.append(f"{template.format(word=_WORDS[version])} {operator}{match[1]}")
        del rest[: 3 if is_not else 2]
    return " ".join(found)


@functools.lru_cache(_REMEMBERED)
def base(rules: Rules) -> Once:
    """Return the rules that every published port needs."""
    return Once(f"ports{rules.suffix}", (ApplyRules(_script(rules)),))


def _script(rules: Rules) -> str:
    suffix, bit = rules.suffix, 1 << rules.mark
    lines = [f"add table inet {TABLE}", *_maps(rules)]
    lines += _chain(EVERY_SOURCE, "", ["masquerade"])
    lines += _chain(f"hostports{suffix}", "", _lookups(rules, bit))
    entry = [
        f"meta nfproto ipv{version} {wanted} fib daddr type local jump hostports{suffix}"
        for version, wanted in ((4, rules.condition4), (6, rules.condition6))
    ]
    for hook in ("prerouting", "output"):
        place = f"{{ type nat hook {hook} priority -100; policy accept; }}"
        lines += _chain(f"portmap_{hook}{suffix}", place, entry)
    place = f"{{ type nat hook postrouting priority {_BEFORE_MASQUERADE}; policy accept; }}"
    back = [
        f"meta mark & {bit:#x} == {bit:#x} ct status dnat "
        f"{_WORDS[version]} daddr vmap @{rules.hairpins(version)}"
        for version in (4, 6)
    ]
    lines += _chain(f"portmap_postrouting{suffix}", place, back)
    return "\n".join(lines) + "\n"


def _maps(rules: Rules) -> list[str]:
    lines: list[str] = []
    for version, kind in _TYPES.items():
        target = f"{kind} . inet_service"
        types = {
            rules.ports(version, has_address=False): f"inet_proto . inet_service : {target}",
            rules.ports(
                version, has_address=True
            ): f"{kind} . inet_proto . inet_service : {target}",
            rules.hairpins(version): f"{kind} : verdict",
        }
        lines += [f"add map inet {TABLE} {name} {{ type {of}; }}" for name, of in types.items()]
    return lines


def _lookups(rules: Rules, bit: int) -> list[str]:
    lines = [f"meta mark set meta mark | {bit:#x}"]
    for version, word in _WORDS.items():
        own, every = (rules.ports(version, has_address=has) for has in (True, False))
        lines.append(f"dnat {word} to {word} daddr . meta l4proto . th dport map @{own}")
        lines.append(f"dnat {word} to meta l4proto . th dport map @{every}")
    return [*lines, f"meta mark set meta mark & {_ALL_BITS ^ bit:#x}"]


def _chain(name: str, place: str, rules: Sequence[str]) -> list[str]:
    return [
        f"add chain inet {TABLE} {name} {place}".rstrip(),
        f"flush chain inet {TABLE} {name}",
        *(f"add rule inet {TABLE} {name} {rule}" for rule in rules),
    ]


@functools.lru_cache(_REMEMBERED)
def subnet_chain(address: IpInterface) -> str:
    """Return the chain that masquerades senders who are answered past this host."""
    return "hairpin_" + str(address.network).translate(str.maketrans("./:", "__-"))


@functools.lru_cache(_REMEMBERED)
def subnet(address: IpInterface) -> Once:
    """Return that chain's rules."""
    name, network = subnet_chain(address), address.network
    sources = f"{{ {network}, 127.0.0.0/8 }}" if network.version == 4 else str(network)
    rule = f"{_WORDS[network.version]} saddr {sources} masquerade"
    script = "\n".join([f"add table inet {TABLE}", *_chain(name, "", [rule])]) + "\n"
    return Once(f"hairpin {network}", (ApplyRules(script),))
