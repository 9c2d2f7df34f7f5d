"""Feature gates: which ones a program knows, and what ``--feature-gates`` makes of them.

Upstream refuses to start on a gate that it does not know, which turns every removed gate into an
outage. Here such a gate is a warning: many are Kubernetes' own, linked in by accident.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from bitts.core import literals


class Stage(enum.StrEnum):
    """How far a feature has come."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. A ``locked`` one always has its default."""

    default: bool
    stage: Stage
    locked: bool = False


class FeatureSet:
    """The gates that a program knows."""

    def __init__(self, known: Mapping[str, Gate]) -> None:
        self.known = dict(known)

    def apply(self, given: Mapping[str, bool]) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the names of the gates that are on, and warnings to log.

        ``AllAlpha`` and ``AllBeta`` set all gates of a stage that are not given by name.
        """
        groups = {Stage.ALPHA: given.get("AllAlpha"), Stage.BETA: given.get("AllBeta")}
        enabled = set()
        for name, gate in self.known.items():
            wanted = given.get(name, groups.get(gate.stage))
            if gate.default if wanted is None or gate.locked else wanted:
                enabled.add(name)
        warnings = [
            warning
            for name, wanted in given.items()
            if name not in ("AllAlpha", "AllBeta") and (warning := self._warning(name, wanted))
        ]
        return frozenset(enabled), tuple(warnings)

    def _warning(self, name: str, wanted: bool) -> str:  # noqa: FBT001 - the gate's value
        gate = self.known.get(name)
        if gate is None:
            nearest = literals.nearest(name, self.known)
            hint = f"; did you mean {nearest}?" if nearest else ""
            return f"feature gate {name} is not known here and is ignored{hint}"
        if gate.locked and wanted != gate.default:
            return f"feature gate {name} can no longer be changed and stays {_word(gate.default)}"
        if gate.stage is Stage.GA:
            return f"feature gate {name} is generally available; setting it will stop working"
        return ""


def _word(value: bool) -> str:  # noqa: FBT001 - the gate's value
    return "true" if value else "false"
