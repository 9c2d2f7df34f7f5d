"""Faults that tests order, and counters of what was asked.

A fault matches requests by verb, resource and user agent (each optional; the user agent by
substring) and is used up after ``times`` requests; without ``times`` it stays until cleared.
"""

import collections
from dataclasses import dataclass

from devcluster import errors
from devcluster.resources import Object

ACTIONS = ("status", "delay", "drop", "drop_after")


@dataclass(frozen=True, slots=True)
class Request:
    """What faults and counters know of a request."""

    user_agent: str
    verb: str
    resource: str
    subresource: str

    @property
    def target(self) -> str:
        """Return resource/subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(slots=True)
class Fault:
    """One ordered fault; delay and retry_after in seconds."""

    verb: str = ""
    resource: str = ""
    user_agent: str = ""
    action: str = "status"
    code: int = 500
    retry_after: int = 0
    delay: float = 0.0
    times: int | None = None

    def matches(self, request: Request) -> bool:
        """Whether the fault strikes this request."""
        return (
            self.times != 0
            and self.verb in ("", request.verb)
            and self.resource in ("", request.resource, request.target)
            and self.user_agent in request.user_agent
        )

    def error(self) -> errors.ApiError:
        """Return the refusal that a ``status`` fault answers with."""
        reason = _REASONS.get(self.code, "InternalError")
        details = {"retryAfterSeconds": self.retry_after} if self.retry_after else None
        return errors.ApiError(self.code, reason, "an injected fault", details)


_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def parse(body: Object) -> Fault:
    """Read a fault as the admin endpoint takes it; raises ApiError 400 naming the field."""
    match = body.get("match") or {}
    unknown = set(match) - {"verb", "resource", "userAgent"}
    unknown |= set(body) - {"match", "action", "code", "retryAfter", "delay", "times"}
    if unknown:
        raise errors.bad_request(f"unknown fields of a fault: {', '.join(sorted(unknown))}")
    if body.get("action") not in ACTIONS:
        raise errors.bad_request(f"action must be one of {', '.join(ACTIONS)}")
    try:
        return Fault(
            verb=match.get("verb", ""),
            resource=match.get("resource", ""),
            user_agent=match.get("userAgent", ""),
            action=body["action"],
            code=int(body.get("code", 500)),
            retry_after=int(body.get("retryAfter", 0)),
            delay=float(body.get("delay", 0.0)),
            times=None if body.get("times") is None else int(body["times"]),
        )
    except (TypeError, ValueError) as error:
        raise errors.bad_request(
            f"code, retryAfter, delay and times are numbers: {error}"
        ) from error


class Faults:
    """The faults now in force, first ordered first."""

    def __init__(self) -> None:
        self._ordered: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Put a fault in force."""
        self._ordered.append(fault)

    def clear(self) -> None:
        """Take back every fault."""
        self._ordered.clear()

    def take(self, request: Request) -> Fault | None:
        """Return the fault for this request, counting it as used."""
        if not self._ordered:
            return None
        for fault in self._ordered:
            if fault.matches(request):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None


class Counters:
    """How often each client asked for what, and the answers it got."""

    def __init__(self) -> None:
        self._counts: collections.Counter[tuple[Request, int]] = collections.Counter()

    def count(self, request: Request, code: int) -> None:
        """Count an answered request; code 0 is one whose connection was dropped."""
        self._counts[request, code] += 1

    def clear(self) -> None:
        """Start again at zero."""
        self._counts.clear()

    def listing(self) -> list[Object]:
        """Return the counts as the admin endpoint shows them."""
        return [
            {
                "userAgent": request.user_agent,
                "verb": request.verb,
                "resource": request.resource,
                "subresource": request.subresource,
                "code": code,
                "count": count,
            }
            for (request, code), count in self._counts.items()
        ]
