import pytest
from bitts.csi import v1
from bitts.volumes import accessmodes
from bitts.volumes.accessmodes import AccessMode


@pytest.mark.parametrize(
    ("mode", "coarse", "exact"),
    [
        ("ReadWriteOnce", AccessMode.SINGLE_NODE_WRITER, AccessMode.SINGLE_NODE_MULTI_WRITER),
        ("ReadWriteOncePod", AccessMode.SINGLE_NODE_WRITER, AccessMode.SINGLE_NODE_SINGLE_WRITER),
        ("ReadOnlyMany", AccessMode.MULTI_NODE_READER_ONLY, AccessMode.MULTI_NODE_READER_ONLY),
        ("ReadWriteMany", AccessMode.MULTI_NODE_MULTI_WRITER, AccessMode.MULTI_NODE_MULTI_WRITER),
    ],
)
def test_each_mode_is_mapped_by_what_the_driver_can(
    mode: str, coarse: AccessMode, exact: AccessMode
) -> None:
    assert accessmodes.to_csi([mode], multi_writer=False) == (coarse,)
    assert accessmodes.to_csi([mode], multi_writer=True) == (exact,)


def test_order_and_repetitions_are_kept() -> None:
    modes = ["ReadWriteMany", "ReadWriteOnce", "ReadWriteMany"]
    assert accessmodes.to_csi(modes, multi_writer=False) == (5, 1, 5)


def test_an_unknown_mode_is_named_with_its_field_and_the_choices() -> None:
    with pytest.raises(accessmodes.AccessModeError) as caught:
        accessmodes.to_csi(["ReadWriteTwice"], multi_writer=False)
    assert "spec.accessModes: unsupported access mode 'ReadWriteTwice'" in str(caught.value)
    assert "ReadWriteOncePod" in str(caught.value)


def test_the_numbers_are_those_of_the_specification() -> None:
    for mode in AccessMode:
        assert v1.VolumeCapabilityAccessModeMode(mode).name == mode.name
