"""Records in memory: looked up by ID and listed in the order of their making, page by page."""

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from bitts.rpc.codes import Code, RpcError

_AFTER = "after:"


class Numbered(Protocol):
    """What has a number that grows with each one made."""

    @property
    def serial(self) -> int:
        """The number."""
        ...


R = TypeVar("R", bound=Numbered)
T = TypeVar("T")


class Listing(Generic[R]):
    """Records of one kind; ``identity`` gives the ID of one.

    Two may share a number: one that nobody could read for a while may have had any.
    """

    def __init__(self, identity: Callable[[R], str]) -> None:
        self._identity = identity
        self._records: dict[str, R] = {}
        self._order: list[tuple[int, str]] = []
        self._next_serial = 1

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[R]:
        return (self._records[record_id] for _, record_id in list(self._order))

    def get(self, record_id: str) -> R | None:
        """Return a record, None without one."""
        return self._records.get(record_id)

    def add(self, record: R) -> None:
        """Take in a record, or what has changed of it."""
        record_id = self._identity(record)
        if record_id not in self._records:
            bisect.insort(self._order, (record.serial, record_id))
            self._next_serial = max(self._next_serial, record.serial + 1)
        self._records[record_id] = record

    def discard(self, record_id: str) -> R | None:
        """Forget a record and return it; an unknown one is fine."""
        record = self._records.pop(record_id, None)
        if record is not None:
            del self._order[bisect.bisect_left(self._order, (record.serial, record_id))]
        return record

    def reserve(self, serial: int) -> None:
        """Give no number up to ``serial`` from now on."""
        self._next_serial = max(self._next_serial, serial + 1)

    def take_serial(self) -> int:
        """Return a number that no record has."""
        self._next_serial += 1
        return self._next_serial - 1

    def page(
        self, after: int, limit: int, wanted: Callable[[R], bool] | None = None
    ) -> tuple[list[R], int | None]:
        """Return up to ``limit`` records (0: all) made after number ``after``.

        The second value is the number to go on after, None at the end. A record that goes
        between two pages shifts nothing, and one that comes is on a later page.
        """
        found: list[R] = []
        for serial, record_id in self._order[bisect.bisect_left(self._order, (after + 1, "")) :]:
            record = self._records[record_id]
            if wanted is not None and not wanted(record):
                continue
            if limit and len(found) >= limit and found[-1].serial != serial:
                return found, found[-1].serial
            found.append(record)
        return found, None


def position(text: str) -> int:
    """Read a token of page(): the number of the last record seen, 0 for the beginning.

    Raises RpcError ABORTED for one that this driver never gave (CSI ListVolumes Errors).
    """
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise RpcError(
            Code.ABORTED, f"starting_token: {text!r} is none of ours: start again without"
        )
    return int(text)


def page_by_id(every: Sequence[tuple[str, T]], after: str, limit: int) -> tuple[list[T], str]:
    """Return what comes after an ID, at most ``limit`` (0: all), and the ID to go on after.

    What comes and goes between two pages shifts nothing.
    """
    identity: Callable[[tuple[str, T]], str] = lambda one: one[0]  # noqa: E731
    ordered = sorted(every, key=identity)
    rest = ordered[bisect.bisect_right(ordered, after, key=identity) :]
    page = rest[:limit] if limit else rest
    following = page[-1][0] if len(page) < len(rest) else ""
    return [one for _, one in page], following


def identity_after(token: str) -> str:
    """Read a token of token_after(); raises RpcError ABORTED as position() does."""
    if token and not token.startswith(_AFTER):
        raise RpcError(
            Code.ABORTED, f"starting_token: {token!r} is none of ours: start again without"
        )
    return token.removeprefix(_AFTER)


def token_after(identity: str) -> str:
    """Return the token of a list that goes on after an ID, whatever that looks like."""
    return f"{_AFTER}{identity}" if identity else ""
