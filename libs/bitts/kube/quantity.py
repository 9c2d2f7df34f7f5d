"""Resource quantities: "10Gi", "1500m", "2e3" as exact numbers, and back.

Amounts are whole nano-units, so nothing is ever rounded by accident; where a whole number
of bytes is needed the value is rounded away from zero, as Kubernetes does ("Quantity" in
the API reference). What is finer than a nano-unit rounds away from zero too, and what is
beyond a signed 64-bit integer is held to it.
"""

import dataclasses
import enum
import functools
import re

NANO = 10**9
MAXIMUM = 2**63 - 1

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()} | {0: ""}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE]?)"
)
# No meaningful quantity is longer, and huge exponents would cost memory.
_MAX_LENGTH = 64


class QuantityError(ValueError):
    """The text is no resource quantity."""


class Format(enum.Enum):
    """How a quantity was written, which is how it is written again."""

    BINARY = "Gi"
    DECIMAL = "G"
    EXPONENT = "e9"


@functools.total_ordering
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact amount; equality and order look at the amount only, not at the format."""

    nanos: int
    format: Format = Format.DECIMAL

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nanos == other.nanos

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that loses nothing."""
        if self.nanos == 0:
            return "0"
        whole, rest = divmod(self.nanos, NANO)
        if self.format is Format.BINARY and not rest and abs(whole) >= 1024:
            return _canonical_binary(whole)
        mantissa, exponent = _canonical_decimal(self.nanos)
        if self.format is Format.EXPONENT:
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"

    def ceil(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide_away(self.nanos, NANO)


def parse(text: str) -> Quantity:
    """Read a quantity; raises QuantityError."""
    shape = _SHAPE.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if shape is None or not (shape["whole"] or shape["fraction"]):
        raise QuantityError(f"{text[:80]!r} is no quantity: write it as 1Gi, 1500M or 1.5e9")
    suffix, fraction = shape["suffix"], shape["fraction"] or ""
    digits = int((shape["whole"] or "0") + fraction)
    numerator, denominator = digits * NANO, 10 ** len(fraction)
    if suffix in _BINARY:
        numerator, form = numerator << _BINARY[suffix], Format.BINARY
    elif suffix in _DECIMAL:
        numerator, denominator = _scale(numerator, denominator, _DECIMAL[suffix])
        form = Format.DECIMAL
    else:
        numerator, denominator = _scale(numerator, denominator, int(suffix[1:]))
        form = Format.EXPONENT
    nanos = min(_divide_away(numerator, denominator), MAXIMUM * NANO)
    return Quantity(-nanos if shape["sign"] == "-" else nanos, form)


def from_bytes(count: int) -> Quantity:
    """A number of bytes, to be written with a binary suffix."""
    return Quantity(count * NANO, Format.BINARY)


def to_bytes_ceil(text: str) -> int:
    """Whole bytes, rounded up: "1500m" is 2. Raises QuantityError."""
    return parse(text).ceil()


def format_bytes_binary(count: int) -> str:
    """A byte count as Kubernetes writes capacities: 1073741824 is "1Gi", 1500 is "1500"."""
    return str(from_bytes(count))


def _scale(numerator: int, denominator: int, exponent: int) -> tuple[int, int]:
    # Beyond these bounds every amount is zero (rounded up to a nano) or the maximum.
    exponent = max(-100, min(100, exponent))
    if exponent >= 0:
        return numerator * 10**exponent, denominator
    return numerator, denominator * 10**-exponent


def _divide_away(numerator: int, denominator: int) -> int:
    magnitude = -(-abs(numerator) // denominator)
    return magnitude if numerator >= 0 else -magnitude


def _canonical_binary(whole: int) -> str:
    exponent = 0
    while exponent < 60 and whole % 1024 == 0:
        whole, exponent = whole // 1024, exponent + 10
    return f"{whole}{_BINARY_SUFFIX[exponent]}"


def _canonical_decimal(nanos: int) -> tuple[int, int]:
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos, exponent = nanos // 1000, exponent + 3
    return nanos, exponent
