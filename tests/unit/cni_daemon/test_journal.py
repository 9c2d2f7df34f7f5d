"""The journal: what is written is there after a crash, whatever the last bytes were."""

import ipaddress
import pathlib
import resource
import signal
from collections.abc import Iterator

import pytest
from bitts.net.links import Change, End
from bitts.net.nftables import Container, Element, Goto
from bitts.net.routes import Route
from cni_daemon import operations as op
from cni_daemon import records
from cni_daemon.journal import Journal
from cni_daemon.records import Entry, Key, Phase, RecordError
from hypothesis import given, settings
from hypothesis import strategies as st

UNDO: tuple[op.Simple, ...] = (
    op.ReleaseAddresses("/var/lib/cni/networks/n", "c1", "eth0"),
    op.DeleteLink("host", "veth1", 77),
    op.RemoveElements(Container("t", "m"), (Element(b"\n\0\0\5"),)),
    op.RemoveRoute("host", Route(ipaddress.ip_network("10.0.0.5/32"), None, 7, source=None)),
    op.SetSysctl("pod", "ipv4/conf/eth0/rp_filter", "1", is_optional=True),
    op.ChangeLink("pod", Change(cleared=1, mac="02:00:00:00:00:01"), name="lo"),
    op.RemoveAddress("host", 7, ipaddress.ip_interface("fd00::1/64")),
    op.RunDelegate("dhcp", "{}", (("CNI_COMMAND", "DEL"), ("CNI_PATH", "/x"))),
    op.MakeVeth(End("a", 1, ""), End("b", 2, ""), 1400, 3),
    op.AddElements(Container("t", "v"), (Element(b"a", Goto("c")), Element(b"b", b"x"))),
    op.AddRoute("pod", Route(ipaddress.ip_network("::/0"), ipaddress.ip_address("fd00::1"))),
)


def key(number: int = 1, step: str = "bridge#aa") -> Key:
    return Key("net", f"c{number}", "eth0", step)


def entry(number: int = 1, phase: Phase = Phase.BEGUN) -> Entry:
    return Entry(key(number), phase, "ab" * 16, "/run/netns/x", (4, 5), UNDO[:2])


@pytest.mark.parametrize("operation", UNDO, ids=lambda each: type(each).__name__)
def test_operations_survive_being_written(operation: op.Simple) -> None:
    line = records.seal({"x": op.encode(operation)})
    assert op.decode(records.unseal(line)["x"]) == operation


@pytest.mark.parametrize(
    "document",
    [None, [], ["Nothing", {}], ["DeleteLink", {}], ["DeleteLink", {"place": 1, "name": "x"}],
     ["DeleteLink", {"place": "host", "name": "x", "colour": 1}], ["AddRoute", {"place": "pod"}]],
)  # fmt: skip
def test_a_document_that_is_no_operation_is_refused(document: object) -> None:
    with pytest.raises(op.CodecError):
        op.decode(document)


