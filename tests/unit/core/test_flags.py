"""Command lines as Go reads them."""

import contextlib
import re
from collections.abc import Mapping, Sequence

import pytest
from bitts.core.flags import FlagError, FlagSet, FlagValues, HelpRequested
from hypothesis import given
from hypothesis import strategies as st


class Sample:
    """One flag of each kind."""

    def __init__(self, *, interspersed: bool = False) -> None:
        self.flags = FlagSet("prog", "Does things.", version="1.2", interspersed=interspersed)
        self.name = self.flags.string("name", "anonymous", "what to call it")
        self.old_name = self.flags.string("old-name", "", "as name", deprecated="use --name")
        self.faults = self.flags.strings("fault", "what goes wrong")
        self.wet = self.flags.boolean("wet", False, "whether it is")
        self.dry = self.flags.boolean("dry", True, "whether it is")
        self.auto = self.flags.boolean("auto", False, empty=True)
        self.verbosity = self.flags.integer("v", 0, "how much to say")
        self.threads = self.flags.unsigned("threads", 10)
        self.qps = self.flags.number("qps", 5.0)
        self.timeout = self.flags.duration("timeout", 90.0)
        self.format = self.flags.choice("format", ("text", "json"), "text")
        self.labels = self.flags.pairs("labels")
        self.gates = self.flags.gates()
        self.flags.removed("provisioner", "the driver names itself")
        self.flags.removed("logtostderr", "always so", boolean=True)

    def parse(self, *argv: str) -> FlagValues:
        return self.flags.parse(argv)


@pytest.fixture
def sample() -> Sample:
    return Sample()


def test_defaults(sample: Sample) -> None:
    values = sample.parse()
    assert values[sample.name] == "anonymous"
    assert (values[sample.wet], values[sample.dry]) == (False, True)
    assert (values[sample.timeout], values[sample.qps], values[sample.threads]) == (90, 5, 10)
    assert (values[sample.labels], values[sample.gates], values[sample.faults]) == ({}, {}, ())
    assert values.warnings == ()


@pytest.mark.parametrize(
    "argv",
    [["-name=x"], ["--name=x"], ["-name", "x"], ["--name", "x"], ["--name=y", "-name", "x"]],
    ids=" ".join,
)
def test_every_spelling_of_a_value(sample: Sample, argv: Sequence[str]) -> None:
    assert sample.parse(*argv)[sample.name] == "x"


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--wet"], True), (["-wet"], True), (["--wet=true"], True), (["-wet=T"], True),
        (["--wet=false"], False), (["--wet", "--wet=0"], False),
    ],
)  # fmt: skip
def test_every_spelling_of_a_boolean(sample: Sample, argv: Sequence[str], value: bool) -> None:
    assert sample.parse(*argv)[sample.wet] is value


@pytest.mark.parametrize(
    "argv", [["-v=5"], ["--v=5"], ["-v", "5"], ["--v", "5"], ["-v5"], ["-v0x5"]], ids=" ".join
)
def test_every_spelling_of_one_letter(sample: Sample, argv: Sequence[str]) -> None:
    assert sample.parse(*argv)[sample.verbosity] == 5


@pytest.mark.parametrize(
    ("argv", "value"), [("--auto", True), ("--auto=", True), ("--auto=0", False)]
)
def test_a_boolean_may_allow_an_empty_value(sample: Sample, argv: str, value: bool) -> None:
    assert sample.parse(argv)[sample.auto] is value


@pytest.mark.parametrize(
    ("argv", "value"),
    [(["--name="], ""), (["--name", ""], ""), (["--name=a=b"], "a=b"), (["--name", "-v"], "-v")],
)
def test_a_value_may_be_anything(sample: Sample, argv: Sequence[str], value: str) -> None:
    values = sample.parse(*argv)
    assert values[sample.name] == value
    assert values.is_set(sample.name)
    assert not values.is_set(sample.verbosity)


def test_maps_and_lists_collect(sample: Sample) -> None:
    values = sample.parse(
        "--labels=a:b,c:d", "--labels", "c:e", "--feature-gates=A=true", "--feature-gates=B=false",
        "--fault=one,two", "--fault", "three",
    )  # fmt: skip
    assert values[sample.labels] == {"a": "b", "c": "e"}
    assert values[sample.gates] == {"A": True, "B": False}
    assert values[sample.faults] == ("one,two", "three")


