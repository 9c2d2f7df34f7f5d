# ruff: noqa: N818 - the classes are spelled as the API's own reasons
"""What can go wrong with a request, one class per decision that a caller takes.

ApiError                 the server answered, and not with success
├── BadRequest           400  the request makes no sense to the server
├── Unauthorized         401  credentials missing, wrong or expired
├── Forbidden            403  RBAC or admission refused it
├── NotFound             404  no such object (or no such resource type)
├── Conflict             409  the object changed since it was read: read again, try again
│   └── AlreadyExists    409  create: the name is taken
├── Gone                 410  the resourceVersion or continue token is too old: list again
├── Invalid              422  the object (or a JSON patch's guard) was refused
├── Throttled            429  the server asks to slow down
├── ServerError          5xx, or an answer that is no Kubernetes answer at all
└── TransportError       no answer
    ├── Unreachable      the request was never sent: surely not executed
    └── AnswerLost       it may have been executed: look before repeating a write

Reasons and codes: Kubernetes API conventions, "Response Status Kind".
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class ConfigError(Exception):
    """The configuration cannot be used; the text names file, context, field and remedy."""


class ApiError(Exception):
    """A request failed; ``status`` is the HTTP status, 0 when there was no answer."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
        request: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after
        self.request = request

    def __str__(self) -> str:
        where = f"{self.request}: " if self.request else ""
        kind = f" ({self.status} {self.reason})" if self.status else ""
        return f"{where}{self.message}{kind}"


class BadRequest(ApiError):
    """400: the server could not make sense of the request."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin refused the request."""


class NotFound(ApiError):
    """404: there is no such object, or no such resource type."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition does not hold."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class Gone(ApiError):
    """410: a resourceVersion or continue token is older than the server remembers."""


class Invalid(ApiError):
    """422: validation refused the object, or a JSON patch did not apply."""


class Throttled(ApiError):
    """429: too many requests; ``retry_after`` seconds if the server said."""


class ServerError(ApiError):
    """5xx, or an answer that does not come from a Kubernetes API server."""


class TransportError(ApiError):
    """No answer was received."""


class Unreachable(TransportError):
    """The connection could not be made: the request was not executed."""


class AnswerLost(TransportError):
    """The connection or the time limit ended first: the request may have been executed."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """meta/v1 Status, the body of every failed request."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}
_decoder = msgspec.json.Decoder(Status)


def from_status(status: Status, *, retry_after: float | None = None, request: str = "") -> ApiError:
    """The exception for a Status object, as found in a response or in a watch's ERROR event."""
    kind = _BY_STATUS.get(status.code, ServerError if status.code >= 500 else ApiError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    details = status.details or {}
    if retry_after is None and isinstance(details.get("retryAfterSeconds"), int | float):
        retry_after = float(details["retryAfterSeconds"])
    return kind(
        status.message or "the API server gave no message",
        status=status.code,
        reason=status.reason,
        details=details,
        retry_after=retry_after,
        request=request,
    )


def from_response(
    code: int, body: bytes, *, retry_after: str | None = None, request: str = ""
) -> ApiError:
    """The exception for a failed HTTP response, whether or not a Status is in its body."""
    seconds = _seconds(retry_after)
    try:
        status = _decoder.decode(body)
    except msgspec.DecodeError:
        status = Status()
    if status.kind == "Status":
        status = msgspec.structs.replace(status, code=code)
        return from_status(status, retry_after=seconds, request=request)
    excerpt = " ".join(body[:200].decode("utf-8", "replace").split())
    text = f"the answer is not a Kubernetes Status: {excerpt!r}"
    return from_status(Status(message=text, code=code), retry_after=seconds, request=request)


def _seconds(header: str | None) -> float | None:
    # Kubernetes sends whole seconds only; a proxy's HTTP date is treated as absent.
    return float(header) if header is not None and header.strip().isdigit() else None
