"""host-local's folder on disk, readable both ways: ours and the reference plugin's.

``<dataDir>/<network>/<ip>`` holds ``<container ID>\\r\\n<interface>`` (old ones the ID alone),
``last_reserved_ip.<set>`` the address given last, and ``lock`` is held with flock. The files
are the truth: an address is ours when ``link`` has made its file, which comes into being with
its content, so a crash leaves no empty one. The index in memory only saves reading them all;
it is read anew when the folder has changed under us.
"""

import contextlib
import errno
import fcntl
import ipaddress
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bitts.cni.attachments import Attachment

from cni_daemon.ipam import ranges
from cni_daemon.ipam.ranges import RangeSet
from cni_daemon.ipam.spares import Spares

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LOCK_TIMEOUT = 10.0
"""Seconds to wait for the reference plugin, which holds the lock while it allocates."""

_LOCK_INTERVAL = 0.002
_LOCK = "lock"
_LAST = "last_reserved_ip."
_SEPARATOR = "\r\n"
_NO_TEMPORARY_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}


class StoreBusyError(OSError):
    """Another process holds the lock of a store for too long."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many addresses of a network are taken, and how many there are, once that is known."""

    network: str
    used: int
    size: int | None = None


class Store:
    """The reservations of one network. Call everything but ``release`` inside ``locked``."""

    def __init__(self, directory: str, spares: Spares | None = None) -> None:
        self.directory = directory
        self._spares = spares
        self.sets: tuple[RangeSet, ...] = ()
        """The ranges with which the network was last used."""
        self._mutex = threading.RLock()
        self._owners: dict[IpAddress, Attachment] = {}
        self._held: dict[Attachment, set[IpAddress]] = {}
        self._seen: tuple[int, int] | None = None
        self._last: dict[int, IpAddress | None] = {}
        self._noted: dict[int, int] = {}
        """Sizes of the files of what was given last."""
        self._due: set[int] = set()
        """Range sets of which what was given last is still to be written."""
        self._locked = -1
        """The lock's file, open for reading, which keeps nobody from making the disk read-only."""
        self._depth = 0

    def locked(self, patience: float = LOCK_TIMEOUT) -> "Locked":
        """Keep everybody else out; the index is up to date inside.

        May be nested: the file is locked by the outermost. Entering it raises StoreBusyError when
        others have it for longer than ``patience`` (seconds), and OSError.
        """
        return Locked(self, patience)

    def come_in(self, patience: float) -> None:
        """Lock, as ``locked`` says."""
        deadline = time.monotonic() + patience
        if not self._mutex.acquire(timeout=patience):  # our own threads
            raise _busy()
        try:
            if not self._depth:
                self._lock(deadline)
            self._depth += 1
        except BaseException:
            self._mutex.release()
            raise

    def go_out(self, *, is_sound: bool) -> None:
        """Unlock; after a failure the next to come in looks whether the folder was changed."""
        try:
            if is_sound and self._depth == 1 and self._seen is not None:
                self._seen = self._stamp()
        finally:
            self._depth -= 1
            if not self._depth:
                fcntl.flock(self._locked, fcntl.LOCK_UN)
            self._mutex.release()

    def _lock(self, deadline: float) -> None:
        """Lock the file, and bring the index up to date. Raises StoreBusyError, OSError.

        As long as the folder is as we left it, so is the lock's file, and it is kept open.
        """
        if self._locked >= 0 and self._seen is not None:
            _flock(self._locked, deadline)
            with contextlib.suppress(OSError):  # somebody removed the folder
                if self._stamp() == self._seen:
                    return
        self._close()
        self._locked = self._lock_file()
        try:
            _flock(self._locked, deadline)
            self._read()
        except OSError:
            self._close()
            raise

    def _close(self) -> None:
        """Let go of the lock's file, and take nothing for known."""
        self._seen = None
        if self._locked >= 0:
            os.close(self._locked)
            self._locked = -1

    def _lock_file(self) -> int:
        path, flags = self._file(_LOCK), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o750)
        except FileNotFoundError:  # the network is new, or somebody removed the folder
            os.makedirs(self.directory, mode=0o755, exist_ok=True)
            return os.open(path, flags, 0o750)

    def owner(self, address: IpAddress) -> Attachment | None:
        """Return who has an address; an empty interface name is a reservation of old."""
        return self._owners.get(address)

    def held_by(self, container_id: str, ifname: str) -> frozenset[IpAddress]:
        """Return the addresses of an attachment, also under the ID alone."""
        exact = self._held.get(Attachment(container_id, ifname), set())
        return frozenset(exact | self._held.get(Attachment(container_id, ""), set()))

    def reserve(
        self, address: IpAddress, container_id: str, ifname: str, set_index: int,
        *, notes_later: bool = False,
    ) -> bool:  # fmt: skip
        """Take an address; False if somebody has it. Raises OSError when it cannot be written.

        That it was the last one given is only a hint, which ``note`` may write down later.
        """
        content = f"{container_id}{_SEPARATOR}{ifname}".encode()
        text = str(address)
        try:
            self._make(self._file(text), content)
        except FileExistsError:
            self._seen = None  # a file that the index does not know
            return False
        self._learn(address, Attachment(container_id, ifname))
        self._last[set_index] = address
        if notes_later and set_index in self._noted:
            self._due.add(set_index)
        else:
            self._note_last(set_index, text.encode())
        return True

    def note(self) -> None:
        """Write down what was given last; where that fails, others begin to look elsewhere."""
        with self._mutex:
            while self._due:
                index = self._due.pop()
                with contextlib.suppress(OSError):
                    self._note_last(index, str(self._last[index]).encode())

    def last_reserved(self, set_index: int) -> IpAddress | None:
        """Return the address given last in a range set, None where that is not known."""
        if set_index in self._last:
            return self._last[set_index]
        found: IpAddress | None
        try:
            with open(self._file(f"{_LAST}{set_index}"), encoding="ascii") as file:
                found = ipaddress.ip_address(file.read().strip())
        except (OSError, ValueError):
            found = None
        self._last[set_index] = found
        return found

    def _note_last(self, set_index: int, text: bytes) -> None:
        """Write what was given last, in place: truncating first would make ext4 flush it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._file(f"{_LAST}{set_index}"), flags, 0o600)
        try:
            os.pwrite(descriptor, text, 0)
            if self._noted.get(set_index) != len(text):
                os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)
        self._noted[set_index] = len(text)

    def release(self, container_id: str, ifname: str) -> int:
        """Give back what an attachment has; nothing is fine. Returns how many addresses."""
        if not os.path.isdir(self.directory):
            return 0
        with self.locked():
            found = [*self._held.get(Attachment(container_id, ifname), ())]
            for address in found:
                self.give_back(address)
        return len(found)

    def collect(self, is_valid: Callable[[Attachment], bool]) -> int:
        """Give back every reservation that is not valid, and files that name no owner."""
        if not os.path.isdir(self.directory):
            return 0
        count = 0
        with self.locked():
            for address, owner in list(self._owners.items()):
                if not is_valid(owner):
                    self.give_back(address)
                    count += 1
        return count

    @property
    def usage(self) -> Usage:
        """What is taken, as far as the index knows; never blocks."""
        size = sum(map(ranges.size, self.sets)) if self.sets else None
        return Usage(self.network, len(self._owners), size)

    @property
    def network(self) -> str:
        """The network's name."""
        return os.path.basename(self.directory)

    def addresses(self) -> frozenset[IpAddress]:
        """Return every address in use."""
        return frozenset(self._owners)

    def give_back(self, address: IpAddress) -> None:
        """Give back one address."""
        with contextlib.suppress(FileNotFoundError):
            self._remove(self._file(str(address)))
        owner = self._owners.pop(address, None)
        if owner is not None:
            held = self._held.get(owner, set())
            held.discard(address)
            if not held:
                self._held.pop(owner, None)

    def _make(self, path: str, content: bytes) -> None:
        if self._spares is None or not self._spares.make(path, content):
            _create(path, content)

    def _remove(self, path: str) -> None:
        if self._spares is None or not self._spares.keep(path):
            os.unlink(path)

    def _learn(self, address: IpAddress, owner: Attachment) -> None:
        self._owners[address] = owner
        self._held.setdefault(owner, set()).add(address)

    def _read(self) -> None:
        """Read every reservation."""
        self._owners.clear()
        self._held.clear()
        self._last.clear()
        self._noted.clear()
        self._due.clear()
        for entry in os.scandir(self.directory):
            try:
                address = ipaddress.ip_address(entry.name)
                with open(entry.path, encoding="utf-8", errors="replace", newline="") as file:
                    container_id, _, ifname = file.read().strip().partition(_SEPARATOR)
            except (ValueError, FileNotFoundError):
                continue
            self._learn(address, Attachment(container_id.strip(), ifname))
        self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int]:
        found = os.stat(self.directory)
        return found.st_mtime_ns, found.st_ino

    def _file(self, name: str) -> str:
        return f"{self.directory}/{name}"


