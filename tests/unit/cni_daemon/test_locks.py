"""One attachment at a time, and GC alone."""

import threading
from collections.abc import Callable

import pytest
from cni_daemon.locks import Gate, KeyedLocks, StillBusyError
from support import waiting

TIMEOUT = 10.0


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_one_key_at_a_time_and_other_keys_beside() -> None:
    locks = KeyedLocks()
    order: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def first() -> None:
        with locks.held("a"):
            inside.set()
            assert go.wait(TIMEOUT)
            order.append("first")

    def second() -> None:
        with locks.held("a"):
            order.append("second")

    one = started(first)
    assert inside.wait(TIMEOUT)
    other = started(second)
    with locks.held("b"):
        order.append("other")
        assert locks.is_held("a")
        assert not locks.is_held("c")
    go.set()
    for each in (one, other):
        each.join(TIMEOUT)
    assert order == ["other", "first", "second"]
    assert locks.is_idle


def test_nobody_waits_for_ever() -> None:
    locks = KeyedLocks(patience=0.01)
    with locks.held("a"):
        with pytest.raises(StillBusyError, match=r"held for more than 0\.01 seconds"):
            locks.held("a").__enter__()
        assert locks.is_held("a")
    assert locks.is_idle


def test_who_is_alone_waits_for_all_and_lets_nobody_in() -> None:
    gate = Gate()
    order: list[str] = []
    go, wants = threading.Event(), threading.Event()

    def visitor(name: str) -> None:
        with gate.shared():
            order.append(f"{name} in")
            assert go.wait(TIMEOUT)

    def loner() -> None:
        wants.set()
        with gate.alone():
            order.append("alone")

    threads = [started(lambda: visitor("a"))]
    waiting.until_blocking(lambda: order == ["a in"], "a visitor")
    threads.append(started(loner))
    waiting.until_blocking(lambda: gate.is_wanted, "who wants to be alone")
    threads.append(started(lambda: visitor("b")))
    assert order == ["a in"]
    go.set()
    for each in threads:
        each.join(TIMEOUT)
    assert order == ["a in", "alone", "b in"]


def test_who_gives_up_waiting_holds_nobody_back() -> None:
    gate = Gate(patience=0.01)
    with gate.shared():
        with pytest.raises(StillBusyError):
            gate.alone().__enter__()
        with gate.shared():
            pass
