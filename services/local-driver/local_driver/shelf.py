"""Snapshots and groups in memory: looked up, listed, and kept while they are copied from."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bitts.rpc.codes import Code, RpcError

from local_driver.listing import Listing
from local_driver.snapshots import Group, Snapshot


class Shelf:
    """All snapshots of this node, alone and in groups. ``damaged`` cannot be read, by ID."""

    def __init__(
        self,
        snapshots: Iterable[Snapshot] = (),
        groups: Iterable[Group] = (),
        damaged: Mapping[str, str] | None = None,
    ) -> None:
        self.snapshots: Listing[Snapshot] = Listing(lambda snapshot: snapshot.snapshot_id)
        self.groups: Listing[Group] = Listing(lambda group: group.group_id)
        self.damaged = dict(damaged or {})
        self._pins: Counter[str] = Counter()
        for snapshot in snapshots:
            self.snapshots.add(snapshot)
        for group in groups:
            self.add_group(group)

    def get(self, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot; raises RpcError INTERNAL when its record cannot be read."""
        self._check(snapshot_id)
        return self.snapshots.get(snapshot_id)

    def require(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot; raises RpcError NOT_FOUND without one, INTERNAL as get() does."""
        found = self.get(snapshot_id)
        if found is None:
            raise RpcError(
                Code.NOT_FOUND, f"snapshot_id: there is no snapshot {snapshot_id!r} on this node"
            )
        return found

    def group(self, group_id: str) -> Group | None:
        """Return a group; raises RpcError INTERNAL when its record cannot be read."""
        self._check(group_id)
        return self.groups.get(group_id)

    def _check(self, record_id: str) -> None:
        if record_id in self.damaged:
            raise RpcError(
                Code.INTERNAL,
                f"{record_id}: {self.damaged[record_id]}: restore the file and restart the driver",
            )

    def is_kept(self, snapshot_id: str) -> bool:
        """Whether content under this ID is, or may be, a snapshot's.

        Whose members a damaged group had is not known, so all content is kept then.
        """
        has_damaged_group = any(record_id.startswith("g-") for record_id in self.damaged)
        is_known = self.snapshots.get(snapshot_id) is not None or snapshot_id in self.damaged
        return is_known or has_damaged_group

    def add_group(self, group: Group) -> None:
        """Take in a group and its members."""
        self.groups.add(group)
        for member in group.members:
            self.snapshots.add(member)

    def discard_group(self, group: Group) -> None:
        """Forget a group and its members."""
        self.groups.discard(group.group_id)
        for member in group.members:
            self.snapshots.discard(member.snapshot_id)

    @contextlib.contextmanager
    def pinned(self, content_id: str) -> Iterator[None]:
        """Keep a snapshot from being deleted while its content is read."""
        self._pins[content_id] += 1
        try:
            yield
        finally:
            self._pins[content_id] -= 1
            self._pins += Counter()  # keeps what is pinned only

    def refuse_pinned(self, snapshot_id: str) -> None:
        """Raise RpcError FAILED_PRECONDITION while a snapshot is copied from."""
        if self._pins[snapshot_id]:
            raise RpcError(
                Code.FAILED_PRECONDITION,
                f"snapshot_id: a volume is just being made of {snapshot_id}: try again",
            )
