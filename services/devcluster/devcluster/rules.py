"""What rules are made of: small functions that tell what is wrong with an object (pure)."""

import collections.abc

from bitts.kube import quantity

from devcluster import errors, metadata
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.tables import at

Rule = collections.abc.Callable[[Object], collections.abc.Iterable[Cause]]
Change = collections.abc.Callable[[Object, Object], collections.abc.Iterable[Cause]]

_DRIVER_NAME = 63
_PARAMETERS, _PARAMETER_BYTES = 512, 256 << 10
IMMUTABLE = "field is immutable"


def needs(*paths: str) -> Rule:
    """Fields that must be given and not be empty."""
    return lambda obj: (errors.required(path) for path in paths if at(path)(obj) in ("", [], {}))


def one_of(path: str, *known: str) -> Rule:
    """A field, where given, is one of the known words."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = at(path, None)(obj)
        if value is not None and value not in known:
            yield errors.unsupported(path, value, known)

    return rule


def subdomain(path: str, *, limit: int = 253) -> Rule:
    """The name of an object or a driver, where one is given."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = str(at(path)(obj))
        if len(value) > limit:
            yield _too_long(path, limit)
        elif value and not metadata.is_subdomain(value):
            yield errors.invalid_value(path, value, metadata.SUBDOMAIN_RULE)

    return rule


def driver_name(path: str) -> Rule:
    """A CSI driver's name: a subdomain, in whatever case, of 63 characters."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = str(at(path)(obj))
        if len(value) > _DRIVER_NAME:
            yield _too_long(path, _DRIVER_NAME)
        elif value and not metadata.is_subdomain(value.lower()):
            yield errors.invalid_value(path, value, metadata.SUBDOMAIN_RULE)

    return rule


def parameters(path: str) -> Rule:
    """What a class tells its driver: 512 keys and 256 KiB at most, none of them empty."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        given = at(path, None)(obj) or {}
        if len(given) > _PARAMETERS:
            yield _too_long(path, _PARAMETERS)
            return
        if "" in given:
            yield errors.invalid_value(path, "", "field can not be empty.")
        size = sum(len(key.encode()) + len(str(value).encode()) for key, value in given.items())
        if size > _PARAMETER_BYTES:
            yield _too_long(path, _PARAMETER_BYTES)

    return rule


def _too_long(path: str, limit: int) -> Cause:
    return Cause(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def amount(
    path: str, *, shown: str = "", is_required: bool = False, may_be_zero: bool = False
) -> Rule:
    """A quantity above zero, or not below it."""
    field = shown or path

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = at(path, None)(obj)
        if value is None:
            if is_required:
                yield errors.required(field)
            return
        nanos = quantity.parse(str(value)).nanos
        if nanos < 0 and may_be_zero:
            yield errors.invalid_value(field, value, "must be greater than or equal to 0")
        elif nanos <= 0 and not may_be_zero:
            yield errors.invalid_value(field, value, "must be greater than zero")

    return rule


def longest(path: str, limit: int) -> Rule:
    """A text of at most so many bytes."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        if len(str(at(path)(obj)).encode()) > limit:
            yield _too_long(path, limit)

    return rule


def fixed(*paths: str) -> Change:
    """Fields that never change."""

    def change(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
        for path in paths:
            cell = at(path, None)
            if cell(old) != cell(new):
                yield errors.invalid_value(path, cell(new), IMMUTABLE)

    return change
