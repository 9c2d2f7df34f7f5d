"""What a program that ended said about it: the lines of its log that explain. Pure."""

import json
import re
from collections.abc import Sequence

LINES = 8
"""How many lines are worth showing."""

_KLOG_TROUBLE = re.compile(r"^[EF]\d{4} ")
_TROUBLE = re.compile(r"\b(?:error|fatal|panic|failed|cannot|denied|in use)\b", re.IGNORECASE)
_KLOG_HEAD = re.compile(r"^[IWEF]\d{4} \S+\s+\d+ (\S+)\] ")


def explain(log: str) -> str:
    """Return the last lines that tell of trouble, or the last ones at all where none does.

    Knows klog's letters, zap's JSON (etcd) and containerd's logfmt.
    """
    lines = [line for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _is_trouble(line)] or lines
    return "\n".join(_shorten(line) for line in _distinct(telling)[-LINES:]) or "(it said nothing)"


def _is_trouble(line: str) -> bool:
    if line.startswith("{"):
        return _field(line, "level") in {"error", "fatal", "panic", "dpanic"}
    return bool(_KLOG_TROUBLE.match(line)) or (
        not _KLOG_HEAD.match(line) and bool(_TROUBLE.search(line))
    )


def _shorten(line: str) -> str:
    if line.startswith("{"):
        return " ".join(filter(None, (_field(line, "msg"), _field(line, "error"))))[:400]
    return _KLOG_HEAD.sub(r"\1: ", line)[:400]


def _field(line: str, name: str) -> str:
    try:
        found = json.loads(line).get(name, "")
    except (ValueError, AttributeError):
        return ""
    return str(found)


def _distinct(lines: Sequence[str]) -> list[str]:
    """Drop repetitions: a program that retries says the same again and again."""
    seen: dict[str, str] = {}
    for line in lines:
        text = _shorten(line)
        seen.pop(text, None)
        seen[text] = line
    return list(seen.values())
