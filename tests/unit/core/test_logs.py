"""Log lines as they arrive at a reader: klog's text, JSON, levels, and one line per record."""

import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping

import pytest
from bitts.core import logformat, logs
from bitts.core.sidecarflags import LogOptions
from hypothesis import given
from hypothesis import strategies as st

log = logs.get("provisioner")


class Reader:
    """The other end of a program's standard error."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)

    def configure(self, **options: object) -> None:
        logs.configure(LogOptions(**options), "csi-example", descriptor=self.sink)  # type: ignore[arg-type]

    def lines(self) -> list[str]:
        logs.flush()
        try:
            return os.read(self.source, 1_000_000).decode().splitlines()
        except BlockingIOError:
            return []

    def line(self) -> str:
        (line,) = self.lines()
        return line

    def pairs(self) -> str:
        """What follows the message and the logger's name."""
        return self.line().partition('logger="provisioner"')[2].strip()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    made.configure()
    yield made
    logging.captureWarnings(capture=False)
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler).__module__ == logs.__name__:
            root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("bitts").setLevel(logging.NOTSET)
    os.close(made.source)
    os.close(made.sink)


class TestText:
    """klog's text format."""

    def test_the_shape_of_a_line(self, reader: Reader) -> None:
        log.info("Volume created", volume="vol-1")
        assert re.fullmatch(
            r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\]"
            r' "Volume created" logger="provisioner" volume="vol-1"',
            reader.line(),
        )

    def test_the_letters_of_the_levels(self, reader: Reader) -> None:
        log.info("a")
        log.warning("b")
        log.error("c")
        logging.getLogger("library").critical("d")
        assert [line[0] for line in reader.lines()] == list("IWEF")

    def test_the_line_number_is_the_callers(self, reader: Reader) -> None:
        log.info("one")
        log.info("two")
        first, second = (int(re.findall(r"\.py:(\d+)\]", line)[0]) for line in reader.lines())
        assert second == first + 1

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("plain", '"plain"'),
            ('say "hi"', '"say \\"hi\\""'),
            ("back\\slash", '"back\\\\slash"'),
            ("two\nlines\r\ttab", '"two\\nlines\\r\\ttab"'),
            ("\x1b[31m\x7f", '"\\x1b[31m\\x7f"'),
            ("\u2028\x85\U000e0001", '"\\u2028\\u0085\\U000e0001"'),
            ("größe 한", '"größe 한"'),
            ("\udcff", '"\\udcff"'),
            (True, "true"),
            (False, "false"),
            (7, "7"),
            (0.5, "0.5"),
            (None, "<nil>"),
            (TimeoutError(), '"TimeoutError"'),
            (OSError("no space"), '"no space"'),
            ([1, "a", None], '[1,"a",null]'),
            (("a",), '["a"]'),
            ({"a": {"b": OSError("x")}, (1,): 2}, '{"a":{"b":"x"}}'),
            (frozenset("ba"), '["a","b"]'),
            (b"raw", "\"b'raw'\""),
            (logging.INFO.__class__, "\"<class 'int'>\""),
        ],
        ids=lambda each: repr(sorted(each) if isinstance(each, frozenset) else each),
    )
    def test_values(self, reader: Reader, value: object, text: str) -> None:
        log.info("x", key=value)
        assert reader.pairs() == f"key={text}"

    def test_bound_fields_come_first_and_are_inherited(self, reader: Reader) -> None:
        log.bind(pvc="shop/cart").bind(node="n1").info("x", key=1)
        assert reader.pairs() == 'pvc="shop/cart" node="n1" key=1'

    def test_the_cause_of_an_error(self, reader: Reader) -> None:
        log.error("Cannot create", err=OSError("no space"), volume="v")
        assert reader.pairs() == 'err="no space" volume="v"'

    def test_an_exception_has_its_trace_on_the_same_line(self, reader: Reader) -> None:
        try:
            raise OSError("no space")
        except OSError:
            log.exception("Cannot create", volume="v")
        line = reader.line()
        assert 'err="no space" volume="v" stacktrace="Traceback' in line
        assert "\\nOSError: no space\\n" in line

    def test_exception_outside_an_except_block_is_a_mistake(self) -> None:
        with pytest.raises(RuntimeError, match="for except blocks"):
            log.exception("nothing")  # noqa: LOG004 - the mistake in question

    def test_records_of_libraries_look_the_same(self, reader: Reader) -> None:
        logging.getLogger("aiohttp.server").warning("%d of\n%d", 1, 2)
        assert reader.line().endswith('] "1 of\\n2" logger="aiohttp.server"')

    def test_warnings_are_records(self, reader: Reader) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=False)
            logging.captureWarnings(capture=True)
            warnings.warn("old habit", UserWarning, stacklevel=1)
            logging.captureWarnings(capture=False)
        assert "UserWarning: old habit" in reader.line()


