"""JSON as Go's programs read it: the habits that configurations in the field rely on.

- keys match case-insensitively (``"ISGATEWAY": true`` works; containerd writes ``HostPort``),
  and of several spellings in one object the one that comes last wins;
- ``null`` leaves the default, unknown keys are ignored, a wrong type is an error;
- a number with a fraction or an exponent is no integer, a text is never a number.

``Fields`` gives that view of one object; ``parse`` and ``render`` are the two ends.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

T = TypeVar("T")

INDENT = 4
"""Spaces: how plugins print what people may read."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring
_KINDS = {
    type(None): "null", bool: "bool", int: "number", float: "number",
    str: "string", list: "array", dict: "object",
}  # fmt: skip
_FOLDED_KEYS = 2048  # configurations use the same few names again and again
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"})  # long s and the Kelvin sign, as Go folds


class DocumentError(ValueError):
    """The text is no JSON, or a value has the wrong type; the message names the field."""


def parse(text: bytes | str) -> object:
    """Return the decoded document. Raises DocumentError, also for absurd depth or numbers."""
    try:
        source = text if isinstance(text, str) else text.decode(errors="replace")
        return json.loads(source, object_pairs_hook=_last_wins, parse_constant=_refuse)
    except RecursionError:
        raise DocumentError("exceeded max depth") from None
    except ValueError as error:
        raise DocumentError(str(error)) from None


def render(document: object, *, compact: bool = False) -> str:
    """Return the text of a document as plugins print it: indented, without a newline."""
    return _compact(document) if compact else _indented(document, "\n")


def _indented(value: object, margin: str) -> str:
    """Render as ``json`` does with an indent, for which it leaves its fast half unused."""
    if isinstance(value, str):
        return _quoted(value)
    inner = margin + " " * INDENT
    if isinstance(value, dict) and value:
        pairs = [f"{_quoted(key)}: {_indented(each, inner)}" for key, each in value.items()]
        return f"{{{inner}{f',{inner}'.join(pairs)}{margin}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{inner}{f',{inner}'.join(_indented(each, inner) for each in value)}{margin}]"
    return _compact(value)


def kind(value: object) -> str:
    """Return Go's word for the JSON type of a decoded value."""
    return _KINDS.get(type(value), type(value).__name__)


def as_object(value: object, name: str) -> Mapping[str, object]:
    """Return ``value`` as an object; raises DocumentError naming the field."""
    if not isinstance(value, dict):
        raise DocumentError(f"{name}: cannot unmarshal {kind(value)} into an object")
    return value


class OutOfRangeError(DocumentError):
    """A value has the right type, and is none that can be used; the message names the field."""


SIZES = 1 << 31
"""Above every size in bytes (an MTU) or length that the kernel takes: its ints have 32 bits."""

NUMBERS = 1 << 32
"""Above everything that goes to the kernel in 32 bits: tables, priorities."""


class Fields:
    """One JSON object read by field names, of any spelling.

    ``path`` names the object in errors. Every reader takes a default for a missing field and
    raises DocumentError for a value of the wrong type.
    """

    __slots__ = ("_folded", "_nested", "_path")

    def __init__(self, document: object, path: str = "") -> None:
        self._path = path
        self._nested: dict[str, Fields] = {}
        source = {} if document is None else as_object(document, path or "document")
        self._folded = {fold(key): (key, value) for key, value in source.items()}

    def __contains__(self, name: str) -> bool:
        """Say whether the field is present, be it null."""
        return fold(name) in self._folded

    def raw(self, name: str) -> object:
        """Return the value of a field as decoded; None where it is missing or null."""
        found = self._folded.get(fold(name))
        return None if found is None else found[1]

    def text(self, name: str, default: str = "") -> str:
        """Read a string."""
        value = self.raw(name)
        return default if value is None else self._typed(name, value, str, "string")

    def path(self, name: str, default: str = "") -> str:
        """Read what names a file or a link: no zero byte can be in it."""
        value = self.text(name, default)
        if "\0" in value:
            raise OutOfRangeError(f"{self._at(name)}: {value!r} has a zero byte in it")
        return value

    def boolean(self, name: str, *, default: bool = False) -> bool:
        """Read true or false."""
        value = self.raw(name)
        return default if value is None else self._typed(name, value, bool, "bool")

    def integer(
        self, name: str, default: int = 0, *, low: int = -(2**63), high: int = 2**63
    ) -> int:
        """Read an integer of ``low`` ≤ value < ``high``; other numbers are an error."""
        value = self.optional_integer(name, low=low, high=high)
        return default if value is None else value

    def optional_integer(self, name: str, *, low: int = -(2**63), high: int = 2**63) -> int | None:
        """Read an integer that differs from its absence.

        One that is none for Go either is a DocumentError, one beyond the limits OutOfRangeError.
        """
        value = self.raw(name)
        if value is None:
            return None
        if type(value) is int and not low <= value < high and -(2**63) <= value < 2**63:
            what = f"{value} is not between {low} and {high - 1}"
            raise OutOfRangeError(f"{self._at(name)}: {what}")
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
            shown = f"number {value}" if kind(value) == "number" else kind(value)
            raise DocumentError(f"{self._at(name)}: cannot unmarshal {shown} into an integer")
        return value

    def items(self, name: str) -> Sequence[object]:
        """Read an array; none is empty."""
        value = self.raw(name)
        none: list[object] = []
        return none if value is None else self._typed(name, value, list, "array")

    def texts(self, name: str) -> tuple[str, ...]:
        """Read an array of strings."""
        return tuple(
            "" if item is None else self._typed(f"{name}[{index}]", item, str, "string")
            for index, item in enumerate(self.items(name))
        )

    def nested(self, name: str) -> "Fields":
        """Read an object; a missing one has no fields."""
        found = self._nested.get(name)
        if found is None:
            found = self._nested[name] = Fields(self.raw(name), self._at(name))
        return found

    def objects(self, name: str) -> tuple["Fields", ...]:
        """Read an array of objects."""
        return tuple(
            Fields(item, f"{self._at(name)}[{index}]")
            for index, item in enumerate(self.items(name))
        )

    def mapping(self, name: str) -> Mapping[str, object]:
        """Read an object whose keys are data, so that their spelling counts."""
        value = self.raw(name)
        return {} if value is None else as_object(value, self._at(name))

    def converted(self, name: str, convert: Callable[[str], T], default: T) -> T:
        """Read a string through ``convert``, whose ValueError becomes a DocumentError."""
        text = self.text(name)
        if not text:
            return default
        try:
            return convert(text)
        except ValueError as error:
            raise DocumentError(f"{self._at(name)}: {error}") from None

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _typed(self, name: str, value: object, wanted: type[T], word: str) -> T:
        if not isinstance(value, wanted):
            raise DocumentError(f"{self._at(name)}: cannot unmarshal {kind(value)} into a {word}")
        return value


@functools.lru_cache(_FOLDED_KEYS)
def fold(key: str) -> str:
    """Return a key as Go compares it."""
    return key.translate(_FOLDED).lower()


def _last_wins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) == len(pairs):
        return document
    document = {}
    for key, value in pairs:
        document.pop(key, None)  # a repeated key moves to the end: the last spelling must win
        document[key] = value
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"invalid character in literal {constant}")
