from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from bitts.core.workqueue import WorkQueue
from bitts.kube import objects
from bitts.kube.cache import Cache
from bitts.kube.watching import Change
from csi_provisioner import names
from csi_provisioner.memory import Memory, VolumeMemory
from csi_provisioner.observe import Caches, Places
from csi_provisioner.wakes import Wakes
from support import claims
from support.claims import DRIVER, POLICY, UID, VOLUME_NAME


@dataclass
class Scene:
    """Caches on one side, queues on the other."""

    caches: Caches
    memory: Memory
    volume_memory: VolumeMemory
    claims: WorkQueue
    volumes: WorkQueue

    async def woken(self) -> list[str]:
        """The claims' keys since the last call."""
        return await _drain(self.claims)

    async def woken_volumes(self) -> list[str]:
        """The volumes' keys since the last call."""
        return await _drain(self.volumes)


async def _drain(queue: WorkQueue) -> list[str]:
    keys = [await queue.get() for _ in range(queue.depth)]
    for key in keys:
        queue.done(key)
    return keys


@pytest.fixture
async def scene() -> Scene:
    caches = Caches(Cache(), Cache(), Cache(), Cache(), Cache(), Cache())
    made = Scene(caches, Memory(), VolumeMemory(), WorkQueue("claims"), WorkQueue("volumes"))
    Wakes(
        policy=POLICY,
        caches=caches,
        places=Places(DRIVER, caches),
        claims=made.claims,
        volumes=made.volumes,
        memory=made.memory,
        volume_memory=made.volume_memory,
    )
    return made


def changed(one: Any, version: str, **metadata: Any) -> Any:
    meta = msgspec.structs.replace(one.metadata, resource_version=version, **metadata)
    return msgspec.structs.replace(one, metadata=meta)


async def test_a_new_claim_of_ours_is_woken(scene: Scene) -> None:
    scene.caches.claims.apply(Change.ADDED, claims.claim())
    assert await scene.woken() == ["team/data"]


@pytest.mark.parametrize(
    "claim",
    [claims.claim(annotations={}), claims.claim(volume_name="pv")],
    ids=["another driver's", "bound"],
)
async def test_other_claims_sleep(scene: Scene, claim: objects.PersistentVolumeClaim) -> None:
    scene.caches.claims.apply(Change.ADDED, claim)
    assert await scene.woken() == []


async def test_only_a_change_of_the_wish_wakes_a_claim(scene: Scene) -> None:
    claim = claims.claim()
    scene.caches.claims.apply(Change.ADDED, claim)
    await scene.woken()
    scene.caches.claims.apply(Change.MODIFIED, changed(claim, "8", labels={"a": "b"}))
    assert await scene.woken() == []
    selected = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: "n1"}
    scene.caches.claims.apply(Change.MODIFIED, changed(claim, "9", annotations=selected))
    assert await scene.woken() == ["team/data"]


async def test_our_own_write_wakes_nobody(scene: Scene) -> None:
    claim = claims.claim()
    scene.caches.claims.apply(Change.ADDED, claim)
    await scene.woken()
    mine = changed(claim, "8", annotations={names.STORAGE_PROVISIONER: DRIVER, "x": "y"})
    scene.caches.claims.overlay(mine)
    scene.caches.claims.apply(Change.MODIFIED, mine)
    assert await scene.woken() == []


async def test_a_deleted_claim_is_woken_while_there_may_be_something_to_do(scene: Scene) -> None:
    pending, bound = claims.claim(), claims.claim(volume_name="pv")
    scene.caches.claims.apply(Change.ADDED, pending)
    await scene.woken()
    scene.caches.claims.apply(Change.DELETED, pending)
    assert await scene.woken() == ["team/data"]
    scene.caches.claims.apply(Change.ADDED, bound)
    scene.caches.claims.apply(Change.DELETED, bound)
    assert await scene.woken() == []
    scene.memory.begin(claims.draft())
    scene.caches.claims.apply(Change.ADDED, bound)
    scene.caches.claims.apply(Change.DELETED, bound)
    assert await scene.woken() == ["team/data"]


