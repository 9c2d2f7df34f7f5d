"""Failures in the shape that Kubernetes clients understand: a Status object and its HTTP code.

Source: API conventions, "Response Status Kind". kubectl prints ``message``; client-go decides
by ``reason`` and ``details``.
"""

import collections.abc
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong: where, and why in words."""

    field: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}" if self.field else self.text


def required(field: str, hint: str = "") -> Cause:
    """A field that must be given is missing."""
    return Cause(
        field, "FieldValueRequired", f"Required value: {hint}" if hint else "Required value"
    )


def invalid_value(field: str, value: object, why: str) -> Cause:
    """A field has a value that its rules refuse."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {why}")


def forbidden_value(field: str, why: str) -> Cause:
    """A field may not be set, or not be changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def unsupported(field: str, value: object, known: collections.abc.Iterable[str]) -> Cause:
    """A field is not one of the values of its enumeration."""
    names = ", ".join(f'"{name}"' for name in sorted(known))
    text = f"Unsupported value: {_quoted(value)}: supported values: {names}"
    return Cause(field, "FieldValueNotSupported", text)


def duplicate(field: str, value: object) -> Cause:
    """A list that is a set holds the value twice."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return json.dumps(value, default=str)


@dataclass
class ApiError(Exception):
    """A refused request: HTTP code, reason (a CamelCase word) and message."""

    code: int
    reason: str
    message: str
    details: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})"

    def status(self) -> dict[str, Any]:
        """Return the Status object to answer with."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        body |= {"status": "Failure", "message": self.message, "reason": self.reason}
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


def _about(name: str, group: str, kind: str, **more: object) -> dict[str, Any]:
    fields = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in fields.items() if value}


def not_found(group: str, plural: str, name: str) -> ApiError:
    """No object of that name."""
    text = f'{_qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", text, _about(name, group, plural))


def no_such_path() -> ApiError:
    """No such resource type or path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """The name is taken."""
    text = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, _about(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """The object moved on, or a precondition does not hold."""
    text = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", text, _about(name, group, plural))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def invalid(group: str, kind: str, name: str, causes: collections.abc.Sequence[Cause]) -> ApiError:
    """The object breaks the rules of its kind; every broken rule is listed."""
    words = [str(cause) for cause in causes]
    text = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    listed = [{"reason": c.reason, "message": c.text, "field": c.field} for c in causes]
    qualified = f"{kind}.{group}" if group else kind
    details = _about(name, group, kind, causes=listed)
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """Admission refuses the request."""
    text = f'{_qualified(plural, group)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", text, _about(name, group, plural))


def bad_request(message: str) -> ApiError:
    """The request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> ApiError:
    """The asked-for history is gone: list again."""
    return ApiError(410, "Expired", message)


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural
