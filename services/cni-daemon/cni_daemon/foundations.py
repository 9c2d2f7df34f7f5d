"""Rule sets that attachments share, remembered beyond the life of one daemon.

After a restart a daemon knows its attachments from the journal, but not the rules around them:
those are laid by the first ADD of each network. If somebody flushes nftables before that, they
must come from here. A line is sealed as in the journal; the file is of one boot, since rules
end with it, and is written anew at each start.
"""

import contextlib
import os
import pathlib
import threading
from collections.abc import Mapping

from bitts.core import logs

from cni_daemon import operations, records
from cni_daemon.operations import AddElements, ApplyRules, CodecError, Once, Simple
from cni_daemon.records import RecordError
from cni_daemon.traffic import LayIptables

_FILE = "foundations"
_LIMIT = 4096
"""Rule sets remembered: one or two for each subnet."""

RULES = (ApplyRules, AddElements, LayIptables)
"""What is worth remembering; links have indexes that may mean something else by then."""


class Foundations:
    """The rule sets, in memory and in a file. Thread-safe; its calls block."""

    def __init__(self, folder: pathlib.Path, boot: str) -> None:
        self._path = folder / _FILE
        self._boot = boot
        self._mutex = threading.Lock()
        self._known: dict[str, tuple[Simple, ...]] = {}
        self._log = logs.get("foundations")

    def load(self) -> None:
        """Read what is there; what cannot be read is laid again by the next ADD anyway."""
        with contextlib.suppress(FileNotFoundError):
            self._read(self._path.read_bytes().splitlines())
        with contextlib.suppress(OSError):
            self._rewrite()

    def note(self, laid: Once) -> None:
        """Remember a foundation that was laid; on a full disk only until the restart."""
        if not all(isinstance(each, RULES) for each in laid.operations):
            return
        with self._mutex:
            if self._known.get(laid.key) == laid.operations:
                return
            self._known.pop(laid.key, None)
            self._known[laid.key] = laid.operations
            if len(self._known) > _LIMIT:
                del self._known[next(iter(self._known))]
            try:
                with open(self._path, "ab") as file:
                    file.write(records.seal(_document(laid.key, laid.operations)))
            except OSError as error:
                self._log.warning("Cannot remember rules", path=self._path, err=error)

    @property
    def known(self) -> Mapping[str, tuple[Simple, ...]]:
        """Every rule set by its key, in the order in which they were laid."""
        with self._mutex:
            return dict(self._known)

    def _read(self, lines: list[bytes]) -> None:
        try:
            documents = [records.unseal(line) for line in lines]
            if documents and documents[0].get("boot") == self._boot:
                for document in documents[1:]:
                    laid = document.get("operations")
                    if isinstance(laid, list):
                        self._known[str(document["key"])] = tuple(map(operations.decode, laid))
        except (RecordError, CodecError, KeyError) as error:
            self._log.warning("Rules are laid anew when they are needed", err=error)

    def _rewrite(self) -> None:
        temporary = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(records.seal(records.head(self._boot)))
            file.writelines(records.seal(_document(*each)) for each in self._known.items())
        temporary.rename(self._path)


def _document(key: str, laid: tuple[Simple, ...]) -> dict[str, object]:
    return {"r": "foundation", "key": key, "operations": [operations.encode(o) for o in laid]}
