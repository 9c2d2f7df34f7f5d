"""The flags that every sidecar has in common, and the frozen options they end up as."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How to log: ``text`` or ``json``, and up to which verbosity, overall and per file."""

    format: str = "text"
    verbosity: int = 0
    vmodule: str = ""
