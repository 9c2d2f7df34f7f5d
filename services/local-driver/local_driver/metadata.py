"""Records on disk: one JSON file each, replaced as a whole, many to one flush.

Order is everything here. New content is made first and its file appears last, by a
rename; it goes by its file first and itself afterwards. So whenever the process
dies, a file says that its content is whole, and content without a file is rubbish.

Flushing to disk costs more than all else, so changes that arrive while a flush is under way
are written together by the next: one thread, one batch after the other, the folder flushed
once a batch. A change is answered when it is on the disk and not before.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import errno
import os
import pathlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bitts.rpc.codes import Code, RpcError

from local_driver import documents, filesystems, steps

R = TypeVar("R")

BATCH = 128
"""Changes in one flush, so that the first of them does not wait for ever."""

WAITING = 4096
"""Changes that may wait; more are refused, and their clients try again."""

_SUFFIX = ".json"
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[R]):
    """What was found at start: records, and per unreadable file its ID and what is wrong.

    ``reserved`` is the greatest number that one of those seems to have, which no other may get.
    """

    records: tuple[R, ...]
    damaged: dict[str, str]
    reserved: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """``prepare`` runs first, in the writer's thread; ``document`` None removes the file.

    All is done in the ``context`` of the call that asked for it: steps belong to that.
    """

    record_id: str
    document: bytes | None
    is_new: bool
    prepare: Callable[[], None]
    parents: tuple[pathlib.Path, ...]
    done: "asyncio.Future[None]"
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


class Store(Generic[R]):
    """The files of one folder, of one kind of record. One process at a time may use it."""

    def __init__(
        self,
        folder: pathlib.Path,
        codec: documents.Codec[R],
        reached: steps.Reached = steps.unobserved,
    ) -> None:
        self._folder = folder
        self._codec = codec
        self._reached = reached
        self._waiting: deque[_Change] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "metadata")

    def load(self) -> Loaded[R]:
        """Read every file and clear away half-written ones. Blocks."""
        records, damaged, reserved = [], {}, 0
        for path in sorted(self._folder.iterdir()):
            if path.suffix == _PARTIAL:
                with contextlib.suppress(OSError):  # of no consequence, but for its room
                    path.unlink()
            elif path.suffix == _SUFFIX:
                text = b""
                try:
                    text = path.read_bytes()
                    record = self._codec.decode(text)
                    described = self._codec.identity(record)
                    if described != path.stem:
                        raise documents.DocumentError(f"describes {described}")
                    records.append(record)
                except (documents.DocumentError, OSError) as error:
                    damaged[path.stem] = f"{path}: {error}"
                    reserved = max(reserved, documents.salvaged_serial(text))
        return Loaded(tuple(records), damaged, reserved)

    async def create(
        self, record: R, prepare: Callable[[], None], parents: Sequence[pathlib.Path]
    ) -> None:
        """Write a new record; it is on the disk when this returns.

        ``prepare`` makes its content, in a thread and before anything is written; ``parents``
        are the folders whose entries it changed. Raises what ``prepare`` raises, OSError, or
        RpcError UNAVAILABLE when too much is waiting.
        """
        record_id, document = self._codec.identity(record), self._codec.encode(record)
        await self._change(record_id, document, prepare, tuple(parents), is_new=True)

    async def replace(self, record: R) -> None:
        """Write what has changed of a record; raises as create() does."""
        await self._change(self._codec.identity(record), self._codec.encode(record), nothing, ())

    async def remove(self, record_id: str, prepare: Callable[[], None]) -> None:
        """Forget a record; for good when this returns.

        ``prepare`` may refuse by raising. A missing file is fine. Raises as create() does.
        """
        await self._change(record_id, None, prepare, ())

    async def close(self) -> None:
        """Write what waits and end the thread."""
        if self._writer is not None:
            await self._writer
        await asyncio.to_thread(self._thread.shutdown)

    async def _change(
        self,
        record_id: str,
        document: bytes | None,
        prepare: Callable[[], None],
        parents: tuple[pathlib.Path, ...],
        *,
        is_new: bool = False,
    ) -> None:
        if len(self._waiting) >= WAITING:
            raise RpcError(Code.UNAVAILABLE, "too many changes wait for the disk: try again later")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Change(record_id, document, is_new, prepare, parents, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_batches(), name="metadata writer")
        await done

    async def _write_batches(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                count = min(BATCH, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(count)]
                outcomes = await loop.run_in_executor(self._thread, self._write, batch)
                for change, error in zip(batch, outcomes, strict=True):
                    if change.done.done():
                        continue  # nobody waits for it any more
                    if error is None:
                        change.done.set_result(None)
                    else:
                        change.done.set_exception(error)
        finally:
            self._writer = None

    def _write(self, batch: Sequence[_Change]) -> list[Exception | None]:
        """Carry out a batch; each change fails or succeeds by itself."""
        outcomes: dict[_Change, Exception | None] = dict.fromkeys(batch)

        def surviving() -> list[_Change]:
            return [change for change in batch if outcomes[change] is None]

        def attempt(work: Callable[[_Change], None]) -> None:
            for change in surviving():
                try:
                    change.context.run(work, change)
                except Exception as error:  # noqa: BLE001 - handed to whoever asked for the change
                    outcomes[change] = error

        handles: dict[_Change, int] = {}
        attempt(lambda change: self._write_partial(change, handles))
        flushed = self._flush_parents(surviving())
        attempt(lambda change: self._flush(change, handles, flushed))
        for change, handle in handles.items():
            os.close(handle)
            if outcomes[change] is not None:
                with contextlib.suppress(OSError):
                    self._path(change, _PARTIAL).unlink()
        attempt(self._switch)
        try:
            filesystems.sync(self._folder)
        except OSError as error:
            for change in surviving():
                self._undo(change)
                outcomes[change] = error
        return [outcomes[change] for change in batch]

    def _write_partial(self, change: _Change, handles: dict[_Change, int]) -> None:
        change.prepare()
        if change.document is None:
            return
        self._reached(steps.Step.CONTENT_MADE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        handle = os.open(self._path(change, _PARTIAL), flags, 0o600)
        handles[change] = handle
        if os.write(handle, change.document) != len(change.document):
            raise OSError(errno.ENOSPC, f"no room for the metadata of {change.record_id}")

    def _flush_parents(self, changes: Sequence[_Change]) -> dict[pathlib.Path, OSError | None]:
        outcomes: dict[pathlib.Path, OSError | None] = {}
        for parent in {parent for change in changes for parent in change.parents}:
            try:
                filesystems.sync(parent)
                outcomes[parent] = None
            except OSError as error:
                outcomes[parent] = error
        return outcomes

    def _flush(
        self,
        change: _Change,
        handles: dict[_Change, int],
        parents: dict[pathlib.Path, OSError | None],
    ) -> None:
        handle = handles.get(change)
        if handle is not None:
            os.fsync(handle)
        for parent in change.parents:
            error = parents[parent]
            if error is not None:
                raise OSError(error.errno, f"flush {parent}: {error.strerror}")

    def _switch(self, change: _Change) -> None:
        if change.document is None:
            self._path(change, _SUFFIX).unlink(missing_ok=True)
            self._reached(steps.Step.DOCUMENT_REMOVED)
            return
        self._reached(steps.Step.DOCUMENT_WRITTEN)
        self._path(change, _PARTIAL).rename(self._path(change, _SUFFIX))
        self._reached(steps.Step.DOCUMENT_RENAMED)

    def _undo(self, change: _Change) -> None:
        """Take back a file whose name may not have reached the disk: its client is told so."""
        if change.is_new:
            with contextlib.suppress(OSError):
                self._path(change, _SUFFIX).unlink(missing_ok=True)

    def _path(self, change: _Change, suffix: str) -> pathlib.Path:
        return self._folder / f"{change.record_id}{suffix}"


def nothing() -> None:
    """Prepare nothing."""
