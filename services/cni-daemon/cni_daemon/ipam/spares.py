"""Files of addresses that were given back, kept for the next: names are cheap, files are not.

On a node where much is created and deleted, making a file takes ext4 a third of a millisecond:
it passes over inode after inode that was freed a moment ago. Renaming one takes eight
microseconds. What is kept is in a folder of the daemon's own, which is emptied at each start;
where that is on another filesystem, or the C library cannot rename without replacing, files are
made and removed as ever.
"""

import contextlib
import ctypes
import errno
import itertools
import os
import pathlib

LIMIT = 64
"""Files kept: as many as a burst of removals and a burst of new containers have in common."""

_NO_REPLACE = 1
_HERE = -100
_libc = ctypes.CDLL(None, use_errno=True)
_rename = getattr(_libc, "renameat2", None)


class Spares:
    """The files that are kept. Thread-safe; its calls block. Nothing is kept before ``prepare``."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._names = itertools.count()
        self._kept: list[str] = []
        self._is_usable = False

    def prepare(self) -> None:
        """Empty the folder; where that fails nothing is kept."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in self._folder.iterdir():
                each.unlink()
            self._is_usable = _rename is not None

    def make(self, path: str, content: bytes) -> bool:
        """Let a kept file appear at ``path``, with its content; False where there is none.

        Raises FileExistsError if something is there.
        """
        try:
            spare = self._kept.pop()
        except IndexError:
            return False
        try:
            _write(spare, content)
            _move(spare, path)
        except FileExistsError:
            self._kept.append(spare)
            raise
        except OSError:
            return False
        return True

    def keep(self, path: str) -> bool:
        """Take a file away from ``path`` and keep it; False if it must be removed.

        Raises FileNotFoundError.
        """
        if not self._is_usable or len(self._kept) >= LIMIT:
            return False
        spare = str(self._folder / str(next(self._names)))
        try:
            os.rename(path, spare)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._is_usable = error.errno != errno.EXDEV
            return False
        self._kept.append(spare)
        return True


def _write(path: str, content: bytes) -> None:
    """Overwrite in place: truncating first would make ext4 flush the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, content, 0)
        if os.fstat(descriptor).st_size != len(content):  # IDs are of one length, nearly always
            os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _move(source: str, target: str) -> None:
    assert _rename is not None
    if _rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), _NO_REPLACE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)
