"""Which new volumes are said to be on the disk, and when."""

import asyncio
import pathlib

import pytest
from local_driver import settling
from support import waiting


class Disk:
    """Notes what is flushed; fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.flushed: list[int] = []
        self.failures = failures

    def flush(self, serial: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(5, "broken")
        self.flushed.append(serial)


async def test_many_are_flushed_at_once_and_later() -> None:
    disk = Disk()
    settler = settling.Settler("b", disk.flush, delay=0.01)
    for serial in (1, 2, 3):
        with settler.making(serial):
            pass
    assert disk.flushed == []
    await waiting.until(lambda: disk.flushed == [3], "a flush")
    await settler.close()
    assert disk.flushed == [3]


async def test_what_is_just_being_made_is_not_counted_and_nothing_after_it() -> None:
    disk = Disk()
    settler = settling.Settler("b", disk.flush, delay=0.01)
    with settler.making(1):
        pass
    with settler.making(2):
        with settler.making(3):
            pass
        await waiting.until(lambda: disk.flushed == [1], "a flush")
    await waiting.until(lambda: disk.flushed == [1, 3], "the others' flush")
    await settler.close()


async def test_a_flush_that_fails_is_tried_again() -> None:
    disk = Disk(failures=2)
    settler = settling.Settler("b", disk.flush, delay=0.01)
    with settler.making(7):
        pass
    await waiting.until(lambda: disk.flushed == [7], "a flush")
    await settler.close()


async def test_the_end_does_not_wait_and_leaves_nothing_behind() -> None:
    disk = Disk()
    settler = settling.Settler("b", disk.flush, delay=3600)
    with settler.making(1):
        pass
    async with asyncio.timeout(60):
        await settler.close()
    assert disk.flushed == [1]


async def test_what_was_not_made_is_not_flushed() -> None:
    disk = Disk()
    settler = settling.Settler("b", disk.flush, delay=0.01)
    with pytest.raises(OSError, match="full"), settler.making(1):
        raise OSError(28, "full")
    await settler.close()
    assert disk.flushed == []


@pytest.mark.parametrize("text", ["", "-3", "x", "7\0"])
def test_a_mark_that_cannot_be_read_vouches_for_nothing(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "mark").write_text(text)
    assert settling.Mark(tmp_path / "mark").read() == 0


def test_a_mark_is_replaced_as_a_whole(tmp_path: pathlib.Path) -> None:
    mark = settling.Mark(tmp_path / "mark")
    assert mark.read() == 0
    mark.write(12)
    mark.write(9)
    assert mark.read() == 9
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]
