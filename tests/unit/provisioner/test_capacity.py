from typing import Any

import msgspec
import pytest
from bitts.core.plans import Done, Failed, RetryLater
from bitts.kube import errors, objects
from csi_provisioner import capacity
from csi_provisioner.capacity import AskRoom, CapacitySeen, DropObject, Item, Room, WriteObject
from support import claims
from support.claims import DRIVER, GIB

Z1, Z2 = (("zone", "z1"),), (("zone", "z2"),)
ITEM = Item("fast", Z1)
OWNER = objects.OwnerReference(
    api_version="apps/v1", kind="StatefulSet", name="csi", uid="owner-uid", controller=True
)
ANOTHER = objects.OwnerReference(api_version="v1", kind="Pod", name="p", uid="pod-uid")


def stored(name: str = "csisc-1", **fields: Any) -> objects.CSIStorageCapacity:
    owners = fields.pop("owners", (OWNER,))
    given: dict[str, Any] = {
        "storage_class_name": "fast",
        "node_topology": objects.LabelSelector(match_labels=dict(Z1)),
        "capacity": "1Gi",
    }
    meta = objects.ObjectMeta(
        name=name, uid=f"uid-{name}", resource_version="7", owner_references=owners
    )
    return objects.CSIStorageCapacity(metadata=meta, **(given | fields))


def seen(*found: objects.CSIStorageCapacity, item: Item | None = ITEM) -> CapacitySeen:
    return CapacitySeen(item, {"tier": "gold"}, found)


def test_every_class_of_ours_in_every_place_is_wanted() -> None:
    late = claims.storage_class(volume_binding_mode="WaitForFirstConsumer")
    items = capacity.wanted(DRIVER, [late], [Z1, Z2, ()], immediate=False)
    assert list(items.values()) == [Item("fast", Z1), Item("fast", Z2), Item("fast", ())]
    assert all(item.key == key for key, item in items.items())


@pytest.mark.parametrize(
    ("fields", "immediate", "count"),
    [
        ({"volume_binding_mode": "Immediate"}, False, 0),
        ({"volume_binding_mode": "Immediate"}, True, 1),
        ({"volume_binding_mode": None}, False, 1),
        ({"provisioner": "other"}, True, 0),
    ],
)
def test_which_classes_count(fields: dict[str, Any], immediate: bool, count: int) -> None:
    classes = [claims.storage_class(**fields)]
    assert len(capacity.wanted(DRIVER, classes, [Z1], immediate=immediate)) == count


def test_an_object_has_the_key_of_its_figure() -> None:
    assert capacity.key_of(stored()) == ITEM.key
    everywhere = stored(node_topology=objects.LabelSelector())
    assert capacity.key_of(everywhere) == Item("fast", ()).key


@pytest.mark.parametrize(
    "place",
    [
        None,
        objects.LabelSelector(
            match_expressions=(objects.LabelSelectorRequirement(key="zone", operator="Exists"),)
        ),
    ],
)
def test_an_object_that_we_would_not_make_has_a_key_of_its_own(
    place: objects.LabelSelector | None,
) -> None:
    assert capacity.key_of(stored(node_topology=place)) == "fast?uid-csisc-1"


def test_a_wanted_figure_is_asked_for_and_duplicates_go() -> None:
    ask = AskRoom(ITEM, {"tier": "gold"}, "it may have changed")
    assert capacity.decide(seen()) == [ask]
    assert capacity.decide(seen(stored())) == [ask]
    drop = DropObject("csisc-2", "uid-csisc-2", "another object says the same")
    assert capacity.decide(seen(stored(), stored("csisc-2"))) == [drop, ask]


def test_what_is_not_wanted_goes() -> None:
    [drop] = capacity.decide(seen(stored(), item=None))
    assert isinstance(drop, DropObject)
    assert drop.reason == "no class and place need it"


def settle(
    view: CapacitySeen, action: Any, value: object, owner: objects.OwnerReference | None = OWNER
) -> capacity.CapacityPlan:
    return capacity.settle(owner, view, Done(action, value))


ASK = AskRoom(ITEM, {}, "why")


