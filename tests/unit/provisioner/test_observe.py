import dataclasses
from typing import TypeVar

import msgspec
import pytest
from bitts.core.workqueue import WorkQueue
from bitts.kube import objects
from bitts.kube.cache import Cache
from bitts.kube.watching import Change
from csi_provisioner import observe
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.model import ClaimRef, Past
from csi_provisioner.observe import Caches, ClaimObserver, Places, VolumeObserver
from support import claims
from support.claims import DRIVER, POLICY, UID, VOLUME_NAME

ZONE = "example.com/zone"


def node(name: str, **labels: str) -> objects.Node:
    given = {key.replace("_", "/"): value for key, value in labels.items()}
    return objects.Node(metadata=objects.ObjectMeta(name=name, labels=given, resource_version="1"))


def csi_node(name: str, keys: tuple[str, ...] | None, driver: str = DRIVER) -> objects.CSINode:
    drivers = (objects.CSINodeDriver(name=driver, node_id=name, topology_keys=keys),)
    return objects.CSINode(
        metadata=objects.ObjectMeta(name=name, resource_version="1"),
        spec=objects.CSINodeSpec(drivers=drivers),
    )


T = TypeVar("T", bound=objects.Object)


def later(one: T) -> T:
    """The same object, written again."""
    meta = msgspec.structs.replace(one.metadata, resource_version="2")
    return msgspec.structs.replace(one, metadata=meta)


@pytest.fixture
def caches() -> Caches:
    return Caches(Cache(), Cache(), Cache(), Cache(), Cache(), Cache())


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
async def queue() -> WorkQueue:
    return WorkQueue("claims")


@pytest.fixture
def look(caches: Caches, memory: Memory, queue: WorkQueue) -> ClaimObserver:
    return ClaimObserver(POLICY, caches, memory, Places(DRIVER, caches), queue.add)


async def test_a_claim_is_seen_with_all_that_bears_on_it(
    caches: Caches, memory: Memory, look: ClaimObserver
) -> None:
    caches.claims.apply(Change.ADDED, claims.claim())
    caches.classes.apply(Change.ADDED, claims.storage_class())
    caches.volumes.apply(Change.ADDED, claims.volume())
    memory.begin(claims.draft())
    seen = look("team/data")
    assert seen is not None
    assert seen.claim == claims.claim()
    assert seen.storage_class == claims.storage_class()
    assert seen.volume == claims.volume()
    assert seen.past == Past(draft=claims.draft())


async def test_what_is_gone_and_forgotten_is_not_seen(look: ClaimObserver) -> None:
    assert look("team/data") is None
    assert look(f"team/data@{UID}") is None


async def test_a_deleted_claim_goes_on_under_a_key_of_its_own(
    caches: Caches, memory: Memory, look: ClaimObserver, queue: WorkQueue
) -> None:
    memory.begin(claims.draft(volume_name="old-name"))
    caches.volumes.apply(Change.ADDED, msgspec.structs.replace(claims.volume()))
    assert look("team/data") is None
    assert list(queue.ready_keys()) == [f"team/data@{UID}"]
    seen = look(f"team/data@{UID}")
    assert seen is not None
    assert seen.claim is None
    assert seen.past.draft == claims.draft(volume_name="old-name")
    assert seen.volume is None, "the draft's own name counts, not the one made now"


async def test_a_new_claim_of_the_name_is_another_object(
    caches: Caches, memory: Memory, look: ClaimObserver, queue: WorkQueue
) -> None:
    memory.begin(claims.draft(claim=ClaimRef("team", "data", "old-uid")))
    caches.claims.apply(Change.ADDED, claims.claim())
    seen = look("team/data")
    assert seen is not None
    assert seen.past == Past()
    assert list(queue.ready_keys()) == ["team/data@old-uid"]


