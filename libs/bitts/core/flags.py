"""Command-line flags in every spelling that Go programs accept.

Upstream's sidecars parse with Go's ``flag`` (one provisioner with ``pflag``), and Deployments in
the field rely on either's habits. This is their superset:

- ``-name=value``, ``--name=value``, ``-name value``, ``--name value``, and ``-v5`` for one letter;
- a boolean is ``--name`` or ``--name=value``; a separate word after it is a positional argument;
- the first positional argument, or ``--``, ends the flags (``interspersed`` goes on, as pflag);
- the last occurrence wins; maps and lists collect.

Values are read by ``literals``. Nothing here may cost import time: no asyncio, logging, argparse.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar, cast

from bitts.core import literals, usage

T = TypeVar("T")


class FlagError(Exception):
    """The command line is wrong. ``code`` is the exit code that upstream uses for it."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class HelpRequested(Exception):  # noqa: N818 - a wish, not an error
    """``--help`` was given; the text is what to print."""


class Flag(Generic[T]):
    """A flag of a FlagSet, and the key to its value in what ``parse`` returns."""

    __slots__ = ("default", "help", "name")

    def __init__(self, name: str, default: T, help: str) -> None:
        self.name = name
        self.default = default
        self.help = help


class _Definition:
    """How to read one flag. ``bare`` is the text that a flag without value stands for."""

    __slots__ = ("bare", "deprecated", "fold", "kind", "read", "shown", "target")

    def __init__(
        self,
        target: Flag[object] | None,
        read: Callable[[str], object],
        *,
        kind: str = "",
        shown: str = "",
        bare: str | None = None,
        fold: Callable[[object, object], object] | None = None,
        deprecated: str = "",
    ) -> None:
        self.target = target
        self.read = read
        self.kind = kind
        self.shown = shown
        self.bare = bare
        self.fold = fold
        self.deprecated = deprecated


class FlagValues:
    """What a command line means: ``values[flag]`` is typed like the flag."""

    def __init__(self, given: Mapping[str, object], warnings: Sequence[str]) -> None:
        self._given = given
        self.warnings = tuple(warnings)

    def __getitem__(self, flag: Flag[T]) -> T:
        return cast("T", self._given.get(flag.name, flag.default))

    def is_set(self, flag: Flag[T]) -> bool:
        """Say whether the flag was given, with whatever value."""
        return flag.name in self._given


