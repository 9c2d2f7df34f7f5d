"""Files of addresses that were given back are used again, and never show what they once said."""

import ipaddress
import os
import pathlib

import pytest
from bitts.cni.attachments import Attachment
from cni_daemon.ipam import spares
from cni_daemon.ipam.spares import Spares
from cni_daemon.ipam.stores import Stores


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Spares:
    made = Spares(tmp_path / "spares")
    made.prepare()
    return made


def test_a_file_is_used_again_with_its_new_content_alone(
    kept: Spares, tmp_path: pathlib.Path
) -> None:
    first, second = tmp_path / "10.0.0.2", tmp_path / "10.0.0.3"
    assert not kept.make(str(first), b"nothing is kept yet")
    first.write_bytes(b"a long owner\r\neth0")
    inode = first.stat().st_ino
    assert kept.keep(str(first))
    assert not first.exists()
    assert kept.make(str(second), b"c\r\neth1")
    assert second.read_bytes() == b"c\r\neth1"
    assert second.stat().st_ino == inode
    assert list((tmp_path / "spares").iterdir()) == []


def test_what_is_there_is_not_replaced(kept: Spares, tmp_path: pathlib.Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.write_bytes(b"x")
    theirs.write_bytes(b"theirs")
    kept.keep(str(mine))
    for _ in range(2):
        with pytest.raises(FileExistsError):
            kept.make(str(theirs), b"mine")
    assert theirs.read_bytes() == b"theirs"
    with pytest.raises(FileNotFoundError):
        kept.keep(str(mine))


def test_no_more_are_kept_than_are_used(kept: Spares, tmp_path: pathlib.Path) -> None:
    for number in range(spares.LIMIT + 1):
        path = tmp_path / str(number)
        path.write_bytes(b"")
        assert kept.keep(str(path)) == (number < spares.LIMIT)


def test_what_somebody_removed_is_not_missed(kept: Spares, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "10.0.0.2"
    path.write_bytes(b"")
    kept.keep(str(path))
    for each in (tmp_path / "spares").iterdir():
        each.unlink()
    assert not kept.make(str(path), b"x")


def test_a_folder_that_cannot_be_made_means_that_nothing_is_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    made = Spares(tmp_path / "file" / "spares")
    made.prepare()
    assert not made.keep(str(tmp_path / "file"))


def test_a_start_begins_with_an_empty_folder(kept: Spares, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "10.0.0.2"
    path.write_bytes(b"old")
    kept.keep(str(path))
    Spares(tmp_path / "spares").prepare()
    assert os.listdir(tmp_path / "spares") == []


def test_a_store_gives_and_takes_back_through_them(kept: Spares, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "net"
    store = Stores(kept).at(str(folder))
    address = ipaddress.ip_address("10.0.0.2")
    for owner in ("one", "another"):
        with store.locked():
            assert store.reserve(address, owner, "eth0", 0)
            assert store.owner(address) == Attachment(owner, "eth0")
            assert not store.reserve(address, "third", "eth0", 0)
        assert (folder / "10.0.0.2").read_bytes() == f"{owner}\r\neth0".encode()
        assert store.release(owner, "eth0") == 1
        assert {each.name for each in folder.iterdir()} == {"lock", "last_reserved_ip.0"}
