"""Snapshots and groups of them: values and pure rules, as volumes.py has them for volumes.

A snapshot is content of its own, independent of its volume, which may be deleted before it. A
group's one record holds its members, so that they come and go together whatever happens.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from local_driver.volumes import AccessType, Content

_SNAPSHOT = re.compile(r"s-[0-9a-f]{8}-[0-9a-f]{32}")
_GROUP = re.compile(r"g-[0-9a-f]{8}-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A volume's content at an instant (``created``, Unix seconds). ``size`` is in bytes.

    ``group_id`` is the group that it belongs to, and goes with.
    """

    snapshot_id: str
    name: str
    serial: int
    node: str
    backend: str
    source_id: str
    size: int
    access: frozenset[AccessType]
    filesystem: str
    content: Content
    created: float
    group_id: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Snapshots of several volumes at one instant."""

    group_id: str
    name: str
    serial: int
    node: str
    created: float
    members: tuple[Snapshot, ...]


def snapshot_id(node: str, name: str) -> str:
    """Return the ID of the snapshot called ``name`` on ``node``; it follows from both."""
    return f"s-{_place(node)}-{_digest(name)}"


def group_id(node: str, name: str) -> str:
    """Return the ID of the group called ``name`` on ``node``."""
    return f"g-{_place(node)}-{_digest(name)}"


def member_name(group_id: str, volume_id: str) -> str:
    """Return the name of a group's snapshot of a volume; no client's name looks like it."""
    return f"{group_id}/{volume_id}"


def is_snapshot_id(text: str) -> bool:
    """Whether a text could be a snapshot's ID of ours; others never become a path."""
    return _SNAPSHOT.fullmatch(text) is not None


def is_group_id(text: str) -> bool:
    """Whether a text could be a group's ID of ours."""
    return _GROUP.fullmatch(text) is not None


def mismatch(group: Group, source_ids: Sequence[str]) -> str:
    """Say why an existing group is not one of these volumes; empty if it is."""
    existing = {member.source_id for member in group.members}
    if existing == set(source_ids):
        return ""
    return f"is of volumes {', '.join(sorted(existing))}"


def _place(node: str) -> str:
    return hashlib.sha256(node.encode()).hexdigest()[:8]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
