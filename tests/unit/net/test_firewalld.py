"""Talking to firewalld where it is away, silent or somebody else; the real one is in tests/net."""

import contextlib
import pathlib
import socket
import threading
from collections.abc import Iterator

import jeepney
import pytest
from bitts.net import firewalld, systembus
from bitts.net.firewalld import Firewalld, FirewalldError, NotRunningError
from jeepney.io import blocking
from support import firewalls, processes, waiting

SOURCE = "10.0.0.5/32"


@pytest.fixture
def bus(spawner: processes.Processes, short_dir: pathlib.Path) -> firewalls.Bus:
    """A bus of the test's own."""
    return firewalls.Bus(spawner, short_dir)


@pytest.fixture
def address(bus: firewalls.Bus) -> str:
    return bus.address


class Impostor:
    """Has firewalld's name, and answers what it is told to. Ends with ``close``."""

    def __init__(self, address: str) -> None:
        self.answers: list[tuple[str, str] | None] = []
        self.asked: list[str] = []
        self._connection = blocking.open_dbus_connection(bus=address)
        message = jeepney.message_bus.RequestName(firewalld.NAME)
        self._connection.send_and_get_reply(message, timeout=5)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="impostor")
        self._thread.start()

    def close(self) -> None:
        """Leave the bus."""
        self._ends.set()
        self._thread.join(10)
        self._connection.close()

    def _serve(self) -> None:
        while not self._ends.is_set():
            with contextlib.suppress(TimeoutError):
                heard = self._connection.receive(timeout=0.05)
                if heard.header.message_type is jeepney.MessageType.method_call:
                    self._answer(heard)

    def _answer(self, heard: jeepney.Message) -> None:
        self.asked.append(heard.header.fields[jeepney.HeaderFields.member])
        answer = self.answers.pop(0) if self.answers else ("", "trusted")
        if answer is None:
            return
        name, text = answer
        made = (
            jeepney.new_error(heard, name, "s", (text,))
            if name
            else jeepney.new_method_return(heard, "s", (text,))
        )
        self._connection.send(made)


@pytest.fixture
def impostor(address: str) -> Iterator[Impostor]:
    made = Impostor(address)
    yield made
    made.close()


@pytest.fixture
def asking(address: str) -> Iterator[Firewalld]:
    with contextlib.closing(Firewalld(address)) as made:
        yield made


def without_firewalld(asking: Firewalld) -> None:
    """Say what is so wherever it does not run."""
    assert not asking.is_running()
    asking.remove_source("trusted", SOURCE)
    with pytest.raises(NotRunningError, match="does not run in the node's network namespace"):
        asking.add_source("trusted", SOURCE)


def test_without_a_bus_there_is_none(tmp_path: pathlib.Path) -> None:
    without_firewalld(Firewalld(f"unix:path={tmp_path}/none"))


def test_a_socket_that_nobody_listens_on_is_no_bus(short_dir: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(short_dir / "bus"))
    without_firewalld(Firewalld(f"unix:path={short_dir}/bus"))


def test_a_bus_without_it_is_heard_of_its_coming_and_going(address: str) -> None:
    with contextlib.closing(Firewalld(address)) as asking:
        without_firewalld(asking)
        made = Impostor(address)
        waiting.until_blocking(asking.is_running, "word of its coming")
        asking.add_source("trusted", SOURCE)
        made.close()
        waiting.until_blocking(lambda: not asking.is_running(), "word of its going")
        without_firewalld(asking)


def test_a_bus_that_begins_anew_is_joined_at_once(bus: firewalls.Bus) -> None:
    with contextlib.closing(Firewalld(bus.address)) as asking:
        former = Impostor(bus.address)
        assert asking.is_running()
        former.close()
        bus.stop()
        without_firewalld(asking)
        bus.start()
        made = Impostor(bus.address)
        assert asking.is_running()
        asking.add_source("trusted", SOURCE)
        made.close()


def test_a_bus_that_says_nothing_is_told_and_gives_no_verdict(
    short_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systembus, "_CONNECT_TIMEOUT", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "bus"))
        silent.listen()
        asking = Firewalld(f"unix:path={short_dir}/bus")
        assert not asking.is_running()
        for ask in (asking.add_source, asking.remove_source):
            with pytest.raises(FirewalldError, match="the system bus refuses") as caught:
                ask("trusted", SOURCE)
            assert not isinstance(caught.value, NotRunningError)


def test_it_need_not_answer(
    impostor: Impostor, asking: Firewalld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firewalld, "TIMEOUT", 0.2)
    impostor.answers = [None]
    with pytest.raises(FirewalldError, match=r"does not answer within 0\.2 seconds"):
        asking.remove_source("trusted", SOURCE)
    assert asking.is_running()
    asking.remove_source("trusted", SOURCE)
    assert impostor.asked == ["removeSource", "removeSource"]


@pytest.mark.parametrize(
    ("text", "adds", "removes"),
    [
        ("ZONE_ALREADY_SET: trusted", True, False),
        ("UNKNOWN_SOURCE: x", False, True),
        ("ZONE_CONFLICT: x", False, True),
        ("INVALID_ZONE: x", False, True),
        ("COMMAND_FAILED: nft", False, False),
        ("Something else", False, False),
    ],
)
def test_what_is_so_already_is_no_error(
    impostor: Impostor, asking: Firewalld, text: str, adds: bool, removes: bool
) -> None:  # fmt: skip
    for ask, is_fine in ((asking.add_source, adds), (asking.remove_source, removes)):
        impostor.answers = [(f"{firewalld.NAME}.Exception", text)]
        if is_fine:
            ask("trusted", SOURCE)
        else:
            with pytest.raises(FirewalldError, match=text):
                ask("trusted", SOURCE)


def test_many_may_ask_at_a_time(impostor: Impostor, asking: Firewalld) -> None:
    threads = [
        threading.Thread(target=asking.add_source, args=("trusted", f"10.0.0.{number}/32"))
        for number in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert impostor.asked == ["addSource"] * 20
