"""A file that says what flags would."""

import pathlib

import pytest
from bitts.core import configfile
from bitts.core.flags import FlagError, FlagSet, FlagValues
from hypothesis import given
from hypothesis import strategies as st


class Sample:
    def __init__(self) -> None:
        self.flags = FlagSet("prog", version="1")
        self.name = self.flags.string("name", "anonymous")
        self.pause = self.flags.duration("pause", 1.0)
        self.verbosity = self.flags.integer("v", 0)
        self.wet = self.flags.boolean("wet", False)
        self.tags = self.flags.strings("tag")
        self.flags.removed("old", "it is gone")
        self.config = configfile.flag(self.flags)

    def resolve(self, *argv: str) -> FlagValues:
        return configfile.resolve(self.flags, self.config, argv, lambda values: values)


def written(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_the_file_says_what_flags_would_and_flags_win(tmp_path: pathlib.Path) -> None:
    text = 'name = "file"\npause = "1m30s"\nv = 3\nwet = true\ntag = ["a,b", "c"]\n'
    path = written(tmp_path, text)
    sample = Sample()
    for argv in ([f"--config={path}", "--v=5"], ["--v=5", "--config", str(path)]):
        values = sample.resolve(*argv)
        assert values[sample.name] == "file"
        assert values[sample.pause] == 90.0
        assert values[sample.verbosity] == 5
        assert values[sample.wet] is True
        assert values[sample.tags] == ("a,b", "c")


def test_without_a_file_the_command_line_is_all_there_is() -> None:
    sample = Sample()
    assert sample.resolve("--name=x")[sample.name] == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("paus = 1", r"unknown field 'paus', did you mean 'pause'\?"),
        ("colour = 1", "unknown field 'colour'; keys are the names of flags"),
        ('config = "other"', "unknown field 'config'"),
        ("version = true", "unknown field 'version'"),
        ("old = 1", "unknown field 'old'"),
        ("v = 1.5", 'invalid value "1.5" for flag --v: must be a whole number'),
        ("pause = 10", "for flag --pause"),
        ("[name]\nx = 1", "field 'name' must be a text"),
        ("name = 2026-01-01", "field 'name' must be a text"),
        ("name = ", r"config\.toml: Invalid value"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(
    tmp_path: pathlib.Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(FlagError, match=message) as caught:
        configfile.arguments(Sample().flags, str(path))
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_ends_the_program(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        Sample().resolve(f"--config={tmp_path / 'none.toml'}")
    assert ended.value.code == 1
    assert "none.toml" in capsys.readouterr().err


def test_a_huge_file_is_refused(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "#" * (1 << 21))
    with pytest.raises(FlagError, match="larger than"):
        configfile.arguments(Sample().flags, str(path))


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=40))
def test_any_text_comes_through(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    path = tmp_path_factory.mktemp("config") / "c.toml"
    path.write_text(f'name = "{quoted}"\n', encoding="utf-8")
    sample = Sample()
    assert sample.resolve(f"--config={path}")[sample.name] == text
