"""The backends there are. A new one is a module beside these and a line in the table."""

from collections.abc import Callable, Mapping, Sequence

from local_driver.backends.backend import Backend, Site, UnavailableError
from local_driver.backends.btrfs import BtrfsBackend
from local_driver.backends.directory import DirectoryBackend
from local_driver.backends.image import ImageBackend

_MAKERS: dict[str, Callable[[Site], Backend]] = {
    "directory": DirectoryBackend,
    "image": ImageBackend,
    "btrfs": BtrfsBackend,
}


def opened(chosen: Sequence[str], site: Site) -> Mapping[str, Backend]:
    """Return the chosen backends by name, ready for use; without a choice, what works here.

    Blocks. Raises UnavailableError for a chosen one that does not work here, OSError.
    """
    if chosen:
        return {name: _MAKERS[name](site) for name in chosen}
    found: dict[str, Backend] = {}
    for name, make in _MAKERS.items():
        try:
            found[name] = make(site)
        except UnavailableError:
            continue
    return found


__all__ = ["Backend", "Site", "UnavailableError", "opened"]