async def test_a_class_wakes_the_claims_that_wait_for_it(scene: Scene) -> None:
    scene.caches.claims.apply(Change.ADDED, claims.claim())
    await scene.woken()
    scene.caches.classes.apply(Change.ADDED, claims.storage_class())
    assert await scene.woken() == ["team/data"]
    scene.caches.classes.apply(Change.DELETED, claims.storage_class())
    assert await scene.woken() == []


@pytest.mark.parametrize(
    ("volume", "wakes"),
    [
        (claims.volume(), False),
        (claims.volume(phase="Pending"), False),
        (claims.volume(finalizers=()), True),
        (claims.volume(phase="Released"), True),
        (claims.volume(phase="Released", annotations={names.PROVISIONED_BY: "other"}), False),
    ],
    ids=["bound", "new", "without finalizer", "released", "another driver's"],
)
async def test_a_volume_is_woken_when_there_is_something_to_do(
    scene: Scene, volume: objects.PersistentVolume, wakes: bool
) -> None:
    scene.caches.volumes.apply(Change.ADDED, volume)
    assert await scene.woken_volumes() == ([VOLUME_NAME] if wakes else [])


async def test_our_own_volume_wakes_nobody(scene: Scene) -> None:
    scene.caches.claims.apply(Change.ADDED, claims.claim())
    await scene.woken()
    stored = changed(claims.volume(phase="Pending"), "8")
    scene.caches.volumes.overlay(stored)
    scene.caches.volumes.apply(Change.ADDED, stored)
    assert await scene.woken() == []
    assert await scene.woken_volumes() == []


async def test_a_volume_that_another_process_stored_ends_the_draft(scene: Scene) -> None:
    scene.memory.begin(claims.draft())
    scene.caches.volumes.apply(Change.ADDED, claims.volume())
    assert await scene.woken() == ["team/data"]


async def test_a_volume_that_goes_is_forgotten_and_frees_its_name(scene: Scene) -> None:
    scene.caches.claims.apply(Change.ADDED, claims.claim())
    scene.caches.volumes.apply(Change.ADDED, claims.volume())
    await scene.woken()
    scene.volume_memory.erase("pv-uid")
    scene.caches.volumes.apply(Change.DELETED, claims.volume())
    assert await scene.woken() == ["team/data"]
    assert not scene.volume_memory.is_erased("pv-uid")


async def test_our_own_deletion_is_forgotten_too(scene: Scene) -> None:
    scene.caches.volumes.apply(Change.ADDED, claims.volume(claimed=False))
    scene.volume_memory.erase("pv-uid")
    scene.caches.volumes.overlay_deleted(claims.volume(claimed=False))
    assert not scene.volume_memory.is_erased("pv-uid")


async def test_a_detached_volume_is_woken(scene: Scene) -> None:
    assert scene.caches.attachments is not None
    source = objects.VolumeAttachmentSource(persistent_volume_name=VOLUME_NAME)
    spec = objects.VolumeAttachmentSpec(node_name="n1", source=source)
    meta = objects.ObjectMeta(name="va", resource_version="1")
    attachment = objects.VolumeAttachment(metadata=meta, spec=spec)
    scene.caches.attachments.apply(Change.ADDED, attachment)
    assert await scene.woken_volumes() == []
    scene.caches.attachments.apply(Change.DELETED, attachment)
    assert await scene.woken_volumes() == [VOLUME_NAME]


async def test_a_node_wakes_the_claims_that_await_one(scene: Scene) -> None:
    assert scene.caches.nodes is not None
    scene.memory.await_nodes("team/data")
    meta = objects.ObjectMeta(name="n1", resource_version="1")
    scene.caches.nodes.apply(Change.ADDED, objects.Node(metadata=meta))
    assert await scene.woken() == ["team/data"]
    assert scene.memory.past(UID).draft is None