class TestJson:
    """The JSON format."""

    def record(self, reader: Reader) -> Mapping[str, object]:
        parsed: dict[str, object] = json.loads(reader.line())
        return parsed

    def test_the_keys(self, reader: Reader) -> None:
        reader.configure(format="json", verbosity=4)
        log.at(4).info("Volume created", volume="v", size=5)
        record = self.record(reader)
        assert list(record) == ["ts", "caller", "logger", "msg", "v", "volume", "size"]
        assert isinstance(record["ts"], float)
        assert record["ts"] > 1.7e12, "milliseconds since 1970"
        assert re.fullmatch(r"core/test_logs\.py:\d+", str(record["caller"]))
        assert (record["logger"], record["v"], record["size"]) == ("provisioner", 4, 5)

    def test_an_error_has_a_cause_and_no_verbosity(self, reader: Reader) -> None:
        reader.configure(format="json")
        log.error("Cannot create", err=OSError("no space"))
        record = self.record(reader)
        assert record["err"] == "no space"
        assert "v" not in record

    def test_the_caller_is_the_same_place_again(self, reader: Reader) -> None:
        reader.configure(format="json")
        for _ in range(2):
            log.info("x")
        first, second = (json.loads(line)["caller"] for line in reader.lines())
        assert first == second

    def test_a_warning_is_information(self, reader: Reader) -> None:
        reader.configure(format="json")
        log.warning("x")
        assert self.record(reader)["v"] == 0

    def test_a_field_never_hides_the_frame(self, reader: Reader) -> None:
        reader.configure(format="json")
        log.info("x", msg="mine", ts=1)
        record = self.record(reader)
        assert (record["msg"], record["msg_"], record["ts_"]) == ("x", "mine", 1)

    def test_values(self, reader: Reader) -> None:
        reader.configure(format="json")
        log.info(
            "x", a=float("nan"), b=frozenset("ba"), c=OSError("d"), d=[b"raw"], e={"f": {1: 2}}
        )
        record = self.record(reader)
        assert [record[key] for key in "abcde"] == [
            "nan", ["a", "b"], "d", ["b'raw'"], {"f": {"1": 2}},
        ]  # fmt: skip

    def test_records_without_a_part_carry_the_programs_name(self, reader: Reader) -> None:
        reader.configure(format="json")
        logging.warning("x")  # noqa: LOG015 - the root logger is the point
        assert self.record(reader)["logger"] == "csi-example"


class TestLevels:
    """``-v`` and ``--vmodule``."""

    @pytest.mark.parametrize(("verbosity", "shown"), [(0, [0]), (2, [0, 2]), (10, [0, 2, 5, 10])])
    def test_verbosity(self, reader: Reader, verbosity: int, shown: list[int]) -> None:
        reader.configure(verbosity=verbosity)
        for level in (0, 2, 5, 10):
            assert log.at(level).is_enabled() == (level in shown)
            log.at(level).info(f"at {level}")
        found = [int(re.findall(r'"at (\d+)"', line)[0]) for line in reader.lines()]
        assert found == shown

    def test_verbosities_beyond_the_deepest_are_the_deepest(self, reader: Reader) -> None:
        reader.configure(verbosity=100)
        log.at(50).info("x")
        assert len(reader.lines()) == 1

    def test_errors_are_not_a_matter_of_verbosity(self, reader: Reader) -> None:
        log.at(9).error("x")
        log.at(9).warning("y")
        assert len(reader.lines()) == 2

    def test_nothing_is_rendered_for_a_level_that_is_off(self, reader: Reader) -> None:
        class Costly:
            def __str__(self) -> str:
                raise AssertionError("rendered")

        log.at(5).info("x", request=Costly())
        logging.disable(logging.CRITICAL)
        log.warning("x", request=Costly())
        log.error("x", request=Costly())
        logging.disable(logging.NOTSET)
        assert reader.lines() == []

    @pytest.mark.parametrize(
        ("vmodule", "shown"),
        [("test_logs=3", True), ("test_*=3", True), ("*/core/*=3", True), ("other=9", False),
         ("test_logs=2,other=3", False)],
    )  # fmt: skip
    def test_vmodule(self, reader: Reader, vmodule: str, shown: bool) -> None:
        reader.configure(vmodule=vmodule)
        log.at(3).info("x")
        log.info("y")
        assert len(reader.lines()) == 1 + shown

    def test_libraries_talk_only_to_who_asks_for_much(self, reader: Reader) -> None:
        library = logging.getLogger("library")
        library.info("x")
        assert reader.lines() == []
        reader.configure(verbosity=6)
        library.info("x")
        assert len(reader.lines()) == 1


def test_a_field_that_cannot_be_rendered_does_not_stop_the_caller(
    reader: Reader, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError("broken")

    log.info("x", key=Broken())
    assert reader.lines() == []
    assert "ValueError: broken" in capsys.readouterr().err


async def test_a_coroutine_may_log(reader: Reader) -> None:
    log.info("x")
    assert len(reader.lines()) == 1


def test_dropped_records_are_owned_up_to(reader: Reader) -> None:
    (handler,) = (each for each in logging.getLogger().handlers if isinstance(each, logs._Handler))
    assert handler._dropped(7).endswith(b'in time" logger="csi-example" count=7\n')


@given(st.text())
def test_any_text_is_one_line_that_reads_back(text: str) -> None:
    quoted = logformat.quote(text)
    assert quoted.isprintable()
    assert quoted[0] == quoted[-1] == '"'


VALUES = st.text(max_size=9) | st.floats() | st.lists(st.text(max_size=3), max_size=2)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=3))
def test_any_record_is_one_line_in_both_shapes(fields: Mapping[str, object]) -> None:
    record = logging.LogRecord("bitts.x", logging.INFO, "a/b.py", 1, "x", (), None)
    record.fields = fields
    for formatter in (logformat.Text("p"), logformat.Json("p")):
        line = formatter.format(record)
        assert line.count("\n") == 1
        assert line.endswith("\n")