def test_a_missing_object_is_created_with_its_owner() -> None:
    room = Room(GIB, 10)
    [write] = settle(seen(), ASK, room)
    assert write == WriteObject(ITEM, room, "there is none yet", owners=(OWNER,))
    assert isinstance(write, WriteObject)
    body = capacity.body(DRIVER, write)
    assert body == {
        "metadata": {
            "generateName": "csisc-",
            "labels": {
                "csi.storage.k8s.io/drivername": DRIVER,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": "csi",
                    "uid": "owner-uid",
                    "controller": True,
                }
            ],
        },
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"zone": "z1"}},
        "capacity": "1Gi",
        "maximumVolumeSize": "10",
    }


def test_without_an_owner_there_is_no_reference() -> None:
    [write] = settle(seen(), ASK, Room(0), owner=None)
    assert isinstance(write, WriteObject)
    body = capacity.body(DRIVER, write)
    assert "ownerReferences" not in body["metadata"]
    assert body["capacity"] == "0"
    assert "maximumVolumeSize" not in body


def test_an_object_that_says_so_already_is_left_alone() -> None:
    assert settle(seen(stored()), ASK, Room(GIB)) == []
    sized = stored(maximum_volume_size="5")
    assert settle(seen(sized), ASK, Room(GIB, 5)) == []


@pytest.mark.parametrize(
    ("current", "room", "change"),
    [
        (stored(), Room(5), {"capacity": "5", "maximumVolumeSize": None}),
        (stored(), Room(GIB, 5), {"capacity": "1Gi", "maximumVolumeSize": "5"}),
        (stored(capacity=None), Room(GIB), {"capacity": "1Gi", "maximumVolumeSize": None}),
    ],
)
def test_a_changed_figure_is_written(
    current: objects.CSIStorageCapacity, room: Room, change: dict[str, Any]
) -> None:
    [write] = settle(seen(current), ASK, room)
    assert isinstance(write, WriteObject)
    assert (write.name, write.version) == ("csisc-1", "7")
    patch = capacity.change(write)
    patch.pop("metadata")
    assert patch == change


def test_an_owner_is_added_beside_the_others() -> None:
    [write] = settle(seen(stored(owners=(ANOTHER,))), ASK, Room(GIB))
    assert isinstance(write, WriteObject)
    assert write.owners == (ANOTHER, OWNER)
    references = capacity.change(write)["metadata"]["ownerReferences"]
    assert [one["uid"] for one in references] == ["pod-uid", "owner-uid"]


def test_of_two_controllers_the_new_one_remains() -> None:
    """The API server takes one only, and the ReplicaSet of before a rollout is still there."""
    former = msgspec.structs.replace(OWNER, name="csi-1", uid="former-uid")
    [write] = settle(seen(stored(owners=(former,))), ASK, Room(GIB))
    assert isinstance(write, WriteObject)
    references = capacity.change(write)["metadata"]["ownerReferences"]
    assert [one["uid"] for one in references] == ["former-uid", "owner-uid"]
    assert [one.get("controller", False) for one in references] == [False, True]


def test_an_owner_that_is_no_controller_yet_becomes_one() -> None:
    mere = msgspec.structs.replace(OWNER, controller=False)
    [write] = settle(seen(stored(owners=(mere,))), ASK, Room(GIB))
    assert isinstance(write, WriteObject)
    assert write.owners == (OWNER,)


def test_what_an_owner_blocks_stays_blocked() -> None:
    blocking = msgspec.structs.replace(ANOTHER, block_owner_deletion=True)
    [write] = settle(seen(stored(owners=(blocking,))), ASK, Room(GIB))
    assert isinstance(write, WriteObject)
    first, second = capacity.change(write)["metadata"]["ownerReferences"]
    assert first["blockOwnerDeletion"] is True
    assert "blockOwnerDeletion" not in second


def test_without_owners_none_are_written() -> None:
    [write] = settle(seen(stored(owners=())), ASK, Room(5), owner=None)
    assert isinstance(write, WriteObject)
    assert "metadata" not in capacity.change(write)


def test_errors_are_retried_but_a_vanished_object_is_no_error() -> None:
    missing = errors.NotFound("gone", status=404)
    drop = DropObject("csisc-1", "uid", "why")
    assert capacity.settle(None, seen(), Failed(drop, missing)) == []
    text = f"the driver did not tell: {missing}"
    failed = capacity.settle(None, seen(), Failed(ASK, missing))
    assert failed == [capacity.Report(text), RetryLater(text)]
    refused = capacity.settle(None, seen(), Failed(drop, errors.Forbidden("no", status=403)))
    assert refused[0] == capacity.Report("the object was refused: no (403 )")
    assert settle(seen(), drop, None) == []
