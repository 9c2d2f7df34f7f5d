"""Whatever happens in whatever order, the cache never goes back behind our own writes.

A server with one object name, a watch that lags behind it, and a controller that writes and
lays its writes over the cache, all driven at random.
"""

import dataclasses

from bitts.kube import cache as caches
from bitts.kube import objects
from bitts.kube.watching import Change
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

KEY = "ns/a"


@dataclasses.dataclass
class Pending:
    """An answer to an own write that we have not looked at yet."""

    written: objects.PersistentVolumeClaim
    deleted: bool


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache: caches.Cache[objects.PersistentVolumeClaim] = caches.Cache()
        self.version = 100
        self.uids = 0
        self.live: objects.PersistentVolumeClaim | None = None
        self.log: list[tuple[Change, objects.PersistentVolumeClaim]] = []
        self.seen = 0
        self.own: objects.PersistentVolumeClaim | None = None
        self.own_deleted: set[str] = set()
        self.answers: list[Pending] = []
        self.shown: str | None = None
        self.in_order = True
        self.cache.replace([], "100", self.cache.mark())
        self.cache.subscribe(self.changed)

    def changed(
        self,
        old: objects.PersistentVolumeClaim | None,
        new: objects.PersistentVolumeClaim | None,
    ) -> None:
        # Noted, not asserted: the cache swallows what its subscribers raise.
        self.in_order &= (old.metadata.resource_version if old else None) == self.shown
        self.shown = new.metadata.resource_version if new else None

    def write(self, change: Change) -> objects.PersistentVolumeClaim:
        self.version += 1
        if change is Change.ADDED:
            self.uids += 1
            uid = f"u{self.uids}"
        else:
            assert self.live is not None
            uid = self.live.uid
        made = objects.PersistentVolumeClaim(
            metadata=objects.ObjectMeta(
                name="a", namespace="ns", uid=uid, resource_version=str(self.version)
            )
        )
        self.live = None if change is Change.DELETED else made
        self.log.append((change, made))
        return made

    def change_now(self) -> Change:
        return Change.ADDED if self.live is None else Change.MODIFIED

    @rule()
    def somebody_writes(self) -> None:
        self.write(self.change_now())

    @precondition(lambda self: self.live is not None)
    @rule()
    def somebody_deletes(self) -> None:
        self.write(Change.DELETED)

    @rule()
    def we_write(self) -> None:
        self.answers.append(Pending(self.write(self.change_now()), deleted=False))

    @precondition(lambda self: self.live is not None and self.cache.get(KEY) is not None)
    @rule()
    def we_delete_what_we_see(self) -> None:
        view = self.cache.get(KEY)
        assert view is not None
        assert self.live is not None
        if view.uid == self.live.uid:  # deletion has the uid as its condition
            self.write(Change.DELETED)
            self.answers.append(Pending(view, deleted=True))

    @precondition(lambda self: self.answers)
    @rule(place=st.integers(0, 5))
    def an_answer_arrives(self, place: int) -> None:
        answer = self.answers.pop(place % len(self.answers))
        if answer.deleted:
            self.cache.overlay_deleted(answer.written)
            self.own_deleted.add(answer.written.uid)
        else:
            self.cache.overlay(answer.written)
            if self.own is None or int(answer.written.metadata.resource_version) > int(
                self.own.metadata.resource_version
            ):
                self.own = answer.written

    @precondition(lambda self: self.seen < len(self.log))
    @rule()
    def the_watch_goes_on(self) -> None:
        change, made = self.log[self.seen]
        self.seen += 1
        self.cache.apply(change, made)

    @rule()
    def a_bookmark_arrives(self) -> None:
        if self.seen:
            self.cache.advance(self.log[self.seen - 1][1].metadata.resource_version)

    @rule(answered=st.booleans())
    def everything_is_listed(self, *, answered: bool) -> None:
        mark = self.cache.mark()
        listed, version = [self.live] if self.live else [], str(self.version)
        self.seen = len(self.log)
        if answered and self.answers:  # an own write of before the list, looked at during it
            self.an_answer_arrives(0)
        self.cache.replace(listed, version, mark)

    @invariant()
    def the_view_is_never_behind_our_own_writes(self) -> None:
        view = self.cache.get(KEY)
        assert self.in_order
        assert (view.metadata.resource_version if view else None) == self.shown
        if view is None:
            return
        assert view.uid not in self.own_deleted
        if self.own is not None and view.uid == self.own.uid:
            assert int(view.metadata.resource_version) >= int(self.own.metadata.resource_version)

    @invariant()
    def once_the_watch_has_caught_up_the_view_is_the_truth(self) -> None:
        if self.seen == len(self.log) and not self.cache.unconfirmed:
            assert self.cache.get(KEY) == self.live

    def teardown(self) -> None:
        while self.seen < len(self.log):
            self.the_watch_goes_on()
        assert self.cache.get(KEY) == self.live
        self.cache.replace([self.live] if self.live else [], str(self.version), self.cache.mark())
        assert self.cache.unconfirmed == 0


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
