"""A TOML file that says what flags would: one key for each, under the flag's own name.

``--config FILE`` names it; whatever the command line says wins. The file is turned into flags
that stand before those of the command line, so there is one reader of values, and a number, a
duration or a list means the same in both places.
"""

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from bitts.core import literals
from bitts.core.flags import Flag, FlagError, FlagSet, FlagValues

T = TypeVar("T")

FLAG = "config"
_SIZE_LIMIT = 1 << 20


def flag(flags: FlagSet) -> Flag[str]:
    """Define ``--config``."""
    return flags.string(
        FLAG, "", "TOML file with a key for each flag, as in: v = 2; flags given here win"
    )


def resolve(
    flags: FlagSet, wanted: Flag[str], argv: Sequence[str], build: Callable[[FlagValues], T]
) -> T:
    """As ``FlagSet.resolve``, with the file that the command line names, if it names one."""

    def combined(values: FlagValues) -> T:
        if not values[wanted]:
            return build(values)
        return build(flags.parse([*arguments(flags, values[wanted]), *argv]))

    return flags.resolve(argv, combined)


def arguments(flags: FlagSet, path: str) -> list[str]:
    """Return the flags that a file stands for. Raises FlagError naming the file and the key."""
    import tomllib  # for those alone who have such a file

    try:
        if os.stat(path).st_size > _SIZE_LIMIT:
            raise FlagError(f"--{FLAG} {path}: larger than {_SIZE_LIMIT} bytes", 1)
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise FlagError(f"--{FLAG} {path}: {error}", 1) from None
    found: list[str] = []
    for name, value in document.items():
        try:
            words = _words(name, value, flags.names)
            flags.parse(words)
        except FlagError as error:
            raise FlagError(f"--{FLAG} {path}: {error}", 1) from None
        found += words
    return found


def _words(name: str, value: object, known: Sequence[str]) -> list[str]:
    names = [each for each in known if each != FLAG]
    if name not in names:
        nearest = literals.nearest(name, names)
        hint = f", did you mean {nearest!r}?" if nearest else "; keys are the names of flags"
        raise FlagError(f"unknown field {name!r}{hint}")
    values = value if isinstance(value, list) else [value]
    return [f"--{name}={_text(name, each)}" for each in values]


def _text(name: str, value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
    raise FlagError(f"field {name!r} must be a text, a number, true or false")
