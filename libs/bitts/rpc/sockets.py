"""The file of a listening unix socket: it appears complete, replaces only what is dead, and goes.

Everything here blocks for a moment and belongs on a thread.
"""

import contextlib
import errno
import os
import pathlib
import socket
import stat

from bitts.core import socketpaths


class ListeningSocket:
    """A socket at ``path`` with permission bits ``mode``.

    ``open`` binds it under a hidden name, ``publish`` gives it its name once somebody accepts,
    so that whoever watches the folder (the kubelet does) never sees it half made.
    """

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self._mode = mode
        target = pathlib.Path(path)
        self._hidden = target.with_name(f".{target.name}")
        self._inode: tuple[int, int] | None = None

    def open(self) -> socket.socket:
        """Bind under the hidden name.

        Raises OSError that names the file in the way, ValueError if the path is too long.
        """
        socketpaths.check(str(self._hidden))
        refuse_unless_dead(self.path)
        self._hidden.unlink(missing_ok=True)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            opened.bind(str(self._hidden))
            self._hidden.chmod(self._mode)
        except OSError as error:
            opened.close()
            raise OSError(error.errno, f"cannot listen at {self.path}: {error.strerror}") from error
        return opened

    def publish(self) -> None:
        """Give the socket its name, in place of a dead one."""
        found = self._hidden.stat()
        self._inode = (found.st_dev, found.st_ino)
        self._hidden.rename(self.path)

    def is_in_place(self) -> bool:
        """Whether the name still leads to this socket: nobody removed or replaced it."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def remove(self) -> None:
        """Remove the file, unless another process has put its own in its place."""
        with contextlib.suppress(FileNotFoundError):
            self._hidden.unlink()
        with contextlib.suppress(FileNotFoundError):
            if self.is_in_place():
                pathlib.Path(self.path).unlink()


def refuse_unless_dead(path: str) -> None:
    """Raise OSError if ``path`` is anything but absent or the socket of a process that ended."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        text = f"{path} exists and is no socket: remove it or choose another path"
        raise FileExistsError(errno.EEXIST, text)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return
        except BlockingIOError:
            pass  # somebody listens, though with a full queue
    raise OSError(errno.EADDRINUSE, f"another process serves {path}: stop it first")
