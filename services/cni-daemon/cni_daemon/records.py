"""Journal records (pure): what is written about an attachment, and how a line is checked.

A line is eight hex digits of CRC-32, a space, and a JSON object. Records of one attachment in
order: ``begin`` (its addresses are about to be taken), ``plan`` (its operations are about to
run; all undo operations are in it, and the result they lead to), ``lease`` (what a DHCP server
gave; again at each renewal), ``done`` (it stands), ``leave`` (it is being removed), ``gone``. A
journal starts with ``head``, which names the boot.
"""

import enum
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cni_daemon import operations
from cni_daemon.operations import CodecError, Operation

_LEASE = "lease"
_DAMAGE = "damage"
_encode = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, default=operations.plain
).encode


class Phase(enum.StrEnum):
    """How far an attachment has come."""

    BEGUN = "begin"
    PLANNED = "plan"
    DONE = "done"
    LEAVING = "leave"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What names one plugin's part of an attachment. ``step`` is the type and a short digest."""

    network: str
    container_id: str
    ifname: str
    step: str

    def __hash__(self) -> int:
        """Tell containers apart, which have few entries each; it is asked for all the time."""
        return hash(self.container_id)

    @property
    def type(self) -> str:
        """The plugin's type."""
        return self.step.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """One plugin's part of an attachment, as the journal knows it.

    ``undo`` stands in the order of the plan; it is carried out in reverse. ``identity`` is the
    container's namespace, ``nonce`` the request that made the entry, ``lease`` a DHCP lease that
    has to be renewed for as long as the attachment stands.
    """

    key: Key
    phase: Phase
    nonce: str = ""
    netns: str = ""
    identity: tuple[int, int] | None = None
    undo: tuple[Operation, ...] = ()
    result: Mapping[str, object] = field(default_factory=dict)
    lease: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_vague(self) -> bool:
        """Whether it is said to stand although what takes it apart is not known in full."""
        return self.phase is Phase.DONE and not self.result

    def in_phase(self, phase: Phase) -> "Entry":
        """Return the entry one step further."""
        return Entry(
            self.key, phase, self.nonce, self.netns, self.identity, self.undo, self.result,
            self.lease,
        )  # fmt: skip

    def planned(self, undo: tuple[Operation, ...], result: Mapping[str, object]) -> "Entry":
        """Return the entry when it is planned: with what takes it back and what comes of it."""
        return Entry(self.key, Phase.PLANNED, self.nonce, self.netns, self.identity, undo, result)

    def with_undo(self, undo: tuple[Operation, ...]) -> "Entry":
        """Return the entry with its undo operations."""
        return Entry(self.key, self.phase, self.nonce, self.netns, self.identity, undo)

    def with_result(self, result: Mapping[str, object]) -> "Entry":
        """Return the entry with its result document."""
        return Entry(
            self.key, self.phase, self.nonce, self.netns, self.identity, self.undo, result,
            self.lease,
        )  # fmt: skip

    def with_lease(self, lease: Mapping[str, object]) -> "Entry":
        """Return the entry with a DHCP lease that has to be kept."""
        return Entry(
            self.key, self.phase, self.nonce, self.netns, self.identity, self.undo, self.result,
            lease,
        )  # fmt: skip


class RecordError(ValueError):
    """A line of the journal is damaged or of another version."""


def seal(document: Mapping[str, object]) -> bytes:
    """Return the line of a document."""
    return sealed(text(document))


def text(document: Mapping[str, object]) -> str:
    """Return what is sealed of a document."""
    return _encode(document)


def sealed(text: str) -> bytes:
    """Return the line of a document's text."""
    data = text.encode()
    return b"%08x %s\n" % (zlib.crc32(data), data)


def unseal(line: bytes) -> Mapping[str, object]:
    """Return the document of a line. Raises RecordError."""
    checksum, space, text = line.rstrip(b"\n").partition(b" ")
    try:
        if not space or int(checksum, 16) != zlib.crc32(text):
            raise RecordError("checksum does not fit")
        document = json.loads(text)
    except ValueError as error:
        raise RecordError(str(error)) from None
    if not isinstance(document, dict):
        raise RecordError("no object")
    return document


