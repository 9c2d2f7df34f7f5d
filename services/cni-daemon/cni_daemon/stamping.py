"""ADDs by their template: the order of things is that of ``attaching``, but for one record.

The addresses are known before they are taken, and all else is by the template. So ``plan`` is
written at once, which names the addresses too, and ``begin`` is not.

What has no template yet, or does not fit it, is attached the long way. So does what goes wrong
here: it is taken back, and then tried again the long way, which knows what to say about it.
"""

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from bitts.cni.errors import CniError
from bitts.core import logs
from bitts.net import links, namespaces, sockets, sysctls
from bitts.net.errors import NamespaceError, NetlinkError

from cni_daemon import carriers, holes, observing, scene, templates
from cni_daemon.delegates import DelegateError
from cni_daemon.executor import Executor, OperationError
from cni_daemon.faults import Reached
from cni_daemon.forms import Form, Order
from cni_daemon.holes import Drawn, Given, Values, digest
from cni_daemon.ipam import host_local
from cni_daemon.ipam.stores import Stores
from cni_daemon.journal import Journal
from cni_daemon.model import Draws, Look, Observed, Place, Step, View
from cni_daemon.observing import Known, Memory
from cni_daemon.operations import Operation
from cni_daemon.records import Entry, Key, Phase
from cni_daemon.rehearsing import UnfitError
from cni_daemon.scene import Scene
from cni_daemon.templates import Deed, Template
from cni_daemon.told import Told
from cni_daemon.traffic import AllowLoopbackSources

T = TypeVar("T")

_LIMIT = 256
"""Forms that have a template, and forms that were seen without one."""

_BELIEVED = 1.0
"""Seconds that a setting is taken for what we made it: nobody announces its changes."""

_READY = 8
"""Draws kept ready: as many as are drawn at once, at least."""

_TRIES = 3
"""Attempts to make a template of a form: what pods share may be changed just then."""

_REFUSALS = (CniError, DelegateError, NetlinkError, NamespaceError, OperationError, OSError)


class Kept:
    """A template, and how far the host is known to be still what it was made for."""

    __slots__ = ("allowed_until", "drawn", "known", "template", "unsettled")

    def __init__(self, template: Template, known: Known, unsettled: int) -> None:
        self.template = template
        self.known = known
        self.unsettled = unsettled
        self.drawn: collections.deque[Drawn] = collections.deque(maxlen=_READY)
        """Draws for the next, made while nobody waited."""
        self.allowed_until = 0.0
        """Until when the way to these containers is believed to take 127.0.0.0/8."""