def test_entries_survive_in_every_phase(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    for number in range(1, 5):
        journal.begin(entry(number))
    for number in (2, 3, 4):
        journal.plan(entry(number).with_result({"cniVersion": "1.0.0"}))
    for number in (3, 4):
        journal.done(key(number))
    journal.leave(key(4))
    for _ in range(2):  # the second time it is read from the file written anew
        journal.close()
        journal = Journal(tmp_path, "boot")
        loaded = journal.load()
        assert [each.phase for each in loaded.entries.values()] == [
            Phase.BEGUN, Phase.PLANNED, Phase.DONE, Phase.LEAVING,
        ]  # fmt: skip
        assert all(each.undo == UNDO[:2] for each in loaded.entries.values())
        assert loaded.entries[key(3)].result == {"cniVersion": "1.0.0"}
        assert loaded.entries[key(1)].identity == (4, 5)
        assert (loaded.is_from_this_boot, loaded.damaged) == (True, ())
    journal.gone(key(1))
    assert journal.entry(key(1)) is None
    journal.close()


def test_another_boot_is_noticed(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "one")
    journal.load()
    journal.begin(entry())
    journal.close()
    again = Journal(tmp_path, "two")
    loaded = again.load()
    again.close()
    assert not loaded.is_from_this_boot
    assert len(loaded.entries) == 1


def test_a_changed_configuration_still_finds_its_entry(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    journal.begin(entry())
    found = journal.find(key(step="bridge#bb"))
    assert found is not None
    assert found.key == key()
    assert journal.find(key(step="ptp#aa")) is None
    journal.close()


def test_damage_is_told_and_costs_only_its_line(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    for number in (1, 2, 3):
        journal.begin(entry(number))
    journal.close()
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"c2", b"cX")
    lines.insert(3, records.seal({"r": "future", "k": ["a", "b", "c", "d"]}))
    path.write_bytes(b"".join(lines))
    again = Journal(tmp_path, "boot")
    loaded = again.load()
    again.close()
    assert set(loaded.entries) == {key(1), key(3)}
    assert len(loaded.damaged) == 2


def test_the_journal_of_an_older_daemon_is_read(tmp_path: pathlib.Path) -> None:
    """It was written before results stood in plans, and before templates: nobody drains a node."""
    specimen = pathlib.Path(__file__).with_name("journal-1")
    (tmp_path / "journal").write_bytes(specimen.read_bytes())
    journal = Journal(tmp_path, "boot")
    loaded = journal.load()
    journal.close()
    assert (loaded.damaged, loaded.is_from_this_boot) == ((), True)
    found = {(each.key.container_id, each.key.type): each for each in loaded.entries.values()}
    assert {each.phase for each in found.values()} == {Phase.DONE}
    plugins = ("bridge", "portmap", "firewall", "bandwidth", "tuning")
    assert set(found) == {*(("c0", plugin) for plugin in plugins), ("d1", "bridge")}
    assert found["d1", "bridge"].undo == (
        op.ReleaseAddresses("/var/lib/cni/networks/tnet", "d1", "eth0"),
        op.DeleteLink("host", "vethd52c0cd7", 769658948),
    )
    assert found["c0", "portmap"].undo[0] == op.RemoveElements(
        Container("bitts_cni", "hostports4"),
        (Element(bytes.fromhex("060000001f900000"), bytes.fromhex("0a58000200500000")),),
    )
    assert found["c0", "tuning"].undo == (op.ChangeLink("pod", Change(mtu=1500), name="eth0"),)


def whole(number: int = 1) -> list[bytes]:
    """Return what an attachment that stands has in a journal."""
    planned = entry(number, Phase.PLANNED).with_result({"cniVersion": "1.1.0"})
    return [
        records.seal(records.of_entry(each))
        for each in (entry(number), planned, planned.in_phase(Phase.DONE))
    ]


@pytest.mark.parametrize(
    ("lost", "phase", "nonce"),
    [(0, Phase.DONE, "ab" * 16), (1, None, ""), (2, Phase.DONE, "")],
    ids=["begin", "plan", "done"],
)
def test_what_stands_is_not_taken_apart_for_a_line_that_is_lost(
    tmp_path: pathlib.Path, lost: int, phase: Phase | None, nonce: str
) -> None:
    """Without its plan it is unknown: its DEL must not believe that there is nothing to do."""
    lines = whole()
    lines[lost] = lines[lost].replace(b"c1", b"cX")
    (tmp_path / "journal").write_bytes(b"".join([records.seal(records.head("boot")), *lines]))
    journal = Journal(tmp_path, "boot")
    found = journal.load().entries.get(key())
    journal.close()
    assert (found.phase if found else None) == phase
    if found:
        assert (found.undo, found.nonce) == (UNDO[:2], nonce)
    assert (tmp_path / "journal.damaged").read_bytes().endswith(b"".join(lines))


def test_what_was_cut_off_before_or_after_the_damage_is_taken_apart(tmp_path: pathlib.Path) -> None:
    begun, later = records.seal(records.of_entry(entry(1))), whole(2)[:2]
    lines = [records.seal(records.head("boot")), begun, b"damage\n", *later]
    (tmp_path / "journal").write_bytes(b"".join(lines))
    journal = Journal(tmp_path, "boot")
    phases = {each.key: each.phase for each in journal.load().entries.values()}
    journal.close()
    assert phases == {key(1): Phase.BEGUN, key(2): Phase.PLANNED}


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 2000))
def test_any_torn_tail_is_dropped(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder, "boot")
    journal.load()
    journal.begin(entry(1))
    journal.plan(entry(1))
    journal.begin(entry(2))
    journal.close()
    data = (folder / "journal").read_bytes()
    (folder / "journal").write_bytes(data[: max(0, len(data) - cut)])
    again = Journal(folder, "boot")
    loaded = again.load()
    assert loaded.damaged == ()
    assert set(loaded.entries) <= {key(1), key(2)}
    again.begin(entry(3))
    again.close()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow: what a full disk looks like to a program, near enough."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_what_cannot_be_written_is_not_done_and_the_rest_stays(
    tmp_path: pathlib.Path, small_files: None
) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    journal.begin(entry(1))
    size = (tmp_path / "journal").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, limits[1]))
    with pytest.raises(OSError, match=r"space|large"):
        journal.begin(entry(2))
    assert (tmp_path / "journal").stat().st_size == size
    assert journal.entry(key(2)) is None
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.begin(entry(3))
    journal.close()
    again = Journal(tmp_path, "boot")
    assert set(again.load().entries) == {key(1), key(3)}
    again.close()


