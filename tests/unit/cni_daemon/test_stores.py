"""host-local's folder: readable both ways, and never an address twice."""

import concurrent.futures
import ipaddress
import os
import pathlib
from collections.abc import Callable

import pytest
from bitts.cni.attachments import Attachment
from bitts.cni.errors import CniError
from cni_daemon.ipam import host_local
from cni_daemon.ipam.ranges import Range
from cni_daemon.ipam.stores import Store, Stores
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

ADDRESS = ipaddress.ip_address


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.name not in {"lock"}}


def test_files_are_those_of_the_reference_plugin(tmp_path: pathlib.Path) -> None:
    store = Store(str(tmp_path / "net"))
    with store.locked():
        assert store.reserve(ADDRESS("10.0.0.2"), "c1", "eth0", 0)
        assert store.reserve(ADDRESS("fd00::2"), "c1", "eth0", 1)
    assert files(tmp_path / "net") == {
        "10.0.0.2": b"c1\r\neth0",
        "fd00::2": b"c1\r\neth0",
        "last_reserved_ip.0": b"10.0.0.2",
        "last_reserved_ip.1": b"fd00::2",
    }
    assert (tmp_path / "net" / "10.0.0.2").stat().st_mode & 0o777 == 0o600
    assert store.release("c1", "eth0") == 2
    assert set(files(tmp_path / "net")) == {"last_reserved_ip.0", "last_reserved_ip.1"}


def test_what_the_reference_plugin_wrote_is_known(tmp_path: pathlib.Path) -> None:
    (tmp_path / "10.0.0.9").write_bytes(b"c9\r\neth0")
    (tmp_path / "10.0.0.8").write_bytes(b"old-style")
    (tmp_path / "10.0.0.7").write_bytes(b"")
    (tmp_path / "last_reserved_ip.0").write_bytes(b"10.0.0.9")
    store = Store(str(tmp_path))
    with store.locked():
        assert store.owner(ADDRESS("10.0.0.9")) == Attachment("c9", "eth0")
        assert store.held_by("old-style", "eth1") == {ADDRESS("10.0.0.8")}
        assert store.last_reserved(0) == ADDRESS("10.0.0.9")
        assert not store.reserve(ADDRESS("10.0.0.7"), "c1", "eth0", 0)
    # It works on beside us: its new files are seen, and what it freed is free.
    (tmp_path / "10.0.0.9").unlink()
    (tmp_path / "10.0.0.4").write_bytes(b"c4\r\neth0")
    with store.locked():
        assert store.owner(ADDRESS("10.0.0.9")) is None
        assert store.owner(ADDRESS("10.0.0.4")) == Attachment("c4", "eth0")


def test_collecting_frees_what_is_not_valid(tmp_path: pathlib.Path) -> None:
    store = Store(str(tmp_path))
    with store.locked():
        store.reserve(ADDRESS("10.0.0.2"), "c1", "eth0", 0)
        store.reserve(ADDRESS("10.0.0.3"), "c2", "eth0", 0)
    (tmp_path / "10.0.0.7").write_bytes(b"")
    assert store.collect(lambda owner: owner.container_id == "c1") == 2
    assert set(files(tmp_path)) == {"10.0.0.2", "last_reserved_ip.0"}


def test_what_was_given_last_may_be_noted_later(tmp_path: pathlib.Path) -> None:
    """Where nothing is noted yet it is at once: the index takes a new file for another's."""
    store, note = Store(str(tmp_path / "n")), tmp_path / "n" / "last_reserved_ip.0"
    for number in range(2, 5):
        with store.locked():
            taken = ipaddress.ip_address(f"10.0.0.{number}")
            assert store.reserve(taken, f"c{number}", "eth0", 0, notes_later=True)
        assert store.last_reserved(0) == taken
    assert note.read_text() == "10.0.0.2"
    store.note()
    assert note.read_text() == "10.0.0.4"
    note.write_text("10.0.0.9")
    store.note()  # nothing is due
    assert note.read_text() == "10.0.0.9"


def test_an_address_is_chosen_before_it_is_taken(tmp_path: pathlib.Path) -> None:
    subnet = ipaddress.ip_network("10.0.0.0/29")
    first, last, gateway = (ipaddress.ip_address(f"10.0.0.{n}") for n in (1, 6, 1))
    options = host_local.Options(str(tmp_path / "n"), ((Range(subnet, first, last, gateway),),))
    stores = Stores()
    with host_local.choosing(options, stores, "c1", "eth0") as choice:
        assert list(map(str, choice.addresses)) == ["10.0.0.2"]
        assert not (tmp_path / "n" / "10.0.0.2").exists()
        choice.take()
        assert (tmp_path / "n" / "10.0.0.2").read_bytes() == b"c1\r\neth0"
    with pytest.raises(CniError, match="duplicate allocation is not allowed"):
        host_local.choosing(options, stores, "c1", "eth0").__enter__()
    (tmp_path / "n" / "10.0.0.4").write_text("somebody else")
    with host_local.choosing(options, stores, "c2", "eth0") as choice:
        (tmp_path / "n" / "10.0.0.3").write_text("who takes no lock")
        with pytest.raises(CniError, match="taken by somebody else"):
            choice.take()
    with host_local.choosing(options, stores, "c2", "eth0") as choice:
        assert list(map(str, choice.addresses)) == ["10.0.0.5"]