class Stamper:
    """Attaches by templates, and makes them. Every public method blocks; call it in a thread."""

    def __init__(
        self, journal: Journal, executor: Executor, stores: Stores, memory: Memory, draws: Draws,
        reached: Reached,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._executor = executor
        self._stores = stores
        self._memory = memory
        self._draws = draws
        self._reached = reached
        self._mutex = threading.Lock()
        self._kept: dict[Form, Kept] = {}
        self._seen: dict[Form, int] = {}
        self._log = logs.get("stamping")
        self._verbose = self._log.at(5)

    def find(self, order: Order) -> Kept | None:
        """Return the template of a request, None for one that has none."""
        return self._kept.get(order.form)

    def attach(self, kept: Kept, order: Order, tell: Callable[[str], bool]) -> bool | None:
        """Carry out an ADD by its template, and tell the result before anything is tidied up.

        Returns whether it was taken, None where the ADD has to be carried out another way. Nothing
        is left in that case but what could not be taken back, and the journal knows it.
        """
        if not self._is_current(order.form, kept):
            return None
        template = kept.template
        key = Key(template.network, order.container_id, order.form.ifname, template.step)
        if self._journal.entry(key) is not None:
            return None
        try:
            with scene.opened(order.netns) as where:
                descriptor = where.descriptor
                assert descriptor is not None
                identity = namespaces.identity(descriptor)
                if namespaces.is_home(identity):
                    return None
                given = self._given(kept, order, identity, descriptor)
                is_told = tell(self._make(kept, key, given, where))
                kept.drawn.append(self._drawn(template))
                self._stores.at(template.setting.ipam.directory).note()
                return is_told
        except _REFUSALS as error:
            self._log.info("Attaching without a template", attachment=str(key), err=error)
            return None

    def _is_current(self, form: Form, kept: Kept) -> bool:
        """Say whether the host is what a template was made for; if not, there is none any more."""
        known = self._memory.known()
        if kept.known is known and kept.unsettled == self._executor.unsettled:
            return True
        if kept.unsettled == self._executor.unsettled and all(
            _lasting(observing.observe(look, Scene(), frozenset(), known).host) == view
            for look, view in kept.template.setting.sights
        ):
            kept.known = known
            return True
        with self._mutex:
            self._kept.pop(form, None)
        return False

    def _given(self, kept: Kept, order: Order, identity: tuple[int, int], descriptor: int) -> Given:
        template = kept.template
        try:
            drawn = kept.drawn.pop()
        except IndexError:
            drawn = self._drawn(template)
        return Given(
            order.container_id,
            digest(template.network, order.container_id) if template.has_digest else "",
            order.netns, order.nonce, identity, descriptor, drawn, ports=order.ports,
        )  # fmt: skip

    def _drawn(self, template: Template) -> Drawn:
        names, indexes, macs = template.setting.draws
        draws = self._draws
        return holes.drawn(
            tuple([draws.link_name() for _ in range(names)]),
            tuple([draws.index() for _ in range(indexes)]),
            tuple([draws.mac() for _ in range(macs)]),
        )

    def _make(self, kept: Kept, key: Key, given: Given, where: Scene) -> str:
        template, values = kept.template, given.values()
        undo: Callable[[Values], tuple[Operation, ...]] = template.begun
        try:
            with host_local.choosing(
                template.setting.ipam, self._stores, key.container_id, key.ifname
            ) as choice:
                values.add(choice.addresses)
                answer = template.answer.filled(values)
                planned = Entry(
                    key, Phase.PLANNED, given.nonce, given.netns, given.identity,
                    template.undo(values), Told(answer),
                )  # fmt: skip
                self._journal.write(planned, template.plan.filled(values))
                self._reached("plan written")
                choice.take()
            undo = template.undo
            self._reached("addresses allocated")
            self._perform(kept, values, where)
            carriers.wait(template.carriers(values))
            self._journal.write(planned.in_phase(Phase.DONE), template.done.filled(values))
            self._reached("done written")
        except BaseException:
            scene.discard_sockets()  # answers may still come
            self._take_back(key, undo(values), where)
            raise
        self._verbose.info("Attached by a template", attachment=key)
        return answer

    def _perform(self, kept: Kept, values: Values, where: Scene) -> None:
        if self._reached.wants_every_step:
            self._executor.perform(kept.template.steps(values), where)
            return
        for deed in kept.template.deeds:
            if deed.kind == "route" and deed.place == Place.POD:
                _set_up_pod(deed, deed.message.filled(values), where)
            elif deed.kind == "route":
                scene.host_route().deliver(deed.message.filled(values))
            elif deed.kind == "elements":
                scene.host_netfilter().deliver(deed.message.filled(values))
            else:
                self._do(kept, deed.operations(values), where)

    def _do(self, kept: Kept, operations: Sequence[Operation], where: Scene) -> None:
        """Do what is no message; what the link to all these containers allows, not each time."""
        is_about_link = all(isinstance(each, AllowLoopbackSources) for each in operations)
        now = time.monotonic()
        if is_about_link and now < kept.allowed_until:
            return
        self._executor.perform([Step(each) for each in operations], where)
        if is_about_link:
            kept.allowed_until = now + _BELIEVED

    def _take_back(self, key: Key, undo: tuple[Operation, ...], where: Scene) -> None:
        problems = self._executor.undo(undo[::-1], where)
        for problem in problems:
            self._log.error("Cannot take back", attachment=str(key), err=problem)
        if not problems and self._journal.entry(key) is not None:
            self._journal.gone(key)

    def learn(self, order: Order) -> None:
        """Make a template of a form that was seen before, when one of it was attached. Never fails.

        It takes as long as some ADDs do, which is wasted on what comes only once.
        """
        form = order.form
        with self._mutex:
            seen = self._seen.pop(form, 0) + 1
            _keep(self._seen, form, seen)
            if form in self._kept or not 1 < seen <= 1 + _TRIES:
                return
        unsettled, known = self._executor.unsettled, self._memory.known()
        settled = self._executor.settled
        try:
            template = templates.of(form, lambda look: _seen(look, settled, known))
        except Exception as error:  # noqa: BLE001 - the ADD itself has succeeded
            self._log.at(4).info("No template", plugin=form.plugin, err=error)
            return
        with self._mutex:
            self._seen.pop(form, None)
            _keep(self._kept, form, Kept(template, known, unsettled))


def _keep(kept: dict[Form, T], form: Form, value: T) -> None:
    """Keep something of a form, and what is oldest of too much no longer."""
    kept[form] = value
    if len(kept) > _LIMIT:
        del kept[next(iter(kept))]


def _seen(look: Look, settled: frozenset[str], known: Known) -> Observed:
    """Return what a template may rest on: what would be announced if it changed."""
    found = observing.observe(look, Scene(), settled, known)
    if not (found.host.links.keys() <= known.links.keys()):
        raise UnfitError("a link is made by us")
    if not known.settings.keys() >= {*look.host_settings}:
        raise UnfitError("nobody hears of a setting's changes")
    return replace(found, host=_lasting(found.host))


def _lasting(seen: View) -> View:
    """Leave out what changes by itself: carriers, and how far an address's probing has come."""
    links_seen = {
        name: replace(each, flags=each.flags & (links.UP | links.PROMISCUOUS), operstate=0)
        for name, each in seen.links.items()
    }
    addresses = {
        name: tuple(replace(each, flags=0) for each in found)
        for name, found in seen.addresses.items()
    }
    return replace(seen, links=links_seen, addresses=addresses)


def _set_up_pod(deed: Deed, message: bytes, where: Scene) -> None:
    """Make settings and send a message in one visit to the container."""
    with where.inside(Place.POD):
        for path, value, is_optional in deed.settings:
            try:
                sysctls.set_at(path, value)
            except OSError:
                if not is_optional:
                    raise
        channel = sockets.bare()
    with contextlib.closing(channel):
        sockets.deliver(channel, message, "setting up the container")