def test_numbers_and_durations(sample: Sample) -> None:
    values = sample.parse("--threads=0x10", "--qps=-1", "--timeout=1m30s", "--format=json")
    assert (values[sample.threads], values[sample.qps], values[sample.timeout]) == (16, -1, 90)
    assert values[sample.format] == "json"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--timeout=15"], 'invalid value "15" for flag --timeout: must be a duration with units'),
        (["--wet=maybe"], 'invalid value "maybe" for flag --wet: must be true or false'),
        (["--wet="], 'invalid value "" for flag --wet'),
        (["--threads=-1"], "must not be negative"),
        (["--format=xml"], "must be one of text, json"),
        (["--labels=a"], "exactly one colon"),
        (["--name"], "flag --name needs a value"),
        (["-v"], "flag --v needs a value"),
        (["--timeuot=1s"], "unknown flag --timeuot, did you mean --timeout?"),
        (["--old_name=x"], "unknown flag --old_name, did you mean --old-name?"),
        (["-wrong"], "unknown flag --wrong"),
        (["-w5"], "unknown flag --w5"),
        (["---name=x"], "bad flag syntax: ---name=x"),
        (["--=x"], "bad flag syntax: --=x"),
        (["-=x"], "bad flag syntax: -=x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_named(sample: Sample, argv: Sequence[str], message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)) as caught:
        sample.parse(*argv)
    assert caught.value.code == 2


def test_a_word_after_a_boolean_ends_the_flags_and_is_explained(sample: Sample) -> None:
    values = sample.parse("--wet", "false", "--name=x")
    assert values[sample.wet] is True
    assert values[sample.name] == "anonymous"
    assert values.warnings == (
        'argument "false" and everything after it is ignored;'
        " to give the flag a value write --wet=false",
    )


def test_the_last_word_is_ignored_too(sample: Sample) -> None:
    assert sample.parse("-name=x", "word").warnings == ('argument "word" is ignored',)


@pytest.mark.parametrize("word", ["word", "-", ""])
def test_interspersed_words_are_skipped(word: str) -> None:
    sample = Sample(interspersed=True)
    values = sample.parse("--wet", word, "--name=x")
    assert values[sample.name] == "x"
    assert len(values.warnings) == 1


@pytest.mark.parametrize("interspersed", [False, True])
def test_two_dashes_end_the_flags(interspersed: bool) -> None:
    sample = Sample(interspersed=interspersed)
    values = sample.parse("--wet", "--", "--name=x")
    assert (values[sample.name], values.warnings) == ("anonymous", ())


def test_removed_flags_are_ignored_with_a_warning(sample: Sample) -> None:
    values = sample.parse("--provisioner", "x", "-logtostderr", "--logtostderr=false", "--name=y")
    assert values[sample.name] == "y"
    assert values.warnings == (
        "flag --provisioner no longer exists and is ignored: the driver names itself",
        "flag --logtostderr no longer exists and is ignored: always so",
    )


def test_deprecated_flags_work_with_a_warning(sample: Sample) -> None:
    values = sample.parse("--old-name=x")
    assert values[sample.old_name] == "x"
    assert values.warnings == ("flag --old-name is deprecated: use --name",)


@pytest.mark.parametrize("argv", ["-h", "-help", "--help", "--h"])
def test_help_lists_every_flag_that_exists(sample: Sample, argv: str) -> None:
    with pytest.raises(HelpRequested) as caught:
        sample.parse(argv)
    text = str(caught.value)
    assert "Usage: prog [flags]\n\nDoes things.\n" in text
    assert "  --timeout duration\n        (default 1m30s)\n" in text
    assert 'what to call it (default "anonymous")' in text
    assert "(deprecated: use --name)" in text
    assert "provisioner" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_long_help_is_wrapped() -> None:
    flags = FlagSet("prog")
    flags.boolean("wordy", False, "word " * 60)
    lines = flags.help_text().splitlines()
    assert len(lines) > 5
    assert all(line.startswith("        word") for line in lines[4:])


def test_help_may_be_a_flag_of_the_program() -> None:
    flags = FlagSet("prog")
    own = flags.boolean("help", False)
    assert flags.parse(["--help"])[own] is True


def test_a_flag_is_defined_once() -> None:
    flags = FlagSet("prog")
    flags.boolean("x")
    with pytest.raises(ValueError, match="flag x is defined twice"):
        flags.string("x")


def test_without_a_version_there_is_no_version_flag() -> None:
    with pytest.raises(FlagError, match="unknown flag --version"):
        FlagSet("prog").parse(["--version"])


class TestResolve:
    """What a program does with its command line: build options, or print and exit."""

    def build(self, values: FlagValues) -> Mapping[str, object]:
        return {"warnings": values.warnings}

    def exit_code(self, sample: Sample, *argv: str) -> int | str | None:
        with pytest.raises(SystemExit) as caught:
            sample.flags.resolve(argv, self.build)
        return caught.value.code

    def test_options_are_built(self, sample: Sample) -> None:
        assert sample.flags.resolve(["--wet"], self.build) == {"warnings": ()}

    def test_version(self, sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.exit_code(sample, "--wet", "--version") == 0
        output = capsys.readouterr()
        assert output.out.endswith(" 1.2\n")
        assert output.err == ""

    def test_help(self, sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.exit_code(sample, "--help") == 0
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("Usage: prog")

    def test_error(self, sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.exit_code(sample, "--nam=x") == 2
        assert capsys.readouterr().err == (
            "prog: unknown flag --nam, did you mean --name?\n"
            "Usage: prog [flags]; --help lists them\n"
        )

    def test_options_out_of_range(self, sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
        def build(values: FlagValues) -> None:
            raise FlagError("--qps must be something else", 1)

        with pytest.raises(SystemExit) as caught:
            sample.flags.resolve([], build)
        assert caught.value.code == 1
        assert "--qps must be" in capsys.readouterr().err


SPELLINGS = st.sampled_from(["-{}={}", "--{}={}", "-{} {}", "--{} {}"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["name", "timeout", "v", "threads"]),
            st.integers(0, 10_000),
            SPELLINGS,
        )
    )
)
def test_the_last_occurrence_wins_in_any_spelling(given_: list[tuple[str, int, str]]) -> None:
    sample = Sample()
    last: dict[str, int] = {}
    argv: list[str] = []
    for name, number, spelling in given_:
        text = f"{number}s" if name == "timeout" else str(number)
        argv += spelling.format(name, text).split(" ")
        last[name] = number
    values = sample.parse(*argv)
    read: dict[str, object] = {
        "name": values[sample.name] if values.is_set(sample.name) else None,
        "timeout": values[sample.timeout] if values.is_set(sample.timeout) else None,
        "v": values[sample.verbosity] if values.is_set(sample.verbosity) else None,
        "threads": values[sample.threads] if values.is_set(sample.threads) else None,
    }
    wanted = {name: str(number) if name == "name" else number for name, number in last.items()}
    assert read == {name: wanted.get(name) for name in read}


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_command_line_is_read_or_refused(argv: list[str]) -> None:
    with contextlib.suppress(FlagError, HelpRequested):
        Sample().parse(*argv)
