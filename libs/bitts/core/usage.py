"""The text that ``--help`` prints: one flag a row, wrapped to the terminal."""

import os
from collections.abc import Sequence
from typing import NamedTuple

_INDENT = 8


class Row(NamedTuple):
    """What is said about one flag."""

    name: str
    kind: str
    help: str
    default: str
    deprecated: str


def render(program: str, summary: str, rows: Sequence[Row]) -> str:
    """Return the whole text, ending in a newline."""
    width = _width()
    lines = [f"Usage: {program} [flags]"]
    if summary:
        lines += ["", *_wrapped(summary, width, "")]
    lines += ["", "Flags (one dash or two, --name=value or --name value):"]
    for row in rows:
        lines.append(f"  --{row.name} {row.kind}".rstrip())
        lines += _wrapped(_described(row), width, " " * _INDENT)
    return "\n".join(lines) + "\n"


def _described(row: Row) -> str:
    text = row.help
    if row.default:
        text += f" (default {row.default})"
    if row.deprecated:
        text += f" (deprecated: {row.deprecated})"
    return text.strip()


def _width() -> int:
    try:
        return min(100, os.get_terminal_size(2).columns)
    except OSError:
        return 100


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line] if line else lines