class Locked:
    """A stay in a locked store, for a with statement (a class, as every ADD passes here)."""

    __slots__ = ("_patience", "_store")

    def __init__(self, store: Store, patience: float) -> None:
        self._store = store
        self._patience = patience

    def __enter__(self) -> None:
        """Come in."""
        self._store.come_in(self._patience)

    def __exit__(self, kind: object, *_: object) -> None:
        """Leave."""
        self._store.go_out(is_sound=kind is None)


class Stores:
    """Every store that was used, so that all who name a folder share one index."""

    def __init__(self, spares: Spares | None = None) -> None:
        self._spares = spares
        self._known: dict[str, Store] = {}
        self._mutex = threading.Lock()

    def at(self, directory: str) -> Store:
        """Return the store of a folder."""
        known = self._known.get(directory)
        if known is not None:
            return known
        directory = os.path.normpath(directory)
        with self._mutex:
            return self._known.setdefault(directory, Store(directory, self._spares))

    def of(self, network: str) -> Store | None:
        """Return the store of a network that was used lately."""
        with self._mutex:
            known = [each for each in self._known.values() if each.network == network]
        return known[-1] if known else None

    def usage(self) -> list[Usage]:
        """Return what is taken of every network that was used; never blocks for long."""
        with self._mutex:
            known = list(self._known.values())
        return [each.usage for each in known]


def _create(path: str, content: bytes) -> None:
    """Make a file with its content in one instant. Raises FileExistsError, OSError."""
    folder = os.path.dirname(path)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_TEMPORARY_FILES:
            raise
        _create_in_steps(path, content)
        return
    try:
        os.write(descriptor, content)
        # With a folder's descriptor Python uses linkat, which alone follows the link in /proc.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    finally:
        os.close(descriptor)


def _create_in_steps(path: str, content: bytes) -> None:
    """As the reference plugin does it: a crash between the steps leaves an empty file."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, content)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _flock(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _busy() from None
            time.sleep(_LOCK_INTERVAL)


def _busy() -> StoreBusyError:
    return StoreBusyError(errno.EBUSY, "the lock of an address store is held by others")
