"""Ask an IPAM plugin, ours or a program, and know beforehand what takes its answer back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from bitts.cni import documents, results, versions
from bitts.cni.attachments import Attachment
from bitts.cni.conversion import ConversionError, convert
from bitts.cni.documents import DocumentError
from bitts.cni.environment import Command
from bitts.cni.errors import CniError, Code
from bitts.cni.results import Result

from cni_daemon import delegates
from cni_daemon.delegates import DelegateError
from cni_daemon.ipam import registry
from cni_daemon.ipam.stores import Stores
from cni_daemon.model import Call
from cni_daemon.operations import Operation, RunDelegate

_INTERNAL_VERSION = "1.1.0"
_PATH = "CNI_PATH"
_STATUS_TIMEOUT = 5.0
"""Seconds for a program to say whether it is ready: the threads that ask are few."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One call to an IPAM plugin of some type, with what a program would be handed."""

    kind: str
    call: Call
    environment: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """Whether no program need be run."""
        return self.kind in registry.ALL

    def undo(self) -> tuple[Operation, ...]:
        """Return what gives everything back, for the journal."""
        if self.is_ours:
            return registry.ALL[self.kind].undo(self.call)
        environment = {**self.environment, "CNI_COMMAND": str(Command.DEL)}
        return (RunDelegate(self.kind, self._stdin(), tuple(sorted(environment.items()))),)

    def allocate(self, stores: Stores) -> Result:
        """Take addresses. Blocks. Raises CniError, OSError, DelegateError."""
        if self.is_ours:
            ipam = registry.ALL[self.kind]
            found = ipam.allocate(ipam.parse(self.call.config, self.call), stores, self.call)
            return as_programs_see_it(found, self.call.config.version)
        output = self._run(Command.ADD)
        try:
            found = results.decode(documents.parse(output), self.call.config.version)
            return convert(found, _INTERNAL_VERSION)
        except (DocumentError, ConversionError) as error:
            message = f"IPAM plugin {self.kind}: {error}"
            raise DelegateError(CniError(Code.DECODING_FAILURE, message)) from None

    def check(self, stores: Stores) -> None:
        """Raise CniError if a reservation is gone."""
        if self.is_ours:
            ipam = registry.ALL[self.kind]
            ipam.check(ipam.parse(self.call.config, self.call), stores, self.call)
        else:
            self._run(Command.CHECK)

    def collect(self, stores: Stores, valid: frozenset[Attachment]) -> int:
        """Free what no valid attachment owns; returns how much, if that is known."""
        if not self.is_ours:
            self._run(Command.GC)
            return 0
        return registry.ALL[self.kind].collect(stores, self.call, valid)

    def ready(self, stores: Stores) -> None:
        """Raise CniError if no address could be given."""
        if self.is_ours:
            ipam = registry.ALL[self.kind]
            ipam.ready(ipam.parse(self.call.config, self.call), stores)
        else:
            self._run(Command.STATUS, _STATUS_TIMEOUT)

    def _run(self, command: Command, timeout: float = delegates.TIMEOUT) -> bytes:
        environment = {**self.environment, "CNI_COMMAND": str(command)}
        return delegates.run(self.kind, self._stdin().encode(), environment, timeout)

    def _stdin(self) -> str:
        document = dict(self.call.config.document)
        if self.call.previous is not None:
            document["prevResult"] = results.encode(self.call.previous)
        return documents.render(document, compact=True)


def programs(undo: Iterable[Operation]) -> frozenset[str]:
    """Return the types of the programs that give something back (pure)."""
    return frozenset(each.type for each in undo if isinstance(each, RunDelegate))


def searched_for(undo: Iterable[Operation], path: str) -> tuple[Operation, ...]:
    """Let programs be looked for in the folders of a later call first: they may have moved."""
    return tuple(
        replace(each, environment=tuple(_prepended(each.environment, path)))
        if isinstance(each, RunDelegate)
        else each
        for each in undo
    )


def _prepended(environment: Iterable[tuple[str, str]], path: str) -> Iterator[tuple[str, str]]:
    for name, value in environment:
        folders = [*path.split(":"), *value.split(":")] if name == _PATH else [value]
        yield name, ":".join(dict.fromkeys(folders))


def as_programs_see_it(result: Result, version: str) -> Result:
    """Lose what an answer of the oldest versions cannot hold, as it does between two programs.

    Configurations of that age name metrics and scopes that never took effect, and would break
    if they suddenly did.
    """
    if versions.family(version) is not versions.Family.FLAT or not result.ips:
        return result
    return convert(convert(result, version), _INTERNAL_VERSION)
