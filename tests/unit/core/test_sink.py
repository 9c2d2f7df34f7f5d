"""Writing to readers that keep up, that do not, and that are gone."""

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator

import pytest
from bitts.core.sink import Sink
from support import waiting


def notice(count: int) -> bytes:
    return b"%d dropped\n" % count


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of one page: a reader that does not read fills it soon."""
    source, target = os.pipe()
    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, 4096)
    yield source, target
    for descriptor in (source, target):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == source, "only tests of a lost reader close it"


class Collector:
    """Reads a descriptor to its end in a thread, by one of its own: the pipe may go before."""

    def __init__(self, source: int) -> None:
        self.data = b""
        self._source = os.dup(source)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with open(self._source, "rb", buffering=0) as reader:
            while chunk := reader.read(65536):
                self.data += chunk

    def has(self, expected: bytes) -> None:
        waiting.until_blocking(lambda: len(self.data) >= len(expected), "all lines")
        assert self.data == expected


def test_a_line_is_written_at_once(pipe: tuple[int, int]) -> None:
    source, target = pipe
    Sink(target, notice).write(b"line\n")
    assert os.read(source, 100) == b"line\n"


def test_a_slow_reader_gets_all_lines_in_order_and_the_writer_does_not_wait(
    pipe: tuple[int, int],
) -> None:
    source, target = pipe
    sink = Sink(target, notice)
    lines = [b"%d %s\n" % (number, b"x" * 1000) for number in range(100)]
    for line in lines:
        sink.write(line)
    assert not sink.flush(0.01)
    collector = Collector(source)
    assert sink.flush(10)
    collector.has(b"".join(lines))


def test_a_line_longer_than_a_pipe_takes_at_once_is_left_to_the_thread(
    pipe: tuple[int, int],
) -> None:
    source, target = pipe
    sink = Sink(target, notice)
    long = b"x" * 100_000 + b"\n"
    sink.write(long)
    sink.write(b"after\n")
    collector = Collector(source)
    assert sink.flush(10)
    collector.has(long + b"after\n")


def test_lines_beyond_the_backlog_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    source, target = pipe
    sink = Sink(target, notice, backlog=2)
    lines = [b"%d%s\n" % (number, b"x" * 4000) for number in range(8)]
    for line in lines:
        sink.write(line)
        if line is lines[1]:  # the thread holds it; all others are for the backlog
            waiting.until_blocking(lambda: not sink._backlog, "the thread has its line")
    collector = Collector(source)
    assert sink.flush(10)
    collector.has(b"".join(lines[:4]) + b"4 dropped\n")


def test_after_a_spill_lines_are_written_at_once_again(pipe: tuple[int, int]) -> None:
    source, target = pipe
    sink = Sink(target, notice)
    sink.write(b"x" * 5000 + b"\n")
    collector = Collector(source)
    assert sink.flush(10)
    sink.write(b"short\n")
    collector.has(b"x" * 5000 + b"\nshort\n")


def test_a_reader_that_is_gone_is_no_error(pipe: tuple[int, int]) -> None:
    source, target = pipe
    sink = Sink(target, notice)
    os.close(source)
    sink.write(b"line\n")
    sink.write(b"x" * 5000)
    assert sink.flush(10)


def test_a_file_is_always_ready() -> None:
    with tempfile.TemporaryFile() as file:
        sink = Sink(file.fileno(), notice)
        for _ in range(100):
            sink.write(b"x" * 999 + b"\n")
        assert os.fstat(file.fileno()).st_size == 100_000
