"""Feature gates: what is on, and what is said about the rest."""

from collections.abc import Mapping

import pytest
from bitts.core.features import FeatureSet, Gate, Stage

FEATURES = FeatureSet(
    {
        "Topology": Gate(default=True, stage=Stage.GA),
        "Fixed": Gate(default=True, stage=Stage.GA, locked=True),
        "New": Gate(default=False, stage=Stage.ALPHA),
        "Newer": Gate(default=False, stage=Stage.ALPHA),
        "Tried": Gate(default=True, stage=Stage.BETA),
    }
)


@pytest.mark.parametrize(
    ("given", "enabled"),
    [
        pytest.param({}, {"Topology", "Fixed", "Tried"}, id="defaults"),
        pytest.param({"New": True}, {"Topology", "Fixed", "Tried", "New"}, id="one on"),
        pytest.param({"Topology": False}, {"Fixed", "Tried"}, id="one off"),
        pytest.param(
            {"AllAlpha": True, "Newer": False},
            {"Topology", "Fixed", "Tried", "New"},
            id="a stage on but one",
        ),
        pytest.param({"AllBeta": False}, {"Topology", "Fixed"}, id="a stage off"),
        pytest.param({"Fixed": False}, {"Topology", "Fixed", "Tried"}, id="locked"),
    ],
)
def test_gates(given: Mapping[str, bool], enabled: set[str]) -> None:
    assert FEATURES.apply(given)[0] == enabled


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        pytest.param({"New": True, "AllBeta": False}, (), id="nothing to say"),
        pytest.param(
            {"HonorPVReclaimPolicy": True},
            ("feature gate HonorPVReclaimPolicy is not known here and is ignored",),
            id="unknown",
        ),
        pytest.param(
            {"Toplogy": True},
            ("feature gate Toplogy is not known here and is ignored; did you mean Topology?",),
            id="misspelt",
        ),
        pytest.param(
            {"Topology": True},
            ("feature gate Topology is generally available; setting it will stop working",),
            id="general availability",
        ),
        pytest.param(
            {"Fixed": False},
            ("feature gate Fixed can no longer be changed and stays true",),
            id="locked",
        ),
    ],
)
def test_warnings(given: Mapping[str, bool], warnings: tuple[str, ...]) -> None:
    assert FEATURES.apply(given)[1] == warnings
