"""An ADD played through with made-up values (pure but for what it is shown of the machine).

What a real one would write down, send and answer comes out, for ``templates`` to cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bitts.cni import documents
from bitts.cni.results import Result
from bitts.net import sockets
from bitts.net.links import Link

from cni_daemon import chain, encoding, records, requests
from cni_daemon.chain import Stage
from cni_daemon.forms import Form
from cni_daemon.holes import DRAWS, Given, IpAddress, digest, drawn
from cni_daemon.ipam import asking, host_local
from cni_daemon.ipam.ranges import Candidate, RangeSet
from cni_daemon.model import Call, Draws, Look, Observed, Place, Plan, Step, View
from cni_daemon.operations import AddElements, Operation
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.traffic import AllowLoopbackSources, ForgetFlows

_SMALLEST = 8
"""Addresses that a range must have, for two of them to be nobody's."""

_WAYS = {
    ("route", "host"): 0, ("settings", "pod"): 1, ("route", "pod"): 1, ("elements", ""): 2,
}  # fmt: skip

See = Callable[[Look], Observed]
"""Shows what a plugin wants to see of the host."""


class UnfitError(Exception):
    """An ADD depends on more than a template can know."""


@dataclass(frozen=True, slots=True)
class Act:
    """Neighbouring operations that are carried out in one go; netlink's as what is sent."""

    kind: str
    place: str
    operations: tuple[Operation, ...]
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Played:
    """Everything that an ADD comes to. ``plan`` and ``done`` are the journal's.

    ``begun`` gives back the addresses, which is all there is to undo before they are taken.
    """

    key: Key
    begun: tuple[Operation, ...]
    steps: tuple[Step, ...]
    undo: tuple[Operation, ...]
    plan: str
    acts: tuple[Act, ...]
    carriers: tuple[str, ...]
    done: str
    answer: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What an ADD was played with: all values, how many were drawn, what was asked and seen."""

    given: Given
    draws: tuple[int, int, int]
    ipam: host_local.Options
    sights: tuple[tuple[Look, View], ...]


class _Given(Draws):
    """Draws that are given beforehand."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self.used = [0, 0, 0]

    def link_name(self) -> str:
        """Return the next name."""
        return self._given.drawn.names[self._count(0)]

    def index(self) -> int:
        """Return the next index."""
        return self._given.drawn.indexes[self._count(1)]

    def mac(self) -> str:
        """Return the next MAC address."""
        return self._given.drawn.macs[self._count(2)]

    def _count(self, kind: int) -> int:
        self.used[kind] += 1
        if self.used[kind] > DRAWS:
            raise UnfitError("more is drawn than anybody thought")
        return self.used[kind] - 1


