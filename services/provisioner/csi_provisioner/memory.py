"""What this process remembers of claims between two looks at them.

Kept per UID, since a name can be taken again by another claim. A draft in here means that the
driver may be working on it; it leaves only by a sure answer. What is known of finished claims
is bounded: it only saves a second CreateVolume from an old view of a claim.
"""

import dataclasses
from collections.abc import Iterator

from csi_provisioner.model import Created, Draft, Past

_NOTHING = Past()
_FINISHED = 10_000
_HELD = 10_000


class Memory:
    """The past of every claim that has one."""

    def __init__(self) -> None:
        self._pasts: dict[str, Past] = {}
        self._finished: dict[str, None] = {}
        self._held: dict[str, Past] = {}
        self._drafts_by_key: dict[str, set[str]] = {}
        self._await_nodes: set[str] = set()

    def past(self, uid: str) -> Past:
        """What is remembered of the claim with this UID."""
        known = self._pasts.get(uid) or self._held.get(uid)
        if known is not None:
            return known
        return Past(finished=True) if uid in self._finished else _NOTHING

    def begin(self, draft: Draft) -> None:
        """From now on the driver may be working on ``draft``."""
        uid = draft.claim.uid
        known = self._pasts.get(uid)
        if known is None or known.draft != draft:
            self._pasts[uid] = Past(draft=draft)
            self._drafts_by_key.setdefault(draft.claim.key, set()).add(uid)

    def answered(self, draft: Draft, created: Created) -> None:
        """The driver made the volume; its object is not stored yet."""
        self.begin(draft)
        self._pasts[draft.claim.uid] = Past(draft=draft, created=created)

    def end(self, uid: str) -> None:
        """The driver is surely done with the claim's volume."""
        known = self._pasts.pop(uid, None)
        if known is not None and known.draft is not None:
            key = known.draft.claim.key
            self._drafts_by_key[key].discard(uid)
            if not self._drafts_by_key[key]:
                del self._drafts_by_key[key]

    def finish(self, uid: str) -> None:
        """The PersistentVolume is stored."""
        self.end(uid)
        self._held.pop(uid, None)
        self._finished[uid] = None
        if len(self._finished) > _FINISHED:
            del self._finished[next(iter(self._finished))]

    def hold(self, uid: str, until: float, request: str) -> None:
        """Do not repeat ``request`` before ``until`` (monotonic seconds)."""
        self.end(uid)
        finished = uid in self._finished
        self._held[uid] = dataclasses.replace(
            _NOTHING, finished=finished, held_until=until, held_for=request
        )
        if len(self._held) > _HELD:
            del self._held[next(iter(self._held))]

    def left_behind(self, key: str, uid: str) -> list[str]:
        """UIDs of drafts for claims that had the name ``key`` before the one with ``uid``."""
        return sorted(self._drafts_by_key.get(key, set()) - {uid})

    def await_nodes(self, key: str) -> None:
        """The claim needs a node that is not there yet."""
        self._await_nodes.add(key)

    def take_awaiting_nodes(self) -> set[str]:
        """The claims to look at again since nodes have changed."""
        taken, self._await_nodes = self._await_nodes, set()
        return taken

    def drafts(self) -> Iterator[Draft]:
        """Every draft that the driver may be working on."""
        return (past.draft for past in self._pasts.values() if past.draft is not None)


class VolumeMemory:
    """What this process remembers of PersistentVolumes, per UID, until they are gone."""

    def __init__(self) -> None:
        self._erased: set[str] = set()
        self._told: dict[str, str] = {}

    def is_erased(self, uid: str) -> bool:
        """Whether the backing volume is deleted."""
        return uid in self._erased

    def told(self, uid: str) -> str:
        """The condition that was reported last."""
        return self._told.get(uid, "")

    def erase(self, uid: str) -> None:
        """The backing volume is deleted."""
        self._erased.add(uid)

    def tell(self, uid: str, text: str) -> None:
        """A condition was reported."""
        self._told[uid] = text

    def forget(self, uid: str) -> None:
        """The PersistentVolume is gone."""
        self._erased.discard(uid)
        self._told.pop(uid, None)
