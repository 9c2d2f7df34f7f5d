"""What a volume is: IDs, and whether an existing one is the one wished for."""

import pytest
from local_driver import volumes
from local_driver.volumes import (
    AccessMode,
    AccessType,
    Capability,
    Content,
    Parameters,
    Volume,
    Wish,
)

MOUNT = Capability(AccessType.MOUNT, AccessMode.SINGLE_NODE_WRITER)
BLOCK = Capability(AccessType.BLOCK, AccessMode.SINGLE_NODE_WRITER)


def volume(**changes: object) -> Volume:
    fields: dict[str, object] = {
        "volume_id": volumes.volume_id("n", "v"),
        "name": "v",
        "serial": 1,
        "node": "n",
        "backend": "image",
        "capacity": 1000,
        "access": frozenset({AccessType.MOUNT}),
        "filesystem": "ext4",
        "content": Content.BLANK,
        "created": 0.0,
        **changes,
    }
    return Volume(**fields)  # type: ignore[arg-type]


def wish(**changes: object) -> Wish:
    fields: dict[str, object] = {
        "name": "v",
        "capabilities": (MOUNT,),
        "parameters": Parameters("image"),
        "required": 1000,
        **changes,
    }
    return Wish(**fields)  # type: ignore[arg-type]


def test_an_id_is_the_same_each_time_and_differs_by_name_and_node() -> None:
    first = volumes.volume_id("node-1", "pvc-1")
    assert first == volumes.volume_id("node-1", "pvc-1")
    assert (
        len({first, volumes.volume_id("node-1", "pvc-2"), volumes.volume_id("node-2", "pvc-1")})
        == 3
    )
    assert volumes.is_id(first)
    assert len(first.encode()) <= 128


@pytest.mark.parametrize(
    "text",
    ["", "../../etc/passwd", "0123abcd", "0123abcd-xyz", f"{'a' * 8}-{'b' * 32}/..", "A" * 41],
)
def test_other_texts_are_no_ids_and_so_never_paths(text: str) -> None:
    assert not volumes.is_id(text)


@pytest.mark.parametrize(
    ("existing", "wanted", "filesystem", "reason"),
    [
        pytest.param({}, {}, "ext4", "", id="the same"),
        pytest.param({}, {"required": 0}, "ext4", "", id="no size asked for"),
        pytest.param({}, {"required": 500, "limit": 1000}, "ext4", "", id="within the range"),
        pytest.param({}, {"required": 1001}, "ext4", "required_bytes", id="too small"),
        pytest.param({}, {"required": 1, "limit": 999}, "ext4", "limit_bytes", id="too large"),
        pytest.param({}, {"parameters": Parameters("directory")}, "ext4", "backend", id="backend"),
        pytest.param({}, {"capabilities": (BLOCK,)}, "", "block", id="access"),
        pytest.param({}, {}, "xfs", "file system", id="file system"),
        pytest.param(
            {"access": frozenset(AccessType)}, {"capabilities": (BLOCK,)}, "", "", id="one of two"
        ),
    ],
)
def test_a_difference_is_named(
    existing: dict[str, object], wanted: dict[str, object], filesystem: str, reason: str
) -> None:
    found = volumes.mismatch(volume(**existing), wish(**wanted), filesystem)
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        pytest.param(MOUNT, "", id="mount"),
        pytest.param(BLOCK, "access type block", id="block"),
        pytest.param(Capability(AccessType.MOUNT, MOUNT.mode, "ext4"), "", id="its file system"),
        pytest.param(Capability(AccessType.MOUNT, MOUNT.mode, "xfs"), "fs_type xfs", id="another"),
    ],
)
def test_what_a_volume_cannot_be_used_for_is_named(capability: Capability, reason: str) -> None:
    found = volumes.unusable(volume(), capability)
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize("mode", AccessMode)
def test_modes_know_what_they_allow(mode: AccessMode) -> None:
    assert mode.is_multi_node == (mode.value.split("_")[0] == "MULTI")
    assert mode.is_read_only == ("READER" in mode.value)
