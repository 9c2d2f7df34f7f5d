"""Import a library without those of its own imports that we never use.

A library that fits a small process may still import a large one for a feature that is not wanted
there. ``load`` has it find such modules missing, or finds it a stand-in, for as long as its
import takes; afterwards everything can be imported as usual. A library that was imported before
stays as it is: it works, only larger. Call it while a program starts, before other threads
import anything.
"""

import importlib
import sys
import types
from collections.abc import Mapping, Sequence


def load(
    name: str,
    *,
    absent: Sequence[str] = (),
    instead: Mapping[str, types.ModuleType] | None = None,
) -> None:
    """Import ``name`` while modules in ``absent`` are missing and those in ``instead`` replaced.

    Modules that are loaded already are left alone: to hide them would save nothing.
    """
    if name in sys.modules:
        return
    wanted: dict[str, types.ModuleType | None] = {**dict.fromkeys(absent), **(instead or {})}
    hidden = {key: module for key, module in wanted.items() if key not in sys.modules}
    # None makes an import of that name fail as if there were no such module (PEP 328's rule).
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        importlib.import_module(name)
    finally:
        for key, module in hidden.items():
            if sys.modules.get(key) is module:
                del sys.modules[key]