class FlagSet:
    """The flags of one program. With a ``version`` there is a ``--version`` flag too."""

    def __init__(
        self, program: str, summary: str = "", *, version: str = "", interspersed: bool = False
    ) -> None:
        self.program = program
        self.summary = summary
        self.version = version
        self._interspersed = interspersed
        self._known: dict[str, _Definition] = {}
        self.show_version = Flag("version", False, "print the version and exit")
        if version:
            self._define(self.show_version, literals.boolean, bare="true")

    def string(
        self, name: str, default: str = "", help: str = "", *, deprecated: str = ""
    ) -> Flag[str]:
        """Define a flag that takes any text. ``deprecated`` says what to use instead."""
        return self._define(
            Flag(name, default, help), str, kind="string",
            shown=f'"{default}"' if default else "", deprecated=deprecated,
        )  # fmt: skip

    def strings(self, name: str, help: str = "") -> Flag[tuple[str, ...]]:
        """Define a flag that may be repeated; each occurrence is one item, commas and all."""
        none: tuple[str, ...] = ()
        return self._define(
            Flag(name, none, help), lambda text: (text,), kind="string (repeatable)", fold=_joined
        )

    def boolean(
        self,
        name: str,
        default: bool = False,  # noqa: FBT001, FBT002 - the value is the point
        help: str = "",
        *,
        empty: bool | None = None,
    ) -> Flag[bool]:
        """Define a switch. ``empty`` is what ``--name=`` means, if it is allowed at all."""

        def read(text: str) -> bool:
            return empty if empty is not None and not text else literals.boolean(text)

        return self._define(
            Flag(name, default, help), read, shown="true" if default else "", bare="true"
        )

    def integer(self, name: str, default: int = 0, help: str = "") -> Flag[int]:
        """Define a flag that takes a 64-bit integer in Go's notation."""
        return self._define(
            Flag(name, default, help), literals.integer, kind="int", shown=_nonzero(default)
        )

    def unsigned(self, name: str, default: int = 0, help: str = "") -> Flag[int]:
        """Define a flag that takes an integer without sign."""
        return self._define(
            Flag(name, default, help), literals.unsigned, kind="uint", shown=_nonzero(default)
        )

    def number(self, name: str, default: float = 0.0, help: str = "") -> Flag[float]:
        """Define a flag that takes a floating-point number."""
        return self._define(
            Flag(name, default, help), literals.number, kind="float", shown=_nonzero(default)
        )

    def duration(self, name: str, default: float = 0.0, help: str = "") -> Flag[float]:
        """Define a flag that takes a duration such as ``1m30s``; its value is seconds."""
        shown = literals.format_duration(default) if default else ""
        return self._define(
            Flag(name, default, help), literals.duration, kind="duration", shown=shown
        )

    def choice(
        self, name: str, choices: Sequence[str], default: str, help: str = ""
    ) -> Flag[str]:  # fmt: skip
        """Define a flag that takes one of a few words."""

        def read(text: str) -> str:
            if text not in choices:
                raise ValueError(f"must be one of {', '.join(choices)}")
            return text

        return self._define(Flag(name, default, help), read, kind="|".join(choices), shown=default)

    def pairs(self, name: str, help: str = "") -> Flag[Mapping[str, str]]:
        """Define a flag that takes ``key:value,key2:value2``; repeated ones are merged."""
        empty: Mapping[str, str] = {}
        return self._define(
            Flag(name, empty, help), literals.pairs, kind="key:value,...", fold=_merged
        )

    def gates(self, name: str = "feature-gates", help: str = "") -> Flag[Mapping[str, bool]]:
        """Define a flag that takes ``Name=true,Other=false``; repeated ones are merged."""
        empty: Mapping[str, bool] = {}
        return self._define(
            Flag(name, empty, help), literals.gates, kind="Name=bool,...", fold=_merged
        )

    def removed(self, name: str, note: str, *, boolean: bool = False) -> None:
        """Accept a flag that upstream once had, whatever its value; it only gives a warning."""
        self._add(name, _Definition(None, str, bare="true" if boolean else None, deprecated=note))

    def parse(self, argv: Sequence[str]) -> FlagValues:
        """Read the arguments (without the program's name).

        Raises FlagError naming the flag that is wrong, HelpRequested with the text to print.
        """
        return _Parse(
            self.program, self._known, self.help_text, interspersed=self._interspersed
        ).run(argv)

    def resolve(self, argv: Sequence[str], build: Callable[[FlagValues], T]) -> T:
        """Parse and build options as a program does: print what is asked for or wrong, and exit.

        Exit code 0 after help or version, 2 for a wrong flag, else the code of the FlagError
        that ``build`` raises. Help and errors go to standard error, the version to output.
        """
        try:
            values = self.parse(argv)
            if self.version and values[self.show_version]:
                self._print_version()
            return build(values)
        except HelpRequested as wish:
            sys.stderr.write(str(wish))
            raise SystemExit(0) from None
        except FlagError as error:
            usage_line = f"Usage: {self.program} [flags]; --help lists them"
            sys.stderr.write(f"{self.program}: {error}\n{usage_line}\n")
            raise SystemExit(error.code) from None

    def help_text(self) -> str:
        """Return the usage text: every flag that still exists, in alphabetical order."""
        rows = [
            usage.Row(
                name,
                definition.kind,
                definition.target.help,
                definition.shown,
                definition.deprecated,
            )
            for name, definition in sorted(self._known.items())
            if definition.target is not None
        ]
        return usage.render(self.program, self.summary, rows)

    def _print_version(self) -> NoReturn:
        sys.stdout.write(f"{sys.argv[0]} {self.version}\n")
        raise SystemExit(0)

    def _define(
        self,
        flag: Flag[T],
        read: Callable[[str], T],
        *,
        kind: str = "",
        shown: str = "",
        bare: str | None = None,
        fold: Callable[[object, object], object] | None = None,
        deprecated: str = "",
    ) -> Flag[T]:
        definition = _Definition(
            cast("Flag[object]", flag), read,
            kind=kind, shown=shown, bare=bare, fold=fold, deprecated=deprecated,
        )  # fmt: skip
        self._add(flag.name, definition)
        return flag

    def _add(self, name: str, definition: _Definition) -> None:
        if name in self._known:
            raise ValueError(f"flag {name} is defined twice")
        self._known[name] = definition