class _Draft:
    """What the stages come to while they are played."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.carriers: list[str] = []
        self.planned: dict[Place, tuple[Link, ...]] = {}
        self.result: Result | None = None
        self.sights: list[tuple[Look, View]] = []


def play(form: Form, given: Given, position: int, see: See) -> tuple[Played, Setting]:
    """Play an ADD with values, and the address ``position`` places before the last of each range.

    Raises UnfitError, and whatever a real one is refused with.
    """
    frame = form.frame(given.container_id, given.netns, given.nonce, given.ports)
    request = requests.read(frame)
    draws = _Given(given)
    stages = chain.stages(request, draws)
    options, call = _addressing(stages)
    addresses = tuple(_address(each, position) for each in options.sets)
    given = replace(given, digest=digest(call.network, call.container_id), addresses=addresses)
    found = host_local.result(options, _candidates(options, addresses))
    addressed = stages[0].with_call(
        call.addressed(asking.as_programs_see_it(found, call.config.version))
    )
    draft = _Draft()
    for stage in (addressed, *stages[1:]):
        _play(draft, stage.after(draft.result), see)
    key = chain.key(request)
    begun = host_local.undo(call)
    entry = Entry(key, Phase.BEGUN, given.nonce, given.netns, given.identity)
    document = chain.document(draft.result or Result(), request.config.version)
    undo = (*begun, *(each.undo for each in draft.steps if each.undo is not None))
    planned = entry.with_undo(undo).with_result(document).in_phase(Phase.PLANNED)
    played = Played(
        key=key,
        begun=begun,
        steps=tuple(draft.steps),
        undo=undo,
        plan=records.text(records.of_entry(planned)),
        acts=_acts(draft.steps, given.descriptor),
        carriers=tuple(draft.carriers),
        done=records.text(records.of_entry(planned.in_phase(Phase.DONE))),
        answer=documents.render(document),
    )
    names, indexes, macs = draws.used
    all_of = given.drawn
    used = replace(
        given, drawn=drawn(all_of.names[:names], all_of.indexes[:indexes], all_of.macs[:macs])
    )
    return played, Setting(used, (names, indexes, macs), options, tuple(draft.sights))


def _addressing(stages: Sequence[Stage]) -> tuple[host_local.Options, Call]:
    """Return what is asked of host-local, which must be asked by the first plugin, and alone."""
    first, *others = stages
    if first.ipam != host_local.IPAM.type or any(each.ipam for each in others):
        raise UnfitError("addresses do not come from host-local alone")
    if first.call.previous is not None:
        raise UnfitError("there is an earlier result")
    options = host_local.parse(first.call.config, first.call)
    if options.requested or options.resolv_conf:
        raise UnfitError("an address is asked for, or a file has to be read")
    return options, first.call


def _address(one: RangeSet, position: int) -> IpAddress:
    if len(one) != 1 or int(one[0].end) - int(one[0].start) < _SMALLEST:
        raise UnfitError("addresses come from several ranges, or from a small one")
    found = one[0].end - position
    if found == one[0].gateway:
        raise UnfitError("the last addresses are not all given away")
    return found


def _candidates(options: host_local.Options, addresses: Sequence[IpAddress]) -> list[Candidate]:
    return [
        Candidate(address, one[0]) for address, one in zip(addresses, options.sets, strict=True)
    ]


def _play(draft: _Draft, stage: Stage, see: See) -> None:
    if stage.plugin.is_meta and stage.call.previous is None:
        raise UnfitError("a plugin lacks the result of an earlier one")
    look = stage.plugin.looks(stage.options, stage.call).without(draft.planned)
    if look != Look(
        host=look.host, host_settings=look.host_settings, host_disciplines=look.host_disciplines
    ):
        raise UnfitError("a plugin looks at more than what pods share")
    seen = replace(see(look), pod=View())
    draft.sights.append((_lasting(look, seen.host), seen.host))
    observed = seen.with_planned(draft.planned)
    if stage.plugin.foundation(stage.options, stage.call, observed):
        raise UnfitError("something shared is missing")
    _add(draft, stage.plugin.plan(stage.options, stage.call, observed))


def _lasting(look: Look, seen: View) -> Look:
    """Leave out what is not there: nobody but the plan would make it, and it does so at once."""
    there = tuple(each for each in look.host if each in seen.links)
    return Look(
        host=there,
        host_settings=look.host_settings,
        host_disciplines=tuple(each for each in look.host_disciplines if each in there),
    )


def _add(draft: _Draft, plan: Plan) -> None:
    draft.steps += plan.steps
    draft.carriers += plan.carriers
    for place, found in plan.planned.items():
        draft.planned[place] = (*draft.planned.get(place, ()), *found)
    draft.result = plan.result


def _acts(steps: Sequence[Step], descriptor: int) -> tuple[Act, ...]:
    todo = _gathered([each.do for each in steps if each.do is not None])
    return tuple(_act(batch, descriptor) for batch in encoding.batches(todo))


def _gathered(todo: Sequence[Operation]) -> Sequence[Operation]:
    """Let what goes the same way go at once, where it does not matter what comes first.

    The host's links come before the container's, elements after both; each way keeps its order.
    """
    ranks = [_rank(each) for each in todo]
    if None in ranks:
        return todo
    return [
        each for _, each in sorted(zip(ranks, todo, strict=True), key=lambda pair: pair[0] or 0)
    ]


def _rank(operation: Operation) -> int | None:
    way = encoding.channel(operation)
    if isinstance(operation, ForgetFlows | AllowLoopbackSources):
        return len(_WAYS)
    return _WAYS.get(way)


def _act(batch: Sequence[Operation], descriptor: int) -> Act:
    kind, place = encoding.channel(batch[0])
    operations = tuple(batch)
    if encoding.is_route(batch):
        messages = [encoding.route_message(each, descriptor) for each in batch]
        return Act(kind, place, operations, sockets.delivery(messages))
    if encoding.is_element(batch):
        if not all(isinstance(each, AddElements) for each in batch):
            raise UnfitError("an ADD removes elements")
        messages = [encoding.element_message(each) for each in batch]
        return Act(kind, place, operations, sockets.transaction(messages))
    return Act(kind, place, operations)
