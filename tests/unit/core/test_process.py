"""How processes live and end: in this process where that is possible, else in one of their own."""

import asyncio
import gc
import logging
import os
import pathlib
import signal
import sys
from collections.abc import Iterator

import pytest
from bitts.core import process
from support import processes, waiting


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = vars(record)["fields"]
    return found


async def until_cancelled() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_a_main_that_returns_ends_well_on_either_loop(use_uvloop: bool) -> None:
    loops: list[str] = []

    async def main(running: process.Process) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)
        running.start("background", until_cancelled())

    assert process.run(main, "example", use_uvloop=use_uvloop) == 0
    assert loops[0].startswith("uvloop" if use_uvloop else "asyncio")


def test_a_main_may_name_the_exit_code(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(running: process.Process) -> None:
        raise process.ExitError(7, "both flags are set")

    last_words = tmp_path / "termination-log"
    assert process.run(main, "example", termination_log=last_words) == 7
    assert not last_words.exists()
    (record,) = caplog.records
    assert fields(record)["code"] == 7
    assert str(fields(record)["err"]) == "both flags are set"


def test_the_last_words_are_left_where_kubelet_looks(tmp_path: pathlib.Path) -> None:
    async def main(running: process.Process) -> None:
        raise process.ExitError(1, "Lost connection to CSI driver, exiting", termination_log=True)

    last_words = tmp_path / "termination-log"
    assert process.run(main, "example", termination_log=last_words) == 1
    assert last_words.read_text() == "Lost connection to CSI driver, exiting"


def test_last_words_that_cannot_be_written_change_nothing(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(running: process.Process) -> None:
        raise process.ExitError(3, "lost", termination_log=True)

    assert process.run(main, "example", termination_log=tmp_path) == 3
    assert caplog.records[-1].message == "Cannot write the termination log"


def test_an_unexpected_error_is_reported_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def main(running: process.Process) -> None:
        raise KeyError("bug")

    assert process.run(main, "example") == 1
    (record,) = caplog.records
    assert record.exc_info is not None


class TestTasks:
    """A started task lives as long as the process."""

    def exit_code(self, work: object, cleaned: list[str]) -> int:
        async def main(running: process.Process) -> None:
            running.start("background", work)  # type: ignore[arg-type]
            try:
                await until_cancelled()
            finally:
                cleaned.append("main")

        return process.run(main, "example")

    def test_one_that_fails_cancels_main(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work() -> None:
            raise KeyError("bug")

        cleaned: list[str] = []
        assert self.exit_code(work(), cleaned) == 1
        assert cleaned == ["main"]
        messages = [(record.message, fields(record)) for record in caplog.records]
        assert messages[0][0] == "Task failed"
        assert str(messages[1][1]["err"]) == "background failed: 'bug'"

    def test_an_error_without_text_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work() -> None:
            raise TimeoutError

        assert self.exit_code(work(), []) == 1
        assert str(fields(caplog.records[-1])["err"]) == "background failed: TimeoutError"

    def test_one_that_ends_early_is_a_fault(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work() -> None:
            pass

        assert self.exit_code(work(), []) == 1
        assert "ended although the process goes on" in str(fields(caplog.records[-1])["err"])

    def test_one_that_cancels_itself_is_a_fault(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work() -> None:
            raise asyncio.CancelledError

        assert self.exit_code(work(), []) == 1
        assert "cancelled from within" in str(fields(caplog.records[-1])["err"])

    def test_one_may_name_the_exit_code(self) -> None:
        async def work() -> None:
            raise process.ExitError(9, "leadership lost")

        assert self.exit_code(work(), []) == 9

    def test_a_callback_may_end_the_process(self) -> None:
        async def main(running: process.Process) -> None:
            lost = process.ExitError(4, "driver lost")
            asyncio.get_running_loop().call_soon(running.fail, lost)
            await until_cancelled()

        assert process.run(main, "example") == 4

    def test_a_callback_changes_nothing_while_stopping(self) -> None:
        async def main(running: process.Process) -> None:
            running.stop("enough")
            running.fail(process.ExitError(4, "driver lost"))

        assert process.run(main, "example") == 0

    def test_of_several_faults_the_one_with_an_exit_code_counts(self) -> None:
        async def work() -> None:
            raise process.ExitError(9, "leadership lost")

        async def main(running: process.Process) -> None:
            running.start("background", work())
            try:
                await until_cancelled()
            except asyncio.CancelledError:
                raise KeyError("in cleaning up") from None

        assert process.run(main, "example") == 9

    def test_they_are_cancelled_when_main_is_over(self) -> None:
        ended: list[str] = []

        async def work(name: str) -> None:
            try:
                await until_cancelled()
            finally:
                ended.append(name)

        async def main(running: process.Process) -> None:
            for name in ("first", "second"):
                running.start(name, work(name))
            await asyncio.sleep(0)

        assert process.run(main, "example") == 0
        assert ended == ["second", "first"]

    def test_one_that_ends_while_stopping_is_no_fault(self) -> None:
        async def main(running: process.Process) -> None:
            async def work() -> None:
                await running.stopping.wait()

            task = running.start("background", work())
            running.stop("enough")
            running.stop("again")
            await task

        assert process.run(main, "example") == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_main_to_end(number: signal.Signals) -> None:
    async def main(running: process.Process) -> None:
        os.kill(os.getpid(), number)
        await running.stopping.wait()

    assert process.run(main, "example") == 0


def test_the_first_signal_never_kills_a_process_that_is_already_ending() -> None:
    async def main(running: process.Process) -> None:
        running.stop("enough")
        os.kill(os.getpid(), signal.SIGTERM)
        await waiting.until(lambda: running._signals, "arrival of the signal")

    assert process.run(main, "example") == 0


def test_a_main_that_does_not_end_in_time_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def main(running: process.Process) -> None:
        running.stop("enough")
        await until_cancelled()

    assert process.run(main, "example", grace=0.01) == 1
    assert [record.message for record in caplog.records] == [
        "Still working after the grace time, cancelling",
        "Exiting, work was cut off by the grace time",
    ]


def test_a_task_that_does_not_end_in_time_is_cut_off() -> None:
    async def main(running: process.Process) -> None:
        async def slow() -> None:
            try:
                await until_cancelled()
            finally:
                await until_cancelled()

        running.start("slow to end", slow())
        await asyncio.sleep(0)
        running.stop("enough")

    assert process.run(main, "example", grace=0.01) == 1


def test_what_lives_after_the_start_is_kept_out_of_collections() -> None:
    frozen: list[int] = []

    async def main(running: process.Process) -> None:
        running.started()
        frozen.append(gc.get_freeze_count())

    assert process.run(main, "example") == 0
    assert frozen[0] > 1_000


PROGRAM = """
import asyncio, sys, threading, time
from bitts.core import logs, process
from bitts.core.sidecarflags import LogOptions

async def stubborn(running):
    print("ready", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def hanging(running):
    print("ready", flush=True)
    running.stop("enough")
    await asyncio.to_thread(time.sleep, 60)

logs.configure(LogOptions(), "example")
sys.exit(process.run({main}, "example", grace={grace}))
"""


class TestInProcessesOfTheirOwn:
    """Ends that would end the tests too."""

    def spawn(self, spawner: processes.Processes, main: str, grace: float) -> processes.Process:
        code = PROGRAM.format(main=main, grace=grace)
        return spawner.spawn([sys.executable, "-c", code], name="example")

    async def test_a_second_signal_ends_at_once(self, spawner: processes.Processes) -> None:
        program = self.spawn(spawner, "stubborn", 60)
        await program.wait_for_output("ready")
        program.send_signal(signal.SIGTERM)
        await program.wait_for_output("received SIGTERM")
        program.send_signal(signal.SIGINT)
        assert await program.wait() == 1
        assert 'exiting at once" logger="example" signal="SIGINT"' in program.output()

    async def test_a_main_that_refuses_to_end_is_ended(self, spawner: processes.Processes) -> None:
        program = self.spawn(spawner, "stubborn", 0.1)
        await program.wait_for_output("ready")
        program.send_signal(signal.SIGTERM)
        assert await program.wait() == 1
        assert "Does not end by itself" in program.output()

    async def test_a_thread_that_hangs_is_ended(self, spawner: processes.Processes) -> None:
        program = self.spawn(spawner, "hanging", 0.1)
        assert await program.wait() == 1
        assert "Does not end by itself" in program.output()