class _Parse:
    """One run over the arguments."""

    def __init__(
        self,
        program: str,
        known: Mapping[str, _Definition],
        help_text: Callable[[], str],
        *,
        interspersed: bool,
    ) -> None:
        self._program = program
        self._known = known
        self._help_text = help_text
        self._interspersed = interspersed
        self._given: dict[str, object] = {}
        self._warnings: dict[str, None] = {}

    def run(self, argv: Sequence[str]) -> FlagValues:
        rest = list(reversed(argv))
        last = ""
        while rest:
            word = rest.pop()
            if word == "--":
                break
            if len(word) < 2 or word[0] != "-":
                self._positional(word, last, rest)
                if self._interspersed:
                    continue
                break
            last = word
            self._flag(word, rest)
        return FlagValues(self._given, tuple(self._warnings))

    def _flag(self, word: str, rest: list[str]) -> None:
        dashes = 2 if word.startswith("--") else 1
        name, equals, text = word[dashes:].partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {word}")
        definition = self._known.get(name)
        if definition is None and dashes == 1 and not equals:
            definition, name, equals, text = self._attached(name)
        if definition is None:
            self._unknown(name)
        if not equals:
            if definition.bare is not None:
                text = definition.bare
            elif rest:
                text = rest.pop()
            else:
                raise FlagError(f"flag --{name} needs a value")
        self._take(name, definition, text)

    def _attached(self, name: str) -> "tuple[_Definition | None, str, str, str]":
        """Read ``v5`` as pflag does: one letter with its value attached."""
        definition = self._known.get(name[0])
        if definition is None or definition.bare is not None or len(name) == 1:
            return None, name, "", ""
        return definition, name[0], "=", name[1:]

    def _take(self, name: str, definition: _Definition, text: str) -> None:
        if definition.target is None:
            self._warn(f"flag --{name} no longer exists and is ignored: {definition.deprecated}")
            return
        try:
            value = definition.read(text)
        except ValueError as error:
            raise FlagError(f'invalid value "{text}" for flag --{name}: {error}') from None
        if definition.deprecated:
            self._warn(f"flag --{name} is deprecated: {definition.deprecated}")
        if definition.fold is not None and name in self._given:
            value = definition.fold(self._given[name], value)
        self._given[name] = value

    def _positional(self, word: str, last: str, rest: Sequence[str]) -> None:
        message = f'argument "{word}" is ignored'
        if rest and not self._interspersed:
            message = f'argument "{word}" and everything after it is ignored'
        name = last.lstrip("-")
        if name in self._known and self._known[name].bare is not None:
            message += f"; to give the flag a value write --{name}={word}"
        self._warn(message)

    def _unknown(self, name: str) -> NoReturn:
        if name in ("help", "h"):
            raise HelpRequested(self._help_text())
        nearest = literals.nearest(name, self._known)
        hint = f", did you mean --{nearest}?" if nearest else ""
        raise FlagError(f"unknown flag --{name}{hint}")

    def _warn(self, message: str) -> None:
        self._warnings[message] = None


def _nonzero(value: float) -> str:
    return f"{value:g}" if value else ""


def _joined(former: object, latter: object) -> object:
    return (*cast("tuple[str, ...]", former), *cast("tuple[str, ...]", latter))


def _merged(former: object, latter: object) -> object:
    return {**cast("dict[str, object]", former), **cast("dict[str, object]", latter)}
