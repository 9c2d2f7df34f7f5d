"""Reading a command line, once its flags are defined (see ``flags`` for the rules)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar, cast

from bitts.core import literals

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


class Definition:
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


class Parse:
    """One run over the arguments."""

    def __init__(
        self,
        known: Mapping[str, Definition],
        help_text: Callable[[], str],
        *,
        interspersed: bool,
    ) -> None:
        self._known = known
        self._help_text = help_text
        self._interspersed = interspersed
        self._given: dict[str, object] = {}
        self._warnings: dict[str, None] = {}

    def run(self, argv: Sequence[str]) -> FlagValues:
        """Read ``argv``; raises FlagError or HelpRequested."""
        rest = list(reversed(argv))
        last = ""
        while rest:
            word = rest.pop()
            if word == "--":
                break
            if len(word) < 2 or word[0] != "-":
                self._positional(word, last, rest)
                if not self._interspersed:
                    break
            else:
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

    def _attached(self, name: str) -> tuple[Definition | None, str, str, str]:
        """Read ``v5`` as pflag does: one letter with its value attached."""
        definition = self._known.get(name[0])
        if definition is None or definition.bare is not None or len(name) == 1:
            return None, name, "", ""
        return definition, name[0], "=", name[1:]

    def _take(self, name: str, definition: Definition, text: str) -> None:
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
