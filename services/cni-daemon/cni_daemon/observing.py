"""Look at the machine for a plan: as few questions as the plugin asked for."""

import contextlib
import glob
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bitts.net import addresses, links, nftables, routes, rules, sysctls, tc
from bitts.net.addresses import Address
from bitts.net.changes import SETTINGS, Changes
from bitts.net.errors import NetlinkError
from bitts.net.links import Link
from bitts.net.nftables import Container, Element
from bitts.net.rules import Rule
from bitts.net.sockets import Socket
from bitts.net.tc import Discipline

from cni_daemon import scene, zones
from cni_daemon.model import FIREWALLD, Look, Observed, Place, View
from cni_daemon.names import FIRST_INDEX
from cni_daemon.scene import Scene

_FILE_SIZE = 1 << 20
_REMEMBERED = 256
_TOLD = {*SETTINGS, FIREWALLD}
"""Settings whose changes are heard of."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was seen of the host and is still so: every change of it would have been heard of."""

    links: dict[str, Link] = field(default_factory=dict)
    addresses: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


class Memory:
    """Keeps what was seen of the host for as long as the kernel announces no change.

    That is what the pods of a network share: a bridge with its addresses, and forwarding.
    """

    def __init__(self) -> None:
        self._changes = Changes(FIRST_INDEX)
        self._mutex = threading.Lock()
        self._known = Known()

    def close(self) -> None:
        """Listen for no more changes."""
        self._changes.close()

    def known(self) -> Known:
        """Return what is known now; who looks at more adds it, to no effect if it is too late."""
        with self._mutex:
            known = self._known
            if self._changes.happened() or len(known.links) > _REMEMBERED or _is_outdated(known):
                self._known = Known()
            return self._known


def _is_outdated(known: Known) -> bool:
    """Say whether firewalld, if anybody asked for it, has come or gone: the kernel tells not."""
    return FIREWALLD in known.settings and known.settings[FIREWALLD] != zones.running()


def observe(
    look: Look, where: Scene, settled: frozenset[str], known: Known | None = None
) -> Observed:
    """Return what a plugin asked to see. Blocks. Raises NetlinkError, NamespaceError, OSError.

    What is ``known`` of the host is not looked at.
    """
    host = _host(look, where, Known() if known is None else known)
    pod = _pod(look, where) if where.has_pod else None
    found = Observed(host, pod, settled, _elements(look.elements), _files(look.files))
    if look.zone:
        found = replace(found, zone_sources=zones.sources(look.zone))
    if look.paths:
        found = replace(found, paths={each: tuple(sorted(glob.glob(each))) for each in look.paths})
    return found


def _host(look: Look, where: Scene, known: Known) -> View:
    if not (look.host or look.host_settings or look.has_host_links):
        return View()
    channel = where.route(Place.HOST)
    seen = _known_links(channel, look.host, known)
    if look.has_host_links:
        seen = {**_every_link(channel), **seen}
    host = View(
        seen, _known_addresses(channel, seen, look.host, known), _known_settings(look, known)
    )
    wanted = [seen[name].index for name in look.host_disciplines if name in seen]
    if wanted:
        host = replace(host, disciplines=_disciplines(channel, wanted))
    if look.has_host_addresses:
        host = replace(host, addresses=_every_address(channel, seen))
    if look.has_host_routes:
        host = replace(host, routes=_routes(channel))
    if look.has_host_rules:
        host = replace(host, rules=_rules(channel))
    return host


def _known_links(channel: Socket, names: Iterable[str], known: Known) -> dict[str, Link]:
    missing = [each for each in names if each not in known.links]
    found = _links(channel, missing)
    known.links.update((n, link) for n, link in found.items() if link.index < FIRST_INDEX)
    return {n: known.links.get(n) or found[n] for n in names if n in known.links or n in found}


