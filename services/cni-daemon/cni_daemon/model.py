"""What a plugin sees and what it answers with: the types of the plugin interface.

A plugin is told about a call (``Call``), says what it wants to know (``Look``), sees it
(``Observed``), and answers with a ``Plan``: operations in order, each with the operation that
takes it back, and the result that the runtime will get. Everything here is a frozen value, so
that a plan can be compared in a test and its undo half can be written to the journal.
"""

import enum
import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bitts.cni.config import PluginConfig
from bitts.cni.documents import Fields
from bitts.cni.environment import Command, Invocation
from bitts.cni.results import Result
from bitts.net.addresses import Address
from bitts.net.links import Link
from bitts.net.nftables import Container, Element
from bitts.net.routes import Route
from bitts.net.rules import Rule
from bitts.net.tc import Discipline

from cni_daemon.operations import Operation

_LABEL_LIMIT = 200
FIREWALLD = "firewalld"
"""Key of a setting of the host: whether firewalld runs."""


def label(network: str, container_id: str, ifname: str) -> str:
    """Return what names an attachment in link aliases (the kernel takes 255 bytes) and logs."""
    return f"{network}/{container_id}/{ifname}"[:_LABEL_LIMIT]


class Place(enum.StrEnum):
    """Where something is: in the daemon's own namespace, or in the container's."""

    HOST = "host"
    POD = "pod"


class Draws:
    """Names, numbers and MAC addresses for new things: all chance of a plan comes from here."""

    def __init__(self, source: random.Random, indexes: Iterator[int]) -> None:
        self._source = source
        self._indexes = indexes

    def link_name(self) -> str:
        """Return a name as the reference plugins give it: ``veth`` and eight hex digits."""
        return f"veth{self._source.getrandbits(32):08x}"

    def index(self) -> int:
        """Return a link index that this daemon has not used before."""
        return next(self._indexes)

    def mac(self) -> str:
        """Return a random unicast address of the locally administered kind."""
        first = (self._source.getrandbits(8) & 0xFC) | 0x02
        return f"{first:02x}:" + self._source.getrandbits(40).to_bytes(5, "big").hex(":")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one plugin. ``previous`` is the chain's result so far.

    ``addressing`` is what the IPAM plugin answered, once it was asked (ADD only).
    """

    invocation: Invocation
    config: PluginConfig
    draws: Draws
    previous: Result | None = None
    addressing: Result | None = None

    def addressed(self, addressing: Result) -> "Call":
        """Return the call with the IPAM plugin's answer."""
        return Call(self.invocation, self.config, self.draws, self.previous, addressing)

    def after(self, previous: Result) -> "Call":
        """Return the call with the result of the plugin before."""
        return Call(self.invocation, self.config, self.draws, previous, self.addressing)

    @property
    def command(self) -> Command:
        """The verb."""
        return self.invocation.command

    @property
    def network(self) -> str:
        """The network's name."""
        return self.config.name

    @property
    def container_id(self) -> str:
        """The container's ID."""
        return self.invocation.container_id

    @property
    def ifname(self) -> str:
        """The interface's name in the container."""
        return self.invocation.ifname

    @property
    def netns(self) -> str:
        """The path of the container's namespace."""
        return self.invocation.netns

    @property
    def runtime(self) -> Fields:
        """The ``runtimeConfig``."""
        return self.config.fields.nested("runtimeConfig")

    @property
    def digest(self) -> str:
        """What the reference plugins name chains and links by: their first hex digits."""
        return hashlib.sha512((self.network + self.container_id).encode()).hexdigest()

    @property
    def label(self) -> str:
        """What names the attachment in link aliases and logs."""
        return label(self.network, self.container_id, self.ifname)


@dataclass(frozen=True, slots=True)
class Look:
    """What a plugin wants to know, by name: links with their addresses, settings, routes.

    ``elements`` are sets and maps, each with the key of an element that may be there;
    ``host_disciplines`` names links (among ``host``) whose queueing disciplines matter;
    ``files`` are texts to read, small ones; ``paths`` are patterns of files to look for;
    ``zone`` is one of firewalld's, if its sources matter. Among ``host_settings`` may be
    ``FIREWALLD``, which is no file: "1" while firewalld runs.
    """

    host: tuple[str, ...] = ()
    pod: tuple[str, ...] = ()
    host_settings: tuple[str, ...] = ()
    pod_settings: tuple[str, ...] = ()
    has_pod_routes: bool = False
    has_pod_rules: bool = False
    has_host_routes: bool = False
    has_host_links: bool = False
    has_host_addresses: bool = False
    has_host_rules: bool = False
    has_pod_links: bool = False
    elements: tuple[tuple[Container, bytes], ...] = ()
    host_disciplines: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    zone: str = ""

    def without(self, planned: Mapping[Place, tuple[Link, ...]]) -> "Look":
        """Do not look for links that will only be made by the plan."""
        if not planned:
            return self
        host = {each.name for each in planned.get(Place.HOST, ())}
        pod = {each.name for each in planned.get(Place.POD, ())}
        if host.isdisjoint(self.host) and pod.isdisjoint(self.pod):
            return self
        return replace(
            self,
            host=tuple(each for each in self.host if each not in host),
            pod=tuple(each for each in self.pod if each not in pod),
            host_disciplines=tuple(each for each in self.host_disciplines if each not in host),
        )


@dataclass(frozen=True, slots=True)
class View:
    """One namespace as it was seen; what was looked for and is not there is missing."""

    links: Mapping[str, Link] = field(default_factory=dict)
    addresses: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()
    disciplines: tuple[Discipline, ...] = ()
    rules: tuple[Rule, ...] = ()

    def by_index(self, index: int) -> Link | None:
        """Return a link by its index."""
        return next((each for each in self.links.values() if each.index == index), None)


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen. ``pod`` is None where the namespace is gone.

    ``settled`` holds the keys of ``Once`` operations that this daemon has carried out,
    ``elements`` those of the elements looked for that are in their sets.
    """

    host: View = field(default_factory=View)
    pod: View | None = None
    settled: frozenset[str] = frozenset()
    elements: Mapping[tuple[Container, bytes], Element] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    zone_sources: frozenset[str] = frozenset()

    def with_planned(self, planned: Mapping[Place, tuple[Link, ...]]) -> "Observed":
        """Add links that earlier plugins of the chain plan to make, as if they were there."""
        if not planned:
            return self
        host = _overlaid(self.host, planned.get(Place.HOST, ()))
        pod = None if self.pod is None else _overlaid(self.pod, planned.get(Place.POD, ()))
        return replace(self, host=host, pod=pod)


def _overlaid(view: View, planned: tuple[Link, ...]) -> View:
    if not planned:
        return view
    return replace(view, links={**view.links, **{each.name: each for each in planned}})


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and what takes it back; the undo must bear that the operation never ran."""

    do: Operation | None
    undo: Operation | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and the result they lead to.

    ``carriers`` are names of host links that must come up before the answer; ``planned`` tells
    later plugins of the same chain about links that will exist by then.
    """

    steps: tuple[Step, ...]
    result: Result
    carriers: tuple[str, ...] = ()
    planned: Mapping[Place, tuple[Link, ...]] = field(default_factory=dict)