def test_a_long_life_does_not_grow_the_file(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    journal.begin(entry(0))
    for _ in range(3000):
        journal.begin(entry(1))
        journal.gone(key(1))
    assert (tmp_path / "journal").stat().st_size < 1_500_000
    journal.close()
    again = Journal(tmp_path, "boot")
    assert set(again.load().entries) == {key(0)}
    again.close()


@settings(max_examples=150)
@given(st.binary(max_size=60))
def test_any_line_is_read_or_refused(line: bytes) -> None:
    with pytest.raises(RecordError):
        records.unseal(line + b"!")


def test_a_lease_stays_with_its_entry_until_that_is_gone(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    for number in (1, 2):
        journal.plan(entry(number))
        journal.lease(key(number), {"address": f"10.0.0.{number}"})
        journal.done(key(number), {"ips": []})
    journal.lease(key(1), {"address": "10.0.0.1", "end": 9.5})
    journal.lease(key(3), {"address": "of nobody"})
    journal.gone(key(2))
    for _ in range(2):  # as it was written, and as it is restated
        journal.close()
        journal = Journal(tmp_path, "boot")
        found = journal.load().entries
        assert set(found) == {key(1)}
        assert found[key(1)].lease == {"address": "10.0.0.1", "end": 9.5}
        assert found[key(1)].phase is Phase.DONE
    journal.leave(key(1))
    assert journal.entries()[0].lease
    journal.close()


def test_watchers_hear_of_every_change_in_order(tmp_path: pathlib.Path) -> None:
    journal = Journal(tmp_path, "boot")
    journal.load()
    journal.begin(entry(1))
    heard: list[tuple[int, Key, Phase | None]] = []

    def told(revision: int, about: Key, now: Entry | None) -> None:
        heard.append((revision, about, now.phase if now else None))

    revision, present = journal.watch(told)
    assert [each.key for each in present] == [key(1)]
    journal.plan(entry(1))
    journal.done(key(1), {})
    journal.begin(entry(2))
    journal.gone(key(1))
    journal.unwatch(told)
    journal.gone(key(2))
    assert heard == [
        (revision + 1, key(1), Phase.PLANNED), (revision + 2, key(1), Phase.DONE),
        (revision + 3, key(2), Phase.BEGUN), (revision + 4, key(1), None),
    ]  # fmt: skip
    assert journal.revision == revision + 5
    journal.close()