def _known_addresses(
    channel: Socket, seen: Mapping[str, Link], names: Iterable[str], known: Known
) -> dict[str, tuple[Address, ...]]:
    missing = [each for each in names if each not in known.addresses]
    found = _addresses(channel, seen, missing)
    known.addresses.update((n, each) for n, each in found.items() if n in known.links)
    return {n: known.addresses.get(n, found.get(n, ())) for n in names if n in seen}


def _known_settings(look: Look, known: Known) -> dict[str, str]:
    found = _settings(each for each in look.host_settings if each not in known.settings)
    known.settings.update((key, value) for key, value in found.items() if key in _TOLD)
    return {**{n: known.settings[n] for n in look.host_settings if n in known.settings}, **found}


def _files(wanted: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in wanted:
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            found[path] = file.read(_FILE_SIZE)
    return found


def _disciplines(channel: Socket, wanted: Iterable[int]) -> tuple[Discipline, ...]:
    found = (
        tc.find(channel, index, parent) for index in wanted for parent in (tc.ROOT, tc.INGRESS)
    )
    return tuple(each for each in found if each is not None)


def _elements(
    wanted: Iterable[tuple[Container, bytes]],
) -> dict[tuple[Container, bytes], Element]:
    found: dict[tuple[Container, bytes], Element] = {}
    for container, key in wanted:
        try:
            reply = scene.host_netfilter().query(nftables.get(container, key), "looking for rules")
        except NetlinkError as error:
            if not error.is_missing:
                raise
        else:
            found.update(((container, key), each) for each in nftables.decode(reply))
    return found


def _pod(look: Look, where: Scene) -> View:
    wants_links = look.pod or look.has_pod_links
    if not (wants_links or look.pod_settings or look.has_pod_routes or look.has_pod_rules):
        return View()
    channel = where.route(Place.POD)
    seen = _links(channel, look.pod)
    if look.has_pod_links:
        seen = {**_every_link(channel), **seen}
    settings: Mapping[str, str] = {}
    if look.pod_settings:
        with where.inside(Place.POD):
            settings = _settings(look.pod_settings)
    found = _routes(channel) if look.has_pod_routes else ()
    view = View(seen, _addresses(channel, seen, look.pod), settings, found)
    return replace(view, rules=_rules(channel)) if look.has_pod_rules else view


def _routes(channel: Socket) -> tuple[routes.Route, ...]:
    found = (routes.decode(each) for each in channel.dump(routes.every()))
    return tuple(each for each in found if each is not None)


def _rules(channel: Socket) -> tuple[Rule, ...]:
    found = (rules.decode(each) for each in channel.dump(rules.every()))
    return tuple(each for each in found if each is not None)


def _every_link(channel: Socket) -> dict[str, Link]:
    found = (links.decode(each) for each in channel.dump(links.every()))
    return {each.name: each for each in found}


def _links(channel: Socket, names: Iterable[str]) -> dict[str, Link]:
    found: dict[str, Link] = {}
    for name in names:
        try:
            found[name] = links.decode(channel.query(links.get(name=name), f"looking at {name}"))
        except NetlinkError as error:
            if not error.is_missing:
                raise
    return found


def _addresses(
    channel: Socket, seen: Mapping[str, Link], names: Iterable[str]
) -> dict[str, tuple[Address, ...]]:
    found: dict[str, tuple[Address, ...]] = {}
    for name in names:
        if name in seen:
            decoded = (
                addresses.decode(each) for each in channel.dump(addresses.of_link(seen[name].index))
            )
            found[name] = tuple(each for each in decoded if each is not None)
    return found


def _every_address(channel: Socket, seen: Mapping[str, Link]) -> dict[str, tuple[Address, ...]]:
    decoded = [addresses.decode(each) for each in channel.dump(addresses.of_link())]
    return {
        name: tuple(each for each in decoded if each is not None and each.index == link.index)
        for name, link in seen.items()
    }


def _settings(keys: Iterable[str]) -> dict[str, str]:
    values = ((key, zones.running() if key == FIREWALLD else sysctls.read(key)) for key in keys)
    return {key: value for key, value in values if value is not None}
