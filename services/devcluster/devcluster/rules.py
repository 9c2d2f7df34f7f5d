"""What rules are made of: small functions that tell what is wrong with an object (pure)."""

import collections.abc

from bitts.kube import quantity

from devcluster import errors
from devcluster.errors import Cause
from devcluster.resources import Object
from devcluster.tables import at

Rule = collections.abc.Callable[[Object], collections.abc.Iterable[Cause]]
Change = collections.abc.Callable[[Object, Object], collections.abc.Iterable[Cause]]

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


def amount(path: str, *, shown: str = "", is_required: bool = False) -> Rule:
    """A quantity above zero."""
    field = shown or path

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        value = at(path, None)(obj)
        if value is None:
            if is_required:
                yield errors.required(field)
            return
        if quantity.parse(str(value)).nanos <= 0:
            yield errors.invalid_value(field, value, "must be greater than zero")

    return rule


def longest(path: str, limit: int) -> Rule:
    """A text of at most so many bytes."""

    def rule(obj: Object) -> collections.abc.Iterator[Cause]:
        if len(str(at(path)(obj)).encode()) > limit:
            text = f"Too long: may not be more than {limit} bytes"
            yield Cause(path, "FieldValueTooLong", text)

    return rule


def fixed(*paths: str) -> Change:
    """Fields that never change."""

    def change(old: Object, new: Object) -> collections.abc.Iterator[Cause]:
        for path in paths:
            cell = at(path, None)
            if cell(old) != cell(new):
                yield errors.invalid_value(path, cell(new), IMMUTABLE)

    return change
