"""What a call looks like to those who watch calls: metrics and the call log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bitts.rpc import codes, stubs

Metric = Callable[[str, str, float], None]
"""Takes the full method name, the code as Go spells it, and the seconds that the call took."""


@dataclass(slots=True)
class Call:
    """One call, filled in as it goes. ``number`` is unique in the process."""

    number: int
    method: str
    request: stubs.Message
    reply: stubs.Message | None = None
    error: codes.RpcError | None = None
    seconds: float = 0.0

    @property
    def code(self) -> codes.Code:
        """How the call ended."""
        return codes.Code.OK if self.error is None else self.error.code


class Observer(Protocol):
    """Somebody who is told of each call. Neither method may block or raise."""

    def started(self, call: Call) -> None:
        """Note that a call goes out."""
        ...

    def ended(self, call: Call) -> None:
        """Note that a call is over; a cancelled one ends with CANCELLED."""
        ...


class MetricsObserver:
    """Passes each finished call to a metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def started(self, call: Call) -> None:
        """Do nothing: only finished calls are counted."""

    def ended(self, call: Call) -> None:
        """Count the call."""
        self._metric(call.method, call.code.go_name, call.seconds)
