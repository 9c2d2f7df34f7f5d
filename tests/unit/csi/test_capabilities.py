import pytest
from bitts.csi import capabilities, v1
from bitts.csi.failures import Finality, finality, is_infeasible
from bitts.rpc.codes import Code, RpcError, UnreadableError


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (capabilities.PluginCapability, v1.PluginCapabilityServiceType),
        (capabilities.VolumeExpansion, v1.PluginCapabilityVolumeExpansionType),
        (capabilities.ControllerCapability, v1.ControllerServiceCapabilityRpcType),
        (capabilities.NodeCapability, v1.NodeServiceCapabilityRpcType),
        (capabilities.GroupCapability, v1.GroupControllerServiceCapabilityRpcType),
    ],
    ids=lambda enum: enum.__name__,
)
def test_the_names_are_those_of_the_spec(ours: type, theirs: type) -> None:
    names = [member.value for member in ours]  # type: ignore[attr-defined]
    assert names == [member.name for member in theirs if member.value]  # type: ignore[attr-defined]


OPEN = {Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED}


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_a_failure_is_final_unless_the_driver_may_go_on(code: Code) -> None:
    expected = Finality.IN_BACKGROUND if code in OPEN else Finality.FINAL
    assert finality(RpcError(code)) is expected


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_an_answer_that_nobody_can_read_proves_nothing(code: Code) -> None:
    assert finality(UnreadableError(code)) is Finality.IN_BACKGROUND


def test_only_an_invalid_argument_is_infeasible() -> None:
    assert [code for code in Code if is_infeasible(code)] == [Code.INVALID_ARGUMENT]
