"""Import betterproto2 without pydantic and importlib.metadata (6 MB, 40 ms).

Importing this module before generated code is all there is to do; the packages of generated
code do so. betterproto2 uses pydantic for messages compiled to it, which ours are not, and takes
it up wherever it happens to be installed; importlib.metadata tells it its own version, which the
name of its metadata folder tells as well.
"""

import importlib.machinery
import pathlib
import types

from bitts.core import lean

_LIBRARY = "betterproto2"


def _version(name: str) -> str:
    """Return the version of an installed distribution with one package of the same name."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for found in pathlib.Path(folder).parent.glob(f"{name}-*.dist-info"):
            return found.name.removesuffix(".dist-info").removeprefix(f"{name}-")
    from importlib import metadata  # some unusual way of installing: ask in the usual way

    return metadata.version(name)


_metadata = types.ModuleType("importlib.metadata")
_metadata.__dict__["version"] = _version

lean.load(
    _LIBRARY,
    absent=["pydantic", "pydantic_core"],
    instead={"importlib.metadata": _metadata},
)
