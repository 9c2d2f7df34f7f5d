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
from typing import NoReturn, TypeVar, cast

from bitts.core import literals, usage
from bitts.core.arguments import (
    Definition,
    Flag,
    FlagError,
    FlagValues,
    HelpRequested,
    Parse,
)

__all__ = ["Flag", "FlagError", "FlagSet", "FlagValues", "HelpRequested"]

T = TypeVar("T")


class FlagSet:
    """The flags of one program. With a ``version`` there is a ``--version`` flag too."""

    def __init__(
        self, program: str, summary: str = "", *, version: str = "", interspersed: bool = False
    ) -> None:
        self.program = program
        self.summary = summary
        self.version = version
        self._interspersed = interspersed
        self._known: dict[str, Definition] = {}
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
        self._add(name, Definition(None, str, bare="true" if boolean else None, deprecated=note))

    def parse(self, argv: Sequence[str]) -> FlagValues:
        """Read the arguments (without the program's name).

        Raises FlagError naming the flag that is wrong, HelpRequested with the text to print.
        """
        return Parse(self._known, self.help_text, interspersed=self._interspersed).run(argv)

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

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all flags that still exist, ``help`` and ``version`` apart."""
        wishes = (self.show_version.name,)
        return tuple(
            name
            for name, definition in self._known.items()
            if definition.target is not None and name not in wishes
        )

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
        definition = Definition(
            cast("Flag[object]", flag), read,
            kind=kind, shown=shown, bare=bare, fold=fold, deprecated=deprecated,
        )  # fmt: skip
        self._add(flag.name, definition)
        return flag

    def _add(self, name: str, definition: Definition) -> None:
        if name in self._known:
            raise ValueError(f"flag {name} is defined twice")
        self._known[name] = definition


def _nonzero(value: float) -> str:
    return f"{value:g}" if value else ""


def _joined(former: object, latter: object) -> object:
    return (*cast("tuple[str, ...]", former), *cast("tuple[str, ...]", latter))


def _merged(former: object, latter: object) -> object:
    return {**cast("dict[str, object]", former), **cast("dict[str, object]", latter)}
