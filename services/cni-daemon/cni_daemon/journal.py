"""The journal: one file, appended to before anything is done, so that a crash leaks nothing.

Appending survives the death of the process at once; it is not synced to the disk, because
what it describes (links, rules, namespaces) does not outlive the machine either. A torn line
at the end is what a crash looks like and is dropped; damage before it is reported, and the
lines after it count. A full disk fails the append, which leaves the file as it was: what is
not written down is not done.
"""

import contextlib
import errno
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bitts.core import logs

from cni_daemon import records
from cni_daemon.records import Entry, Key, Phase, RecordError

_FILE = "journal"
_COMPACT_FROM = 4096
"""Records in the file before it is written anew, if few of them still count."""

_GARBAGE_RATIO = 8
_NOTHING: Mapping[str, object] = {}
BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was found: the entries, and whether the machine was booted since."""

    entries: Mapping[Key, Entry]
    is_from_this_boot: bool
    damaged: tuple[str, ...]


Watcher = Callable[[int, Key, Entry | None], None]
"""Told of a revision, a key, and the entry that it has now (None: it is gone)."""


class Journal:
    """The entries of this node, in memory and in the file. Thread-safe; its calls block."""

    def __init__(self, folder: pathlib.Path, boot: str | None = None) -> None:
        self._path = folder / _FILE
        self.boot = BOOT_ID.read_text().strip() if boot is None else boot
        self._mutex = threading.Lock()
        self._entries: dict[Key, Entry] = {}
        self._revision = 0
        self._watching: list[Watcher] = []
        self._records = 0
        self._size = 0
        self._descriptor = -1
        self._log = logs.get("journal")

    def load(self) -> Loaded:
        """Read what is there, and start a clean file with it. Raises OSError."""
        documents: list[Mapping[str, object]] = []
        damaged: list[str] = []
        for number, line in enumerate(self._lines(), 1):
            try:
                documents.append(records.unseal(line))
            except RecordError as error:
                damaged.append(f"line {number}: {error}")
                documents.append(records.damage())
        boots = [each.get("boot") for each in documents if each.get("r") == "head"]
        entries = self._fold(documents, damaged)
        if damaged:
            self._keep()
        with self._mutex:
            self._entries = dict(entries)
            self._rewrite()
        return Loaded(dict(entries), not boots or boots[-1] == self.boot, tuple(damaged))

    def _keep(self) -> None:
        """Leave a damaged file beside the new one, for whoever wants to know."""
        kept = self._path.with_suffix(".damaged")
        with contextlib.suppress(OSError):
            kept.unlink(missing_ok=True)
            kept.hardlink_to(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def entry(self, key: Key) -> Entry | None:
        """Return one entry."""
        return self._entries.get(key)

    @property
    def records(self) -> int:
        """How many records the file has."""
        return self._records

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, in the order in which they were made."""
        with self._mutex:
            return tuple(self._entries.values())

    def watch(self, told: Watcher) -> tuple[int, tuple[Entry, ...]]:
        """Tell of every change from now on; returns the revision and what there is now.

        ``told`` is called in the thread that makes the change, which waits for it.
        """
        with self._mutex:
            self._watching.append(told)
            return self._revision, tuple(self._entries.values())

    def unwatch(self, told: Watcher) -> None:
        """Tell no longer."""
        with self._mutex:
            self._watching.remove(told)

    @property
    def revision(self) -> int:
        """How many changes there were in this life of the daemon."""
        return self._revision

    def _tell(self, key: Key, entry: Entry | None) -> None:
        self._revision += 1
        for told in self._watching:
            told(self._revision, key, entry)

    def find(self, key: Key) -> Entry | None:
        """Return the entry of a key; if only the configuration has changed, its last namesake."""
        exact = self._entries.get(key)
        if exact is not None:
            return exact
        with self._mutex:
            namesakes = [
                entry
                for other, entry in self._entries.items()
                if other.container_id == key.container_id
                and other.ifname == key.ifname
                and other.network == key.network
                and other.type == key.type
            ]
        return namesakes[-1] if namesakes else None

    def write(self, entry: Entry, text: str) -> None:
        """Write down an entry as it is now, whose record's text is known. Raises OSError."""
        self._write(entry, records.sealed(text))

    def begin(self, entry: Entry) -> None:
        """Write down that addresses are about to be taken. Raises OSError."""
        self._put(entry)

    def plan(self, entry: Entry) -> None:
        """Write down what is about to be done. Raises OSError."""
        self._put(entry.in_phase(Phase.PLANNED))

    def done(self, key: Key, result: Mapping[str, object] | None = None) -> None:
        """Write down that something stands, with the result planned or this. Raises OSError."""
        entry = self._entries[key].in_phase(Phase.DONE)
        said = _NOTHING
        if result is not None:
            entry, said = entry.with_result(result), {"result": result}
        self._put(entry, said)

    def lease(self, key: Key, lease: Mapping[str, object]) -> None:
        """Write down what a DHCP server gave. Raises OSError."""
        with self._mutex:
            entry = self._entries.get(key)
            if entry is None:
                return
            self._append(records.seal(records.lease(key, lease)))
            self._entries[key] = leased = entry.with_lease(lease)
            self._tell(key, leased)
            self._compact_if_due()

    def leave(self, key: Key) -> None:
        """Write down that an attachment is being removed.

        A full disk does not stop that: what is removed makes room.
        """
        leaving = self._entries[key].in_phase(Phase.LEAVING)
        try:
            self._put(leaving)
        except OSError as error:
            self._log.warning("Cannot write the journal", path=self._path, err=error)
            with self._mutex:
                self._entries[key] = leaving

    def gone(self, key: Key) -> None:
        """Write down that nothing is left of an attachment.

        On a full disk only the memory knows: after a restart it is removed once more.
        """
        with self._mutex:
            self._entries.pop(key, None)
            self._tell(key, None)
            try:
                self._append(records.seal(records.gone(key)))
                self._compact_if_due()
            except OSError as error:
                self._log.warning("Cannot write the journal", path=self._path, err=error)

    def _put(self, entry: Entry, more: Mapping[str, object] = _NOTHING) -> None:
        self._write(entry, records.seal({**records.of_entry(entry), **more}))

    def _write(self, entry: Entry, line: bytes) -> None:
        with self._mutex:
            self._append(line)
            self._entries[entry.key] = entry
            self._tell(entry.key, entry)

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, "no space left for the journal")
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)
        self._records += 1

    def _compact_if_due(self) -> None:
        if self._records > max(_COMPACT_FROM, _GARBAGE_RATIO * len(self._entries)):
            self._rewrite()

    def _rewrite(self) -> None:
        """Put a file with what counts in the place of the old one."""
        temporary = self._path.with_suffix(".new")
        lines = [records.seal(records.head(self.boot))]
        lines += [
            records.seal(document)
            for entry in self._entries.values()
            for document in records.whole(entry)
        ]
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.writelines(lines)
            os.fsync(descriptor)
            os.rename(temporary, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._records = len(lines)
        self._size = sum(map(len, lines))

    def _lines(self) -> Iterable[bytes]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        lines = data.splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # torn by a crash: what it announced was not begun
        return lines

    def _fold(
        self, documents: list[Mapping[str, object]], damaged: list[str]
    ) -> Mapping[Key, Entry]:
        sound: list[Mapping[str, object]] = []
        for index, document in enumerate(documents, 1):
            try:
                records.fold([document])
                sound.append(document)
            except RecordError as error:
                damaged.append(f"record {index}: {error}")
                sound.append(records.damage())
        return records.fold(sound)