async def test_without_a_usable_name_no_volume_is_looked_up(
    caches: Caches, memory: Memory, queue: WorkQueue
) -> None:
    policy = dataclasses.replace(POLICY, name_prefix="")
    look = ClaimObserver(policy, caches, memory, Places(DRIVER, caches), queue.add)
    caches.claims.apply(Change.ADDED, claims.claim())
    seen = look("team/data")
    assert seen is not None
    assert seen.volume is None


def test_nodes_are_seen_by_their_keys_and_labels(caches: Caches) -> None:
    assert caches.nodes is not None
    assert caches.csi_nodes is not None
    places = Places(DRIVER, caches)
    changes: list[str] = []
    places.on_change(lambda: changes.append("changed"))
    caches.csi_nodes.apply(Change.ADDED, csi_node("a", (ZONE,)))
    caches.csi_nodes.apply(Change.ADDED, csi_node("b", None))
    caches.csi_nodes.apply(Change.ADDED, csi_node("c", (ZONE,), driver="other"))
    for name in "abc":
        caches.nodes.apply(Change.ADDED, node(name, **{"example.com_zone": f"z-{name}"}))
    found = places.current()
    assert found.registered == {"a": (ZONE,), "b": (), "c": ()}
    assert found.labels["a"] == {ZONE: "z-a"}
    assert places.current() is found
    assert len(changes) == 6


def test_a_node_s_heartbeat_is_no_change(caches: Caches) -> None:
    assert caches.nodes is not None
    assert caches.csi_nodes is not None
    places = Places(DRIVER, caches)
    caches.nodes.apply(Change.ADDED, node("a", zone="z1"))
    caches.csi_nodes.apply(Change.ADDED, csi_node("a", (ZONE,)))
    found = places.current()
    caches.nodes.apply(Change.MODIFIED, later(node("a", zone="z1")))
    caches.csi_nodes.apply(Change.MODIFIED, later(csi_node("a", (ZONE,))))
    assert places.current() is found


def test_segments_are_the_places_of_registered_nodes(caches: Caches) -> None:
    assert caches.nodes is not None
    assert caches.csi_nodes is not None
    places = Places(DRIVER, caches)
    for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")):
        caches.csi_nodes.apply(Change.ADDED, csi_node(name, ("zone",)))
        caches.nodes.apply(Change.ADDED, node(name, zone=zone))
    caches.csi_nodes.apply(Change.ADDED, csi_node("unlabelled", ("zone",)))
    caches.nodes.apply(Change.ADDED, node("unlabelled"))
    caches.csi_nodes.apply(Change.ADDED, csi_node("no-node", ("zone",)))
    caches.csi_nodes.apply(Change.ADDED, csi_node("plain", ()))
    caches.nodes.apply(Change.ADDED, node("plain"))
    assert places.segments() == ((("zone", "z1"),), (("zone", "z2"),), ())


def test_without_caches_there_are_no_places() -> None:
    places = Places(DRIVER, Caches(Cache(), Cache(), Cache()))
    assert places.current().registered == {}
    assert places.segments() == ()


def test_a_volume_is_seen_with_its_attachments(caches: Caches) -> None:
    known = VolumeMemory()
    look = VolumeObserver(caches, known)
    assert look(VOLUME_NAME) is None
    assert caches.attachments is not None
    caches.attachments.add_index(observe.BY_VOLUME, observe.attached_volume)
    for name in ("n2", "n1"):
        source = objects.VolumeAttachmentSource(persistent_volume_name=VOLUME_NAME)
        spec = objects.VolumeAttachmentSpec(node_name=name, source=source)
        meta = objects.ObjectMeta(name=f"va-{name}")
        attachment = objects.VolumeAttachment(metadata=meta, spec=spec)
        caches.attachments.apply(Change.ADDED, attachment)
    caches.volumes.apply(Change.ADDED, claims.volume())
    known.erase("pv-uid")
    known.tell("pv-uid", "attached")
    seen = look(VOLUME_NAME)
    assert seen is not None
    assert seen.attached_to == ("n1", "n2")
    assert (seen.erased, seen.told) == (True, "attached")
    assert observe.attached_volume(objects.VolumeAttachment()) == []
