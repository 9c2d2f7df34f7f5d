"""Where a local stack keeps its files: one folder for what lasts, one for what only runs.

Unix sockets allow paths of 107 bytes, far less than home directories may need, so everything
that contains sockets lives below a short runtime folder whose name follows from the state
folder. ``bitts down`` finds both again from the state folder alone.
"""

import hashlib
import os
import pathlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass

TEMPORARY = pathlib.Path("/tmp")  # noqa: S108  # prepare() refuses a folder of somebody else
"""Where short paths can be had; ``TMPDIR`` may well be too long for sockets."""

SOCKET_PATH_LIMIT = 107
DEEPEST_SOCKET = 66
"""Bytes that the longest socket below a runtime folder adds to its path (a test checks it)."""

MARK = "BITTS_STACK"
"""Environment variable that holds the state folder in every process of a stack."""

DEFAULT_NAME = "bitts/dev"


class StateError(Exception):
    """A folder cannot be used; the message says which one and what to do."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The two folders of one stack."""

    state: pathlib.Path
    runtime: pathlib.Path

    @property
    def cluster(self) -> pathlib.Path:
        """Kubeconfig, certificate, token and store of the API server."""
        return self.state / "cluster"

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The file that ``KUBECONFIG`` points to."""
        return self.cluster / "kubeconfig"

    @property
    def logs(self) -> pathlib.Path:
        """One log file for each process."""
        return self.state / "logs"

    @property
    def volumes(self) -> pathlib.Path:
        """The driver's state: the volumes' content and records."""
        return self.state / "volumes"

    @property
    def record(self) -> pathlib.Path:
        """What runs at present, for ``down`` and for scripts (JSON)."""
        return self.state / "stack.json"

    @property
    def lock(self) -> pathlib.Path:
        """Held by the process that owns the stack."""
        return self.state / "lock"

    def node_root(self, node: str) -> pathlib.Path:
        """The kubelet-like folder of one node: plugins, their sockets, pods."""
        return self.runtime / node


def locate(given: str, environ: Mapping[str, str], uid: int) -> Folders:
    """Return the folders for ``--dir`` (empty: the default below the user's state home)."""
    if given:
        chosen = pathlib.Path(given).expanduser()
    else:
        home = environ.get("HOME") or TEMPORARY
        base = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
        chosen = pathlib.Path(base) / DEFAULT_NAME
    state = chosen.resolve()
    digest = hashlib.sha256(str(state).encode()).hexdigest()[:8]
    return Folders(state, runtime_base(environ) / f"bitts-{uid}-{digest}")


def runtime_base(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the user's runtime folder where its path is short enough, else ``/tmp``."""
    offered = environ.get("XDG_RUNTIME_DIR", "")
    name = len("/bitts-4294967295-01234567")
    if offered.startswith("/") and len(offered) + name + DEEPEST_SOCKET <= SOCKET_PATH_LIMIT:
        return pathlib.Path(offered)
    return TEMPORARY


def prepare(folders: Folders) -> None:
    """Make both folders, private to this user. Blocking; for use in a thread.

    Raises StateError where a folder cannot be made, or is not ours alone: in ``/tmp`` anybody
    may have made it first.
    """
    for folder in (folders.state, folders.runtime):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.lstat(folder)
        except OSError as error:
            raise StateError(f"{folder}: {error.strerror}; choose another with --dir") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StateError(f"{folder} belongs to somebody else: remove it, or choose --dir")
        folder.chmod(0o700)
    for folder in (folders.cluster, folders.logs, folders.volumes):
        folder.mkdir(mode=0o700, exist_ok=True)
