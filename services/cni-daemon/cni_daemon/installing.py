"""``cni-daemon install`` and ``uninstall``: the shim under every plugin's name, atomically.

A plugin that stands there already (the reference's) is kept in a folder beside and comes back
on uninstall. Every name changes by one rename, so a runtime executes the old program or the
new one, never half of one; running plugins are not disturbed.
"""

import contextlib
import os
import pathlib
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import bitts
from bitts.core.flags import FlagError, FlagSet, FlagValues

from cni_daemon import names
from cni_daemon.shim import build
from cni_daemon.shim.build import BuildError

SOCKET_MARK = b"BITTS-SHIM-SOCK\0"
INTENTS_MARK = b"BITTS-SHIM-WAIT\0"
SAVED = ".bitts-saved"
"""Folder in the plugin folder for what the shim has taken the place of."""

_PATH_SIZE = 112
_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Installation:
    """What to install where."""

    folder: pathlib.Path
    socket: str
    state: str
    plugins: tuple[str, ...]


def run(verb: str, arguments: Sequence[str]) -> int:
    """Carry out a verb of the command line; returns the exit code."""
    from cni_daemon import requests  # the names of the plugins: not needed for --help of serving

    flags = FlagSet(f"{names.PROGRAM} {verb}", f"{verb} the shim", version=bitts.__version__)
    folder = flags.string("plugin-dir", names.PLUGIN_DIRECTORY, "the runtime's plugin folder")
    socket = flags.string("socket", names.SOCKET, "the daemon's socket, as the runtime sees it")
    state = flags.string("state-dir", names.STATE_DIRECTORY, "the daemon's state folder, likewise")
    wanted = flags.string("plugins", "", "comma-separated names; empty: every plugin served")

    def read(values: FlagValues) -> Installation:
        chosen = tuple(name for name in values[wanted].split(",") if name)
        unknown = set(chosen) - set(requests.served_types())
        if unknown:
            known = ", ".join(requests.served_types())
            raise FlagError(f"--plugins {sorted(unknown)[0]!r} is none of {known}", 1)
        return Installation(
            pathlib.Path(values[folder]), values[socket], values[state],
            chosen or requests.served_types(),
        )  # fmt: skip

    chosen = flags.resolve(arguments, read)
    try:
        install(chosen) if verb == "install" else uninstall(chosen)
    except (OSError, BuildError, ValueError) as error:
        sys.stderr.write(f"{names.PROGRAM} {verb}: {error}\n")
        return 1
    return 0


def install(wanted: Installation) -> None:
    """Put the shim under every name. Raises OSError, BuildError, ValueError (a path too long)."""
    program = fitted(build.program(), wanted.socket, os.path.join(wanted.state, names.INTENTS))
    wanted.folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    pathlib.Path(wanted.state, names.INTENTS).mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = wanted.folder / f".bitts-{secrets.token_hex(6)}"
    try:
        _write(temporary, program)
        for name in wanted.plugins:
            _save(wanted.folder, name)
            link = wanted.folder / f".bitts-{secrets.token_hex(6)}"
            os.link(temporary, link)
            link.rename(wanted.folder / name)
            # Where the name is the shim already, rename does nothing to two links of one file.
            link.unlink(missing_ok=True)
    finally:
        temporary.unlink(missing_ok=True)


def uninstall(wanted: Installation) -> None:
    """Take the shim away from every name and put back what was there. Raises OSError."""
    saved = wanted.folder / SAVED
    for name in wanted.plugins:
        target = wanted.folder / name
        if not is_shim(target):
            continue
        if (saved / name).exists():
            (saved / name).rename(target)
        else:
            target.unlink()
    with contextlib.suppress(OSError):  # missing, or of use to names that stay
        saved.rmdir()


def fitted(program: bytes, socket: str, intents: str) -> bytes:
    """Return the shim with its two paths. Raises ValueError where one does not fit."""
    for mark, path in ((SOCKET_MARK, socket), (INTENTS_MARK, intents)):
        packed = path.encode()
        if len(packed) >= _PATH_SIZE - 8:
            raise ValueError(f"path {path!r} is longer than {_PATH_SIZE - 9} bytes")
        at = program.find(mark)
        if at < 0:
            raise ValueError("the shim has no place for its paths")
        start = at + len(mark)
        program = program[:start] + packed.ljust(_PATH_SIZE, b"\0") + program[start + _PATH_SIZE :]
    return program


def is_shim(path: pathlib.Path) -> bool:
    """Say whether a file is a shim of ours."""
    try:
        return SOCKET_MARK in path.read_bytes()
    except OSError:
        return False


def _save(folder: pathlib.Path, name: str) -> None:
    """Keep a foreign plugin, beside and under its name."""
    target = folder / name
    if not target.exists() or is_shim(target):
        return
    saved = folder / SAVED
    saved.mkdir(mode=0o700, exist_ok=True)
    (saved / name).unlink(missing_ok=True)
    os.link(target, saved / name)


def _write(path: pathlib.Path, program: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with open(descriptor, "wb") as file:
        file.write(program)
        os.fchmod(descriptor, _MODE)
        file.flush()
        os.fsync(descriptor)
