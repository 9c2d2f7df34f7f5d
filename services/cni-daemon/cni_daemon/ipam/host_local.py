"""host-local: addresses from ranges, kept in files on this node (cni.dev: ipam/host-local)."""

import contextlib
import functools
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bitts.cni import args, results, versions
from bitts.cni.attachments import Attachment
from bitts.cni.config import PluginConfig
from bitts.cni.documents import DocumentError, Fields, OutOfRangeError
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Dns, Ip, IpAddress, Result, Route

from cni_daemon.ipam import ranges
from cni_daemon.ipam.interface import Ipam
from cni_daemon.ipam.ranges import Candidate, NoRangesError, RangeError, RangeSet
from cni_daemon.ipam.stores import Store, StoreBusyError, Stores
from cni_daemon.model import Call
from cni_daemon.operations import Operation, ReleaseAddresses

DATA_DIRECTORY = "/var/lib/cni/networks"
_REMEMBERED = 128
_PATIENCE_OF_QUESTIONS = 0.05
"""Seconds that STATUS waits for a store; whoever asks it judges the node by how long it takes."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the configuration asks for; ``requested`` are particular addresses."""

    directory: str
    sets: tuple[RangeSet, ...]
    requested: tuple[IpAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    resolv_conf: str = ""


def directory(config: PluginConfig) -> str:
    """Return the folder of a network's reservations; needs no valid ranges."""
    base = config.fields.nested("ipam").path("dataDir") or DATA_DIRECTORY
    return os.path.join(base, config.name)


def parse(config: PluginConfig, call: Call) -> Options:
    """Read the ``ipam`` section. Raises CniError with host-local's words."""
    try:
        options = _options(config)
        requested = _requested(config, call)
    except NoRangesError as error:
        if call.command == Command.STATUS:  # they may come with each attachment, as ``ipRanges``
            return Options(directory(config), ())
        raise CniError(Code.INTERNAL, str(error)) from None
    except OutOfRangeError as error:
        raise CniError(Code.INVALID_CONFIG, str(error)) from None
    except (RangeError, DocumentError, ValueError) as error:
        raise CniError(Code.INTERNAL, str(error)) from None
    return replace(options, requested=requested) if requested else options


@functools.lru_cache(_REMEMBERED)
def _options(config: PluginConfig) -> Options:
    """Read what depends on the configuration alone, which the pods of a network share."""
    ipam = config.fields.nested("ipam")
    sets = _sets(ipam, config.fields.nested("runtimeConfig"))
    ranges.check(sets)
    options = Options(
        directory=directory(config),
        sets=sets,
        routes=tuple(results.decode_route(each) for each in ipam.objects("routes")),
        resolv_conf=ipam.path("resolvConf"),
    )
    _check_families(options, config.version)
    return options


def _sets(ipam: Fields, runtime: Fields) -> tuple[RangeSet, ...]:
    """Collect range sets: from the runtime, then the single one of old, then ``ranges``."""
    documents = [
        each
        for given in (runtime.items("ipRanges"), [None], ipam.items("ranges"))
        for each in given
    ]
    collected: list[RangeSet] = []
    for one in documents:
        if one is None:
            if ipam.text("subnet"):
                collected.append(_read_set([ipam], len(collected)))
            continue
        if not isinstance(one, list):
            raise DocumentError("ipam.ranges: each range set is an array of ranges")
        members = [Fields(each, "ipam.ranges") for each in one]
        collected.append(_read_set(members, len(collected)))
    if not collected:
        raise NoRangesError("no IP ranges specified")
    return tuple(collected)


def _read_set(members: list[Fields], index: int) -> RangeSet:
    try:
        return tuple(ranges.read(each) for each in members)
    except RangeError as error:
        raise RangeError(f"invalid range set {index}: {error}") from None


def _requested(config: PluginConfig, call: Call) -> tuple[IpAddress, ...]:
    texts: list[str] = []
    known = args.parse(call.invocation.args, {"IP"}) if call.invocation.args else {}
    if known.get("IP"):
        texts.append(known["IP"])
    texts += config.fields.nested("args").nested("cni").texts("ips")
    texts += config.fields.nested("runtimeConfig").texts("ips")
    return tuple(results.parse_address(text.partition("/")[0]) for text in texts)


def _check_families(options: Options, version: str) -> None:
    if versions.at_least(version, "0.3.0"):
        return
    families = [one[0].subnet.version for one in options.sets]
    if families.count(4) > 1 or families.count(6) > 1:
        raise CniError(
            Code.INTERNAL,
            f"CNI version {version} does not support more than 1 address per family",
        )


def undo(call: Call) -> tuple[Operation, ...]:
    """Return what gives back everything of an attachment."""
    return (ReleaseAddresses(directory(call.config), call.container_id, call.ifname),)


def allocate(options: Options, stores: Stores, call: Call) -> Result:
    """Take one address of each set, all or none. Raises CniError, OSError."""
    return result(options, take(options, stores, call.container_id, call.ifname))


def take(options: Options, stores: Stores, container_id: str, ifname: str) -> list[Candidate]:
    """Take one address of each set for an attachment, all or none. Raises CniError, OSError."""
    owner = Attachment(container_id, ifname)
    store = stores.at(options.directory)
    store.sets = options.sets
    requested = list(options.requested)
    found: list[Candidate] = []
    with store.locked():
        try:
            for index, one in enumerate(options.sets):
                wanted = next((each for each in requested if ranges.range_of(one, each)), None)
                if wanted is not None:
                    requested.remove(wanted)
                found.append(_take(store, one, index, wanted, owner))
        except CniError as error:
            _give_back(store, found)
            raise CniError(
                error.code, f"failed to allocate for range {len(found)}: {error.message}"
            ) from None
        except OSError:
            _give_back(store, found)
            raise
        if requested:
            _give_back(store, found)
            shown = " ".join(str(each) for each in requested)
            raise CniError(Code.INTERNAL, f"failed to allocate all requested IPs: {shown}")
    return found


class Choice:
    """One address of each set, chosen for an attachment and not taken yet, for a with statement.

    Nobody else takes any meanwhile, so that it can be written down first which they are.
    """

    __slots__ = ("_found", "_locked", "_options", "_owner", "_store")

    def __init__(self, options: Options, store: Store, owner: Attachment) -> None:
        self._options = options
        self._store = store
        self._owner = owner
        self._locked = store.locked()
        self._found: list[Candidate] = []

    def __enter__(self) -> "Choice":
        """Choose. Raises CniError, OSError."""
        store = self._store
        store.sets = sets = self._options.sets
        self._locked.__enter__()
        try:
            self._found = [_free(store, one, i, self._owner) for i, one in enumerate(sets)]
        except BaseException as error:
            self._locked.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Let others choose."""
        self._locked.__exit__(kind)

    @property
    def addresses(self) -> list[IpAddress]:
        """What was chosen, in the order of the sets."""
        return [each.address for each in self._found]

    def take(self) -> None:
        """Take them; what was taken before a failure stays. Raises CniError, OSError.

        ``Store.note`` is still to be called, when nobody waits any more.
        """
        owner = self._owner
        for index, each in enumerate(self._found):
            if not self._store.reserve(
                each.address, owner.container_id, owner.ifname, index, notes_later=True
            ):
                raise CniError(Code.TRY_AGAIN_LATER, f"{each.address} was taken by somebody else")


def choosing(options: Options, stores: Stores, container_id: str, ifname: str) -> Choice:
    """Return what chooses an address of each set; of ``options`` none may be requested."""
    return Choice(options, stores.at(options.directory), Attachment(container_id, ifname))


def result(options: Options, found: Sequence[Candidate]) -> Result:
    """Return the answer in which these addresses are given."""
    ips = tuple(_ip(each) for each in found)
    return Result(ips=ips, routes=options.routes, dns=_dns(options.resolv_conf))


def _take(
    store: Store, one: RangeSet, index: int, wanted: IpAddress | None, owner: Attachment
) -> Candidate:
    if wanted is not None:
        return _take_requested(store, one, index, wanted, owner)
    _refuse_another(store, one, owner)
    for candidate in ranges.walk(one, store.last_reserved(index)):
        if store.owner(candidate.address) is None and store.reserve(
            candidate.address, owner.container_id, owner.ifname, index
        ):
            return candidate
    raise _exhausted(one)


def _free(store: Store, one: RangeSet, index: int, owner: Attachment) -> Candidate:
    _refuse_another(store, one, owner)
    for candidate in ranges.walk(one, store.last_reserved(index)):
        if store.owner(candidate.address) is None:
            return candidate
    raise _exhausted(one)


def _refuse_another(store: Store, one: RangeSet, owner: Attachment) -> None:
    for held in store.held_by(owner.container_id, owner.ifname):
        if ranges.range_of(one, held):
            raise CniError(
                Code.INTERNAL,
                f"{held} has been allocated to {owner.container_id}, "
                "duplicate allocation is not allowed",
            )


def _exhausted(one: RangeSet) -> CniError:
    shown = ranges.render(one)
    return CniError(Code.INTERNAL, f"no IP addresses available in range set: {shown}")


def _take_requested(
    store: Store, one: RangeSet, index: int, wanted: IpAddress, owner: Attachment
) -> Candidate:
    found = ranges.range_of(one, wanted)
    assert found is not None
    if wanted == found.gateway:
        raise CniError(Code.INTERNAL, f"requested ip {wanted} is subnet's gateway")
    if not store.reserve(wanted, owner.container_id, owner.ifname, index):
        raise CniError(
            Code.INTERNAL,
            f"requested IP address {wanted} is not available in range set {ranges.render(one)}",
        )
    return Candidate(wanted, found)


def _give_back(store: Store, found: Sequence[Candidate]) -> None:
    for each in found:
        store.give_back(each.address)


def _ip(found: Candidate) -> Ip:
    length = found.range.subnet.prefixlen
    kind = ipaddress.IPv4Interface if found.address.version == 4 else ipaddress.IPv6Interface
    address = kind((int(found.address), length))  # from numbers: no text is read
    return Ip(address, found.range.gateway)


def check(options: Options, stores: Stores, call: Call) -> None:
    """Raise CniError unless the attachment still has an address."""
    store = stores.at(options.directory)
    with store.locked():
        if not store.held_by(call.container_id, call.ifname):
            raise CniError(
                Code.INTERNAL,
                f"host-local: Failed to find address added by container {call.container_id}",
            )


def collect(stores: Stores, call: Call, valid: frozenset[Attachment]) -> int:
    """Free what no valid attachment has. Returns how many addresses."""
    containers = {each.container_id for each in valid}

    def is_valid(owner: Attachment) -> bool:
        return owner in valid or (not owner.ifname and owner.container_id in containers)

    return stores.at(directory(call.config)).collect(is_valid)


def ready(options: Options, stores: Stores) -> None:
    """Raise CniError (50) when a set is exhausted, so that no pod is sent here."""
    store = stores.at(options.directory)
    if not os.path.isdir(options.directory):
        return
    try:
        with store.locked(_PATIENCE_OF_QUESTIONS):
            used = store.addresses()
    except StoreBusyError:  # others take or give addresses right now: it is in use
        return
    for one in options.sets:
        taken = sum(1 for each in used if ranges.range_of(one, each))
        if taken >= ranges.size(one):
            raise CniError(
                Code.NOT_READY, f"no IP addresses available in range set: {ranges.render(one)}"
            )


def _dns(path: str) -> Dns:
    if not path:
        return Dns()
    nameservers: list[str] = []
    search: list[str] = []
    settings: list[str] = []
    domain = ""
    try:
        with contextlib.closing(open(path, encoding="utf-8", errors="replace")) as file:
            lines = file.read(1 << 16).splitlines()
    except OSError as error:
        raise CniError(Code.INTERNAL, f"ipam.resolvConf: {error}") from None
    for line in lines:
        words = line.split("#", 1)[0].split()
        match words:
            case ["nameserver", server, *_]:
                nameservers.append(server)
            case ["domain", name, *_]:
                domain = name
            case ["search", *names]:
                search += names
            case ["options", *options]:
                settings += options
            case _:
                continue
    return Dns(tuple(nameservers), domain, tuple(search), tuple(settings))


IPAM = Ipam(
    type="host-local",
    parse=parse,
    undo=undo,
    allocate=allocate,
    check=check,
    collect=collect,
    ready=ready,
)
