"""Request counters of a full Kubernetes, read from its audit log.

The embedded cluster counts requests itself (``/-/requests``). Kubernetes writes a line for each
request that changes something, and one at the start (and the end) of a watch of claims, volumes,
storage classes and attachments. There are no other reads in this view.
"""

import collections
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requests:
    """One line of the API server's request counters."""

    user_agent: str
    verb: str
    resource: str
    subresource: str
    code: int
    count: int


class AuditLog:
    """The audit log from a moment on; ``clear`` sets that moment. Blocking."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._start = 0

    def clear(self) -> None:
        """Forget what was written so far."""
        self._start = self._path.stat().st_size

    def events(self) -> Iterator[dict[str, Any]]:
        """Return every finished request since ``clear``."""
        with self._path.open("rb") as handle:
            handle.seek(self._start)
            for line in handle:
                if line.endswith(b"\n"):  # the last one may still be being written
                    yield json.loads(line)

    def has(self, name: str) -> bool:
        """Whether a request on an object of this name was logged."""
        return any(event.get("objectRef", {}).get("name") == name for event in self.events())

    def counters(self) -> list[Requests]:
        """Return how often who asked for what with which outcome; a watch counts at its start."""
        told = (event for event in self.events() if (event["verb"] == "watch") == _begins(event))
        counts = collections.Counter(map(_key, told))
        return [Requests(*key, count) for key, count in sorted(counts.items())]


def _begins(event: dict[str, Any]) -> bool:
    return bool(event["stage"] == "ResponseStarted")


def program(user_agent: str) -> str:
    """Return who a user agent is: the program, and its service account where it says one. Pure.

    kube-controller-manager asks under an account for each of its controllers.
    """
    name = user_agent.partition("/")[0]
    _, _, account = user_agent.rpartition("system:serviceaccount:kube-system:")
    return f"{name} ({account})" if account != user_agent else name


def _key(event: dict[str, Any]) -> tuple[str, str, str, str, int]:
    reference = event.get("objectRef", {})
    group = reference.get("apiGroup", "")
    resource = reference.get("resource", "")
    return (
        event.get("userAgent", ""),
        event["verb"],
        f"{resource}.{group}" if group else resource,
        reference.get("subresource", ""),
        event.get("responseStatus", {}).get("code", 0),
    )
