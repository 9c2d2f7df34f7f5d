"""The volumes in memory."""

import dataclasses

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver.catalog import Catalog
from local_driver.volumes import AccessType, Content, Volume


def volume(serial: int, capacity: int = 10) -> Volume:
    return Volume(
        f"id-{serial}", f"v{serial}", serial, "n", "directory", capacity,
        frozenset({AccessType.MOUNT}), "ext4", Content.BLANK, 0.0,
    )  # fmt: skip


def ids(volumes: list[Volume]) -> list[str]:
    return [one.volume_id for one in volumes]


def test_pages_follow_the_order_of_making_and_survive_changes_between_them() -> None:
    catalog = Catalog([volume(3), volume(1), volume(2)])
    page, following = catalog.page(0, 2)
    assert (ids(page), following) == (["id-1", "id-2"], 2)
    catalog.discard("id-2")  # the very volume that the next page starts after
    catalog.add(volume(catalog.take_serial()))
    page, following = catalog.page(2, 2)
    assert (ids(page), following) == (["id-3", "id-4"], None)


@pytest.mark.parametrize(
    ("after", "limit", "expected", "following"),
    [
        (0, 0, 3, None),
        (0, 3, 3, None),
        (0, 5, 3, None),
        (3, 1, 0, None),
        (1, 1, 1, 2),
        (99, 0, 0, None),
    ],
)
def test_page_limits(after: int, limit: int, expected: int, following: int | None) -> None:
    catalog = Catalog([volume(1), volume(2), volume(3)])
    page, token = catalog.page(after, limit)
    assert (len(page), token) == (expected, following)


def test_volumes_that_share_a_number_are_all_listed_and_go_one_by_one() -> None:
    """A record that was damaged and is whole again may have the number of one made since."""
    twins = [dataclasses.replace(volume(2), volume_id=name) for name in ("id-a", "id-b")]
    catalog = Catalog([volume(1), *twins, volume(3)])
    pages, after = [], 0
    while True:
        page, following = catalog.page(after, 2)
        pages.append(ids(page))
        if following is None:
            break
        after = following
    assert pages == [["id-1", "id-a", "id-b"], ["id-3"]]
    catalog.discard("id-a")
    assert ids(catalog.all()) == ["id-1", "id-b", "id-3"]
    catalog.discard("id-b")
    assert ids(catalog.all()) == ["id-1", "id-3"]


def test_promises_count_volumes_and_those_being_made() -> None:
    catalog = Catalog([volume(1, 100)])
    with catalog.reserved(50, "image"):
        assert catalog.promised == 150
        catalog.add(volume(2, 50))
    assert catalog.promised == 150
    catalog.add(dataclasses.replace(volume(2), capacity=70))
    assert catalog.promised == 170
    catalog.discard("id-1")
    catalog.discard("id-1")
    assert (catalog.promised, len(catalog)) == (70, 1)


def test_serials_go_on_after_a_restart() -> None:
    catalog = Catalog([volume(7)])
    assert [catalog.take_serial(), catalog.take_serial()] == [8, 9]


def test_a_damaged_volume_is_not_an_unknown_one() -> None:
    catalog = Catalog(damaged={"id-1": "volumes/id-1.json: not JSON"})
    with pytest.raises(RpcError) as caught:
        catalog.require("id-1")
    assert caught.value.code is Code.INTERNAL
    assert "volumes/id-1.json" in caught.value.message
    with pytest.raises(RpcError) as caught:
        catalog.require("id-2")
    assert caught.value.code is Code.NOT_FOUND
