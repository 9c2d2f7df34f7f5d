"""How much room each class has in each place: which CSIStorageCapacity objects there should be.

One object per StorageClass of the driver and topology segment. The scheduler reads them to put
pods where their volumes fit. All of it is pure; ``publishing`` asks the driver and writes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from bitts.core.plans import Done, Failed, RetryLater, WaitFor
from bitts.kube import quantity
from bitts.kube.errors import NotFound
from bitts.kube.objects import CSIStorageCapacity, OwnerReference, StorageClass

from csi_provisioner import names
from csi_provisioner.topology import Term


@dataclass(frozen=True, slots=True)
class Item:
    """One figure to publish."""

    class_name: str
    segment: Term

    @property
    def key(self) -> str:
        """The queue's key, which an object with the same content has too."""
        return _key(self.class_name, dict(self.segment))


@dataclass(frozen=True, slots=True)
class Room:
    """GetCapacity's answer in bytes; ``largest`` is None if the driver did not say."""

    available: int
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class CapacitySeen:
    """One figure: whether it is wanted (``item``), and the objects that there are for it."""

    item: Item | None
    parameters: Mapping[str, str]
    objects: tuple[CSIStorageCapacity, ...]


@dataclass(frozen=True, slots=True)
class AskRoom:
    """Ask the driver."""

    item: Item
    parameters: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class WriteObject:
    """Create the object, or (``name``) change it; ``version`` guards the change."""

    item: Item
    room: Room
    reason: str
    name: str = ""
    version: str = ""
    owners: tuple[OwnerReference, ...] = ()


@dataclass(frozen=True, slots=True)
class DropObject:
    """Delete an object that nobody needs."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell that a figure could not be kept right; ``reason`` says what failed."""

    reason: str


CapacityAction = AskRoom | WriteObject | DropObject | Report
CapacityPlan = Sequence[CapacityAction | RetryLater | WaitFor]


def wanted(
    driver_name: str, classes: Iterable[StorageClass], segments: Iterable[Term], *, immediate: bool
) -> dict[str, Item]:
    """All figures to publish, by key. ``immediate``: also for classes with immediate binding."""
    places = tuple(segments)
    items = [
        Item(one.name, segment)
        for one in classes
        if one.provisioner == driver_name and (immediate or one.volume_binding_mode != "Immediate")
        for segment in places
    ]
    return {item.key: item for item in items}


def key_of(found: CSIStorageCapacity) -> str:
    """The key of the figure that an object stands for."""
    place = found.node_topology
    if place is None or place.match_expressions:
        return f"{found.storage_class_name}?{found.uid}"  # none that we would make
    return _key(found.storage_class_name, place.match_labels)


def decide(seen: CapacitySeen) -> CapacityPlan:
    """Plan for one figure."""
    kept = seen.objects[:1] if seen.item is not None else ()
    why = "another object says the same" if kept else "no class and place need it"
    plan: list[CapacityAction] = [
        DropObject(one.name, one.uid, why) for one in seen.objects[len(kept) :]
    ]
    if seen.item is not None:
        plan.append(AskRoom(seen.item, seen.parameters, "it may have changed"))
    return plan


def settle(
    owner: OwnerReference | None,
    seen: CapacitySeen,
    outcome: Done[CapacityAction] | Failed[CapacityAction],
) -> CapacityPlan:
    """What follows from one action; ``owner`` is who the objects shall belong to."""
    if isinstance(outcome, Failed):
        return _failed(outcome.action, outcome.error)
    if not isinstance(outcome.action, AskRoom):
        return []
    room = outcome.value
    assert isinstance(room, Room)
    item = outcome.action.item
    if not seen.objects:
        first = (owner,) if owner else ()
        return [WriteObject(item, room, "there is none yet", owners=first)]
    current = seen.objects[0]
    owners = _owners(current, owner)
    if _room(current) == room and owners == current.metadata.owner_references:
        return []
    version = current.metadata.resource_version
    return [WriteObject(item, room, "it has changed", current.name, version, owners)]


def _failed(action: CapacityAction, error: Exception) -> CapacityPlan:
    if isinstance(action, DropObject) and isinstance(error, NotFound):
        return []
    what = "the driver did not tell" if isinstance(action, AskRoom) else "the object was refused"
    text = f"{what}: {error}"
    return [Report(text), RetryLater(text)]


def body(driver_name: str, action: WriteObject) -> dict[str, Any]:
    """The object to create."""
    metadata: dict[str, Any] = {
        "generateName": names.CAPACITY_NAME_PREFIX,
        "labels": labels(driver_name),
    }
    if action.owners:
        metadata["ownerReferences"] = [_reference(one) for one in action.owners]
    return {
        "metadata": metadata,
        "storageClassName": action.item.class_name,
        "nodeTopology": {"matchLabels": dict(action.item.segment)},
        **_figures(action.room),
    }


def change(action: WriteObject) -> dict[str, Any]:
    """The merge patch for an object that there is."""
    owners = [_reference(one) for one in action.owners]
    figures = {"maximumVolumeSize": None, **_figures(action.room)}
    return {"metadata": {"ownerReferences": owners}, **figures} if owners else figures


def labels(driver_name: str) -> dict[str, str]:
    """What marks an object as ours."""
    return {
        names.CAPACITY_DRIVER_LABEL: driver_name,
        names.CAPACITY_MANAGER_LABEL: names.CAPACITY_MANAGER,
    }


def _figures(room: Room) -> dict[str, str]:
    figures = {"capacity": quantity.format_bytes_binary(room.available)}
    if room.largest is not None:
        figures["maximumVolumeSize"] = quantity.format_bytes_binary(room.largest)
    return figures


def _room(found: CSIStorageCapacity) -> Room | None:
    if found.capacity is None:
        return None
    largest = found.maximum_volume_size
    return Room(
        quantity.to_bytes_ceil(found.capacity),
        None if largest is None else quantity.to_bytes_ceil(largest),
    )


def _owners(
    current: CSIStorageCapacity, owner: OwnerReference | None
) -> tuple[OwnerReference, ...]:
    """Who the object shall belong to: those it belongs to, and ``owner`` as its controller.

    Only one may be that, and after a rollout the former ReplicaSet still is: it stays an owner.
    """
    known = current.metadata.owner_references
    if owner is None or any(one.controller and one.uid == owner.uid for one in known):
        return known
    others = (one for one in known if one.uid != owner.uid)
    return (*(msgspec.structs.replace(one, controller=False) for one in others), owner)


def _reference(owner: OwnerReference) -> dict[str, Any]:
    reference: dict[str, Any] = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    if owner.controller:
        reference["controller"] = True
    if owner.block_owner_deletion:
        reference["blockOwnerDeletion"] = True
    return reference


def _key(class_name: str, place: Mapping[str, str]) -> str:
    return f"{class_name}{json.dumps(place, sort_keys=True)}"
