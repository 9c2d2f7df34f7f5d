"""Each failure becomes the class that its caller decides by."""

import json

import pytest
from bitts.kube import errors


def status(code: int, reason: str, **details: object) -> bytes:
    body = {"kind": "Status", "message": "told", "reason": reason, "code": code, "details": details}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (405, "MethodNotAllowed", errors.ApiError),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_status_and_reason_choose_the_class(
    code: int, reason: str, expected: type[errors.ApiError]
) -> None:
    error = errors.from_response(code, status(code, reason), request="GET /x")
    assert type(error) is expected
    assert (error.status, error.reason, error.message) == (code, reason, "told")
    assert str(error) == f"GET /x: told ({code} {reason})"


def test_a_name_that_is_taken_is_a_conflict_too() -> None:
    assert isinstance(errors.from_response(409, status(409, "AlreadyExists")), errors.Conflict)


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("7", {}, 7.0),
        (None, {"retryAfterSeconds": 3}, 3.0),
        ("7", {"retryAfterSeconds": 3}, 7.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
        (None, {}, None),
    ],
    ids=["header", "details", "header first", "date", "none"],
)
def test_the_time_to_wait(
    header: str | None, details: dict[str, object], expected: float | None
) -> None:
    body = status(429, "TooManyRequests", **details)
    assert errors.from_response(429, body, retry_after=header).retry_after == expected


@pytest.mark.parametrize(
    "body", [b"<html>\n bad   gateway</html>", b"", b'{"kind":"Other"}', b"[1]"]
)
def test_an_answer_of_somebody_else_is_shown(body: bytes) -> None:
    error = errors.from_response(502, body)
    assert isinstance(error, errors.ServerError)
    assert "not a Kubernetes Status" in error.message


def test_the_http_status_wins_over_the_body() -> None:
    assert errors.from_response(503, status(200, "Odd")).status == 503
