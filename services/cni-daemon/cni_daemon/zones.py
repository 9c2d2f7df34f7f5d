"""Zones of firewalld that addresses of containers are in: effects of ``traffic``, and upkeep.

Sources are runtime configuration: firewalld forgets them when it restarts or is reloaded, so
they are looked for and put back, like rules that somebody has flushed. Everything here blocks.
"""

from collections.abc import Iterable, Iterator

from bitts.core import logs
from bitts.net.firewalld import Firewalld, FirewalldError, NotRunningError

from cni_daemon.records import Entry, Phase
from cni_daemon.traffic import AddSource, RemoveSource, ZoneOperation

_firewalld = Firewalld()
_ADVICE = {
    "INVALID_ZONE": "make it with `firewall-cmd --permanent --new-zone` and reload, or name "
    "another",
    "ZONE_CONFLICT": "take it out of the other zone with `firewall-cmd --remove-source`",
}


def running() -> str:
    """Return "1" while firewalld runs, as a setting has it."""
    return "1" if _firewalld.is_running() else "0"


def sources(zone: str) -> frozenset[str]:
    """Return the sources of a zone, none where firewalld does not run. Raises FirewalldError."""
    try:
        return _firewalld.sources(zone)
    except NotRunningError:
        return frozenset()


def act(operation: ZoneOperation) -> None:
    """Carry out one operation. Raises FirewalldError that names the field."""
    try:
        if isinstance(operation, AddSource):
            _firewalld.add_source(operation.zone, operation.source)
        else:
            _firewalld.remove_source(operation.zone, operation.source)
    except NotRunningError as error:
        raise FirewalldError(f'backend "firewalld": {error}: start it, or remove backend') from None
    except FirewalldError as error:
        if isinstance(operation, RemoveSource) and operation.may_fail:
            logs.get("zones").warning("A zone keeps a source", source=operation.source, err=error)
            return
        advice = _ADVICE.get(error.code)
        said = f"{error}: {advice}" if advice else str(error)
        raise FirewalldError(f'firewalldZone "{operation.zone}": {said}', error.code) from None


def incomplete(entries: Iterable[Entry]) -> list[Entry]:
    """Return the standing attachments that a zone has lost. Raises FirewalldError."""
    wanted = [entry for entry in entries if entry.phase is Phase.DONE and any(_sources(entry))]
    if not (wanted and _firewalld.is_running()):
        return []
    names = {each.zone for entry in wanted for each in _sources(entry)}
    present = {zone: sources(zone) for zone in names}
    return [
        entry
        for entry in wanted
        if any(each.source not in present[each.zone] for each in _sources(entry))
    ]


def restore(entry: Entry) -> None:
    """Put the addresses of an attachment back into their zone. Raises FirewalldError."""
    for each in _sources(entry):
        act(AddSource(each.zone, each.source))


def _sources(entry: Entry) -> Iterator[RemoveSource]:
    """Yield what takes out the sources that an attachment has while it stands."""
    return (each for each in entry.undo if isinstance(each, RemoveSource))