def head(boot: str) -> dict[str, object]:
    """Return the first record of a journal."""
    return {"r": "head", "version": 1, "boot": boot}


def of_entry(entry: Entry) -> dict[str, object]:
    """Return the record that brings an entry into its phase; ``seal`` takes it as it is."""
    key = entry.key
    document: dict[str, object] = {
        "r": str(entry.phase), "k": [key.network, key.container_id, key.ifname, key.step],
    }  # fmt: skip
    if entry.phase in {Phase.BEGUN, Phase.PLANNED}:
        document |= {
            "nonce": entry.nonce,
            "netns": entry.netns,
            "undo": entry.undo,
        }
        if entry.identity is not None:
            document["id"] = entry.identity
        if entry.result:
            document["result"] = entry.result
    return document


def whole(entry: Entry) -> Iterator[dict[str, object]]:
    """Return the records that restate an entry in a new journal."""
    if entry.phase is not Phase.BEGUN:
        yield of_entry(entry.in_phase(Phase.PLANNED))
    if entry.lease:
        yield lease(entry.key, entry.lease)
    if entry.phase is not Phase.PLANNED:
        yield of_entry(entry)


def lease(key: Key, document: Mapping[str, object]) -> dict[str, object]:
    """Return the record of a lease."""
    return {"r": _LEASE, "k": [key.network, key.container_id, key.ifname, key.step],
            "lease": document}  # fmt: skip


def damage() -> dict[str, object]:
    """Return what stands in for a line that cannot be read, for ``fold``."""
    return {"r": _DAMAGE}


def gone(key: Key) -> dict[str, object]:
    """Return the record that ends an entry."""
    return {"r": "gone", "k": [key.network, key.container_id, key.ifname, key.step]}


def fold(documents: Iterable[Mapping[str, object]]) -> dict[Key, Entry]:
    """Return the entries that records leave. Raises RecordError for one of another version.

    Whatever a line that is lost may have said, what stands is not to be taken apart for it.
    """
    entries: dict[Key, Entry] = {}
    for document in documents:
        kind = document.get("r")
        if kind == "head":
            continue
        if kind == _DAMAGE:
            entries |= {key: _doubted(entry) for key, entry in entries.items()}
            continue
        key = _key(document)
        if kind == "gone":
            entries.pop(key, None)
            continue
        if kind == _LEASE:
            if key in entries:
                entries[key] = entries[key].with_lease(_object(document.get("lease")))
            continue
        try:
            phase = Phase(str(kind))
        except ValueError:
            raise RecordError(f"unknown record {kind!r}") from None
        entries[key] = _advanced(entries.get(key), key, phase, document)
    # One that was never planned as far as we know: it is met as if nothing were known of it.
    return {key: entry for key, entry in entries.items() if not entry.is_vague}


def _doubted(entry: Entry) -> Entry:
    """Take an attachment for done that may be; a caller who asks again is not told that it is."""
    if entry.phase is not Phase.PLANNED or not entry.result:
        return entry
    return replace(entry, phase=Phase.DONE, nonce="")


def _advanced(
    former: Entry | None, key: Key, phase: Phase, document: Mapping[str, object]
) -> Entry:
    entry = former or Entry(key, phase)
    if phase in {Phase.BEGUN, Phase.PLANNED}:
        entry = Entry(
            key, phase, str(document.get("nonce", "")), str(document.get("netns", "")),
            _identity(document.get("id")), _undo(document.get("undo")),
        )  # fmt: skip
    result = document.get("result")  # ``done`` has it where it was not known before
    if isinstance(result, dict):
        entry = entry.with_result(result)
    return entry.in_phase(phase)


def _key(document: Mapping[str, object]) -> Key:
    match document.get("k"):
        case [str(network), str(container_id), str(ifname), str(step)]:
            return Key(network, container_id, ifname, step)
    raise RecordError("record without a key")


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise RecordError("record without its object")
    return value


def _identity(value: object) -> tuple[int, int] | None:
    match value:
        case [int(device), int(inode)]:
            return device, inode
    return None


def _undo(value: object) -> tuple[Operation, ...]:
    if not isinstance(value, list):
        raise RecordError("record without undo operations")
    try:
        return tuple(operations.decode(each) for each in value)
    except CodecError as error:
        raise RecordError(str(error)) from None
