"""The intent journal: what is about to be asked of the driver, written down before it is asked.

Without it a process that dies between CreateVolume and storing the PersistentVolume, with its
claim deleted meanwhile, leaves a volume that nobody knows of. An entry is a whole draft, so
the next process can finish the work though claim and class are gone.

Commits are shared: the first note goes out at once, all that come while it is written go with
the next commit, and commits are an interval apart. So one claim costs one quick write, and a
burst of a thousand only a few. Entries that are done leave with the next commit, or after a
quiet while.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from bitts.core import logs
from bitts.kube.errors import ApiError

from csi_provisioner.model import Draft

QUIET = 3.0
"""Seconds without notes after which entries that are done are removed."""

FAULTS = (ApiError, OSError)
"""What a store raises when it cannot be read or written just now."""

_SICK_PAUSE = 30.0  # seconds between attempts while the store cannot be used

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Draft])
_log = logs.get("intents")


class StoreUnusableError(Exception):
    """The store cannot be used until someone changes something; the text says what."""


class Store(Protocol):
    """Where the entries are kept.

    ``interval`` is the least time between commits, in seconds; ``limit`` the most bytes.
    """

    interval: float
    limit: int

    async def read(self) -> bytes:
        """What was written last, empty if nothing. Raises StoreUnusableError and FAULTS."""
        ...

    async def write(self, data: bytes) -> None:
        """Replace everything, durably. Raises StoreUnusableError and FAULTS."""
        ...


def encode(draft: Draft) -> bytes:
    """One entry as the stores keep it, in a JSON list of them."""
    return _encoder.encode(draft)


def decode(data: bytes) -> list[Draft]:
    """The entries of an earlier process. Raises ValueError."""
    try:
        return _decoder.decode(data) if data else []
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"no list of intents: {error}") from error


@dataclass(slots=True)
class _Entry:
    text: bytes
    is_durable: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


@dataclass(slots=True)
class Figures:
    """What the journal did. ``unprotected`` counts calls made without a durable note."""

    commits: int = 0
    failures: int = 0
    unprotected: int = 0


class Journal:
    """The entries of this process and the task that commits them."""

    def __init__(self, store: Store, *, quiet: float = QUIET) -> None:
        self.figures = Figures()
        self._store = store
        self._quiet = quiet
        self._entries: dict[str, _Entry] = {}
        self._is_stale = False  # the store holds entries that are done
        self._called = asyncio.Event()
        self._writing = asyncio.Lock()
        self._committed_at = float("-inf")
        self._sick_until = float("-inf")

    @property
    def depth(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    async def open(self) -> list[Draft]:
        """Take over the entries of an earlier process; the journal keeps them until cleared.

        Raises FAULTS if they cannot be read now.
        """
        try:
            data = await self._store.read()
            drafts = decode(data)
        except StoreUnusableError as error:
            self._fall_sick(error)
            return []
        except ValueError as error:
            _log.error("Entries of an earlier process cannot be read and are lost", err=error)
            return []
        for draft in drafts:
            self._entries[draft.claim.uid] = _Entry(encode(draft), is_durable=True)
        return drafts

    async def note(self, draft: Draft) -> None:
        """Return once the draft is durable. Raises FAULTS if it cannot be now."""
        text = encode(draft)
        entry = self._entries.get(draft.claim.uid)
        if entry is None or entry.text != text:
            entry = self._entries[draft.claim.uid] = _Entry(text)
        if entry.is_durable:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._sick_until:
            self.figures.unprotected += 1
            return
        committed: asyncio.Future[None] = loop.create_future()
        entry.waiting.append(committed)
        self._called.set()
        await committed

    def clear(self, uid: str) -> None:
        """The claim's volume is stored, or surely does not exist."""
        if self._entries.pop(uid, None) is not None:
            self._is_stale = True
            self._called.set()

    async def run(self) -> None:
        """Commit what is noted, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._called.wait()
            self._called.clear()
            if not self._is_waited_for() and await self._more_comes():
                continue
            due = max(self._committed_at + self._store.interval, self._sick_until)
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._commit()

    async def close(self) -> None:
        """Commit once more, so that the next process finds no more than is open."""
        if self._is_stale:
            await self._commit()

    def _is_waited_for(self) -> bool:
        return any(entry.waiting for entry in self._entries.values())

    async def _more_comes(self) -> bool:
        """Whether anything happens in the quiet time."""
        try:
            async with asyncio.timeout(self._quiet):
                await self._called.wait()
        except TimeoutError:
            return False
        return True

    async def _commit(self) -> None:
        async with self._writing:
            entries, left_out = self._fitting()
            if left_out:
                _log.warning("The intent journal is full", entries=len(entries), more=len(left_out))
                self.figures.unprotected += _release(left_out)
            self._is_stale = False
            try:
                await self._store.write(b"[" + b",".join(entry.text for entry in entries) + b"]")
            except StoreUnusableError as error:
                self._is_stale = True
                self._fall_sick(error)
                self.figures.unprotected += _release(entries)
            except FAULTS as error:
                self._is_stale = True
                self.figures.failures += 1
                _log.warning("Writing the intent journal failed", err=error)
                _release(entries, error)
            else:
                self._succeed(entries)
            self._committed_at = asyncio.get_running_loop().time()
            if self._is_stale:
                self._called.set()

    def _fitting(self) -> tuple[list[_Entry], list[_Entry]]:
        """The entries that the store has room for, the oldest first, and those beyond."""
        entries, size = list(self._entries.values()), 2
        for index, entry in enumerate(entries):
            size += len(entry.text) + 1
            if size > self._store.limit:
                return entries[:index], entries[index:]
        return entries, []

    def _succeed(self, entries: list[_Entry]) -> None:
        self.figures.commits += 1
        for entry in entries:
            entry.is_durable = True
        _release(entries)
        if self._sick_until > float("-inf"):
            self._sick_until = float("-inf")
            _log.info("The intent journal works again")

    def _fall_sick(self, error: StoreUnusableError) -> None:
        if self._sick_until == float("-inf"):
            text = "Provisioning goes on, but a crash of this process may leak a volume"
            _log.error(text, err=error)
        self._sick_until = asyncio.get_running_loop().time() + _SICK_PAUSE


def _release(entries: list[_Entry], error: Exception | None = None) -> int:
    """Let those that wait for the entries go on, or fail; return how many they were."""
    waiting = [future for entry in entries for future in entry.waiting if not future.done()]
    for entry in entries:
        entry.waiting.clear()
    for future in waiting:
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    return len(waiting)
