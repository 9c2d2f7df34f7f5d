"""The backends there are. A new one is a module beside these and a line in the table."""

from collections.abc import Mapping, Sequence

from local_driver.backends.backend import Backend, Site
from local_driver.backends.directory import DirectoryBackend
from local_driver.backends.image import ImageBackend

_MAKERS: dict[str, type[DirectoryBackend] | type[ImageBackend]] = {
    "directory": DirectoryBackend,
    "image": ImageBackend,
}


def opened(chosen: Sequence[str], site: Site) -> Mapping[str, Backend]:
    """Return the chosen backends by name, ready for use. Blocks.

    Raises KeyError for an unknown name (options are checked before), and OSError.
    """
    return {name: _MAKERS[name](site) for name in chosen}
