"""Which volume a request gets: parameters, file system, size."""

import dataclasses

import pytest
from bitts.rpc.codes import Code, RpcError
from hypothesis import given
from hypothesis import strategies as st
from local_driver import creation
from local_driver.creation import GIB, Offer
from local_driver.volumes import AccessMode, AccessType, Capability, Parameters, Wish

IMAGE = Offer(
    name="image",
    access=frozenset(AccessType),
    filesystems=("ext4", "xfs"),
    minimum={"ext4": 4 << 20, "xfs": 300 << 20, "": 4096},
    granularity=4096,
    maximum=1 << 44,
)
FOLDER = Offer("directory", frozenset({AccessType.MOUNT}), ("ext4",), {"ext4": 1}, 1, 1 << 62)
OFFERS = {"image": IMAGE, "directory": FOLDER}


def mount(filesystem: str = "") -> Capability:
    return Capability(AccessType.MOUNT, AccessMode.SINGLE_NODE_WRITER, filesystem)


BLOCK = Capability(AccessType.BLOCK, AccessMode.SINGLE_NODE_WRITER)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param({}, Parameters("directory"), id="default"),
        pytest.param({"backend": "image"}, Parameters("image"), id="backend"),
        pytest.param({"fstype": "xfs"}, Parameters("directory", "xfs"), id="fstype"),
        pytest.param({"fsType": "xfs"}, Parameters("directory", "xfs"), id="spelt otherwise"),
        pytest.param(
            {"csi.storage.k8s.io/fstype": "xfs"}, Parameters("directory", "xfs"), id="raw class"
        ),
        pytest.param(
            {"csi.storage.k8s.io/pvc/name": "data"}, Parameters("directory"), id="extra metadata"
        ),
    ],
)
def test_parameters_are_read(raw: dict[str, str], expected: Parameters) -> None:
    assert creation.parameters(raw, OFFERS, "directory") == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        pytest.param({"backend": "zfs"}, ["'backend'", "'zfs'", "directory, image"], id="value"),
        pytest.param({"backnd": "image"}, ["'backnd'", "unknown parameter"], id="name"),
        pytest.param({"backend": ""}, ["'backend'", "''"], id="empty"),
    ],
)
def test_a_wrong_parameter_is_named(raw: dict[str, str], words: list[str]) -> None:
    with pytest.raises(RpcError) as caught:
        creation.parameters(raw, OFFERS, "directory")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert all(word in caught.value.message for word in words)


@pytest.mark.parametrize(
    ("capabilities", "parameters", "offer", "expected"),
    [
        pytest.param((mount(),), Parameters("image"), IMAGE, "ext4", id="default"),
        pytest.param((mount("xfs"),), Parameters("image"), IMAGE, "xfs", id="capability"),
        pytest.param((mount(),), Parameters("image", "xfs"), IMAGE, "xfs", id="parameter"),
        pytest.param(
            (mount("ext4"),), Parameters("image", "xfs"), IMAGE, "ext4", id="capability first"
        ),
        pytest.param((BLOCK,), Parameters("image"), IMAGE, "", id="raw"),
        pytest.param((BLOCK, mount("xfs")), Parameters("image"), IMAGE, "xfs", id="both"),
        pytest.param((mount(), mount("xfs")), Parameters("image"), IMAGE, "xfs", id="one names it"),
        pytest.param((mount(),), Parameters("directory"), FOLDER, "ext4", id="folder"),
    ],
)
def test_the_file_system_follows_capability_then_parameter_then_backend(
    capabilities: tuple[Capability, ...], parameters: Parameters, offer: Offer, expected: str
) -> None:
    assert creation.filesystem(Wish("v", capabilities, parameters), offer) == expected


@pytest.mark.parametrize(
    ("capabilities", "offer", "words"),
    [
        pytest.param((mount(), BLOCK), FOLDER, "volume_capabilities[1]", id="no raw volumes"),
        pytest.param((mount("ext4"), mount("xfs")), IMAGE, "both ext4 and xfs", id="two kinds"),
        pytest.param((mount("zfs"),), IMAGE, "fs_type: 'zfs'", id="unknown"),
        pytest.param((mount("xfs"),), FOLDER, "ext4", id="not the node's"),
        pytest.param(
            (mount(),), dataclasses.replace(IMAGE, filesystems=()), "e2fsprogs", id="no programs"
        ),
    ],
)
def test_what_the_backend_lacks_is_named(
    capabilities: tuple[Capability, ...], offer: Offer, words: str
) -> None:
    with pytest.raises(RpcError) as caught:
        creation.filesystem(Wish("v", capabilities, Parameters(offer.name)), offer)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("required", "limit", "offer", "filesystem", "expected"),
    [
        pytest.param(0, 0, FOLDER, "ext4", GIB, id="nothing asked for"),
        pytest.param(0, 100, FOLDER, "ext4", 100, id="only a limit"),
        pytest.param(0, 5 * GIB, FOLDER, "ext4", GIB, id="a generous limit"),
        pytest.param(0, (8 << 20) + 1, IMAGE, "ext4", 8 << 20, id="a limit between two steps"),
        pytest.param(12345, 0, FOLDER, "ext4", 12345, id="exact"),
        pytest.param(12345, 12345, FOLDER, "ext4", 12345, id="exact with limit"),
        pytest.param((4 << 20) + 1, 0, IMAGE, "ext4", (4 << 20) + 4096, id="rounded up"),
        pytest.param(1, 0, IMAGE, "ext4", 4 << 20, id="at least what ext4 needs"),
        pytest.param(1, 0, IMAGE, "xfs", 300 << 20, id="at least what xfs needs"),
        pytest.param(1, 0, IMAGE, "", 4096, id="raw"),
    ],
)
def test_the_size_is_the_least_that_fits(
    required: int, limit: int, offer: Offer, filesystem: str, expected: int
) -> None:
    assert creation.size(required, limit, offer, filesystem) == expected


@pytest.mark.parametrize(
    ("required", "limit", "words"),
    [
        pytest.param(10, 5, "limit_bytes 5 is below", id="crossed"),
        pytest.param(1, 4096, "at least 4194304", id="below the minimum"),
        pytest.param((4 << 20) + 1, (4 << 20) + 1, "steps of 4096", id="between two steps"),
        pytest.param(1 << 45, 0, "at most", id="too large for any node"),
    ],
)
def test_impossible_sizes_are_out_of_range(required: int, limit: int, words: str) -> None:
    with pytest.raises(RpcError) as caught:
        creation.size(required, limit, IMAGE, "ext4")
    assert caught.value.code is Code.OUT_OF_RANGE
    assert caught.value.message.startswith("capacity_range.")
    assert words in caught.value.message


@given(
    required=st.integers(0, 1 << 44),
    limit=st.integers(0, 1 << 44),
    filesystem=st.sampled_from(["ext4", "xfs", ""]),
)
def test_a_size_always_lies_in_the_range(required: int, limit: int, filesystem: str) -> None:
    try:
        size = creation.size(required, limit, IMAGE, filesystem)
    except RpcError:
        least = max(required, IMAGE.minimum[filesystem])
        assert 0 < limit < -(-least // IMAGE.granularity) * IMAGE.granularity
        return
    assert size >= max(required, IMAGE.minimum[filesystem])
    assert not limit or size <= limit
    assert size % IMAGE.granularity == 0
