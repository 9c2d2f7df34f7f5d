"""Objects in a SQLite file: every acknowledged write survives kill -9 and power loss.

Changes queue up while a commit is running and go to disk together, in a thread of their own.
Nobody sees a change before it is on disk: answers and watches wait for ``Store.durable``.
"""

import asyncio
import collections.abc
import contextlib
import pathlib
import sqlite3

from bitts.core.process import ExitError

from devcluster.store import Change, Key, Store, Stored, decode

_SCHEMA = """
create table if not exists objects (
  collection text, namespace text, name text, revision integer, manager text, data blob,
  primary key (collection, namespace, name)
) without rowid;
create table if not exists counter (id integer primary key check (id = 1), revision integer);
"""
_PUT = "insert or replace into objects values (?, ?, ?, ?, ?, ?)"
_DELETE = "delete from objects where collection = ? and namespace = ? and name = ?"
_COUNT = "insert or replace into counter values (1, ?)"

Pending = tuple[str, Key, Change]


@contextlib.asynccontextmanager
async def opened(path: pathlib.Path, store: Store) -> "collections.abc.AsyncIterator[SqliteLog]":
    """Load a file into an empty store and keep it up to date; raises ExitError."""
    try:
        connection = await asyncio.to_thread(_open, path, store)
    except (sqlite3.Error, OSError) as error:
        raise ExitError(1, f"cannot use {path}: {error}; move it away to start empty") from error
    log = SqliteLog(connection, store)
    store.log = log
    try:
        yield log
    finally:
        await log.flush()
        connection.close()


def _open(path: pathlib.Path, store: Store) -> sqlite3.Connection:
    path.touch(mode=0o600)  # Secrets are in it; SQLite's other files get its mode
    path.chmod(0o600)
    # One thread at a time uses it: the log's lock sees to that.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.executescript(_SCHEMA)
    found = connection.execute("select revision from counter").fetchone()
    if found:
        store.revision = store.start = found[0]
    store.durable = store.revision
    for name, namespace, key, revision, manager, data in connection.execute(
        "select collection, namespace, name, revision, manager, data from objects"
    ):
        stored = Stored(decode(data), revision, manager)
        store.collection(name).objects[namespace, key] = stored
    return connection


class SqliteLog:
    """Commits queued changes in groups."""

    def __init__(self, connection: sqlite3.Connection, store: Store) -> None:
        self._connection = connection
        self._store = store
        self._pending: list[Pending] = []
        self._wanted = asyncio.Event()
        self._committed = asyncio.Condition()
        self._busy = asyncio.Lock()

    def append(self, collection: str, key: Key, change: Change) -> None:
        """Queue a change for the next commit."""
        self._pending.append((collection, key, change))
        self._wanted.set()

    async def settled(self, revision: int) -> None:
        """Return once everything up to a revision is on disk."""
        async with self._committed:
            await self._committed.wait_for(lambda: self._store.visible >= revision)

    async def run(self) -> None:
        """Commit what is queued, for ever; a failing disk ends the process."""
        while True:
            await self._wanted.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit what is queued now."""
        async with self._busy:
            self._wanted.clear()
            batch, self._pending = self._pending, []
            if not batch:
                return
            await asyncio.to_thread(_write, self._connection, batch)
            self._store.durable = batch[-1][2].new.revision
            for name in {name for name, _, _ in batch}:
                self._store.collection(name).wake()
        async with self._committed:
            self._committed.notify_all()


def _write(connection: sqlite3.Connection, batch: list[Pending]) -> None:
    connection.execute("begin immediate")
    for collection, (namespace, name), change in batch:
        new = change.new
        if change.type == "DELETED":
            connection.execute(_DELETE, (collection, namespace, name))
        else:
            row = (collection, namespace, name, new.revision, new.manager, new.data)
            connection.execute(_PUT, row)
    connection.execute(_COUNT, (batch[-1][2].new.revision,))
    connection.execute("commit")