def test_a_missing_folder_has_nothing_to_release(tmp_path: pathlib.Path) -> None:
    store = Stores().at(str(tmp_path / "none"))
    assert store.release("c", "eth0") == 0
    assert store.collect(lambda _: False) == 0
    assert not (tmp_path / "none").exists()


def test_a_folder_that_was_removed_is_made_again(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "net"
    store = Store(str(folder))
    with store.locked():
        store.reserve(ADDRESS("10.0.0.2"), "c1", "eth0", 0)
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    with store.locked():
        assert store.owner(ADDRESS("10.0.0.2")) is None
        assert store.reserve(ADDRESS("10.0.0.2"), "c2", "eth0", 0)


def test_a_refused_write_leaves_no_file(tmp_path: pathlib.Path) -> None:
    store = Store(str(tmp_path))
    with store.locked():
        (tmp_path / "last_reserved_ip.0").mkdir()  # a disk that fails at the second write
        with pytest.raises(OSError, match="directory"):
            store.reserve(ADDRESS("10.0.0.2"), "c1", "eth0", 0)
    assert store.release("c1", "eth0") == 1


def _take(folder: str, first: int) -> list[int]:
    taken = []
    store = Store(folder)
    for number in range(1, 60):
        with store.locked():
            if store.reserve(ADDRESS("10.0.0.0") + number, f"p{first}", f"i{number}", 0):
                taken.append(number)
    return taken


def test_processes_beside_each_other_never_take_the_same(tmp_path: pathlib.Path) -> None:
    children = []
    for number in range(3):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, repr(_take(str(tmp_path), number)).encode())
            os._exit(0)
        os.close(write)
        children.append((child, read))
    taken: list[int] = []
    for child, read in children:
        data = os.read(read, 1 << 16)
        os.close(read)
        os.waitpid(child, 0)
        taken += [int(word) for word in data.decode().strip("[]").split(", ") if word]
    assert sorted(taken) == list(range(1, 60))


def test_threads_beside_each_other_never_take_the_same(tmp_path: pathlib.Path) -> None:
    stores = Stores()

    def work(number: int) -> int:
        store = stores.at(str(tmp_path))
        count = 0
        for offset in range(1, 40):
            with store.locked():
                count += store.reserve(ADDRESS("10.0.0.0") + offset, f"t{number}", str(offset), 0)
        return count

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 39


class StoreModel(RuleBasedStateMachine):
    """The store against a dictionary, with a stranger that writes and removes files."""

    make: Callable[[], pathlib.Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = StoreModel.make()
        self.store = Store(str(self.folder))
        self.expected: dict[str, bytes] = {}

    @rule(number=st.integers(1, 6), owner=st.sampled_from("abc"), ifname=st.sampled_from(["e", ""]))
    def reserve(self, number: int, owner: str, ifname: str) -> None:
        address = ADDRESS("10.0.0.0") + number
        with self.store.locked():
            taken = self.store.reserve(address, owner, ifname, 0)
        assert taken == (str(address) not in self.expected)
        if taken:
            self.expected[str(address)] = f"{owner}\r\n{ifname}".encode()

    @rule(owner=st.sampled_from("abc"), ifname=st.sampled_from(["e", ""]))
    def release(self, owner: str, ifname: str) -> None:
        content = f"{owner}\r\n{ifname}".encode()
        gone = [name for name, value in self.expected.items() if value == content]
        assert self.store.release(owner, ifname) == len(gone)
        for name in gone:
            del self.expected[name]

    @rule(number=st.integers(1, 6))
    def stranger(self, number: int) -> None:
        name = f"10.0.0.{number}"
        if self.expected.pop(name, None) is None:
            (self.folder / name).write_bytes(b"x\r\ne")
            self.expected[name] = b"x\r\ne"
        else:
            (self.folder / name).unlink()
        # Two changes within one tick of the clock look like one to a folder's time.
        info = self.folder.stat()
        os.utime(self.folder, ns=(info.st_atime_ns, info.st_mtime_ns + 1_000_000))

    @invariant()
    def files_are_as_expected(self) -> None:
        present = files(self.folder)
        present.pop("last_reserved_ip.0", None)
        assert present == self.expected


def test_the_store_behaves_like_a_dictionary(tmp_path_factory: pytest.TempPathFactory) -> None:

    StoreModel.make = lambda: tmp_path_factory.mktemp("store")
    run_state_machine_as_test(
        StoreModel, settings=settings(max_examples=40, stateful_step_count=20, deadline=None)
    )
