"""A finalizer goes on and off whatever others write meanwhile."""

import pytest
from bitts.kube import client as clients
from bitts.kube import errors, finalizers, kinds, objects
from support import kubefake

VOLUMES = "api/v1/persistentvolumes"
OURS = "our.example/finalizer"


def volume(*names: str, **metadata: object) -> kubefake.JsonObject:
    return {"metadata": {"name": "pv", "finalizers": list(names), **metadata}, "spec": {}}


async def seen(client: clients.Client) -> objects.PersistentVolume:
    return await client.get(kinds.PERSISTENT_VOLUMES, "pv")


async def test_a_finalizer_is_added_and_removed_from_a_stale_view(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(VOLUMES, volume("a"))
    stale = await seen(client)
    fake.put(VOLUMES, volume("b", "a"))
    added = await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, stale, OURS)
    assert added.metadata.finalizers == ("b", "a", OURS)
    fake.put(VOLUMES, volume("c", *added.metadata.finalizers))
    removed = await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, added, OURS)
    assert removed is not None
    assert removed.metadata.finalizers == ("c", "b", "a")
    writes = fake.count("PATCH")
    assert await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, removed, OURS) == removed
    assert await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, added, OURS) == added
    assert fake.count("PATCH") == writes, "nothing to do costs nothing"


async def test_removing_from_what_is_gone_is_done(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(VOLUMES, volume(OURS))
    stale = await seen(client)
    fake.drop(VOLUMES, "pv")
    assert await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, stale, OURS) is None
    bare = objects.PersistentVolume(metadata=objects.ObjectMeta(name="pv", uid=stale.uid))
    with pytest.raises(errors.NotFound):
        await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, bare, OURS)
    fake.put(VOLUMES, volume(OURS, uid="next"))
    assert await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, stale, OURS) is None
    assert fake.objects[(VOLUMES, "", "pv")]["metadata"]["finalizers"] == [OURS]


async def test_removing_the_last_finalizer_of_a_deleted_object_ends_it(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(VOLUMES, volume(OURS, deletionTimestamp="2026-01-01T00:00:00Z"))
    view = await seen(client)
    assert await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, view, OURS) is None
    assert not fake.objects


async def test_nothing_is_added_to_what_is_being_deleted(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(VOLUMES, volume("a"))
    stale = await seen(client)
    fake.put(VOLUMES, volume("b", deletionTimestamp="2026-01-01T00:00:00Z"))
    with pytest.raises(errors.Invalid, match="being deleted"):
        await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, stale, OURS)


async def test_an_object_of_the_same_name_gets_no_finalizer(
    fake: kubefake.FakeApi, client: clients.Client
) -> None:
    fake.put(VOLUMES, volume("a"))
    stale = await seen(client)
    fake.put(VOLUMES, volume("a", uid="next"))
    with pytest.raises(errors.NotFound, match="replaced"):
        await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, stale, OURS)


async def test_what_never_fits_is_given_up(fake: kubefake.FakeApi, client: clients.Client) -> None:
    fake.put(VOLUMES, volume("a", OURS))
    view = await seen(client)
    fake.fail(method="PATCH", times=99, status=409, reason="Conflict")
    with pytest.raises(errors.Conflict):
        await finalizers.remove(client, kinds.PERSISTENT_VOLUMES, view, OURS)
    assert fake.count("PATCH") == 5
    with pytest.raises(errors.Conflict):
        await finalizers.ensure(client, kinds.PERSISTENT_VOLUMES, view, "other.example/x")
