"""Requests read and checked: every wrong field is refused by name."""

import pathlib
from collections.abc import Callable

import pytest
from bitts.csi import v1
from bitts.rpc.codes import Code, RpcError
from local_driver import listing, requests
from local_driver.creation import Offer
from local_driver.volumes import AccessMode, AccessType, Capability, Parameters, Requirement, Wish
from support import localdriver

Mode = localdriver.Mode
OFFERS = {
    "directory": Offer(
        "directory", frozenset({AccessType.MOUNT}), ("ext4",), {"ext4": 1}, 1, 1 << 62
    )
}


def wish(request: v1.CreateVolumeRequest, *, multi_node: bool = False) -> Wish:
    return requests.wish(request, OFFERS, "directory", multi_node=multi_node)


def test_a_whole_request_is_read() -> None:
    capability = localdriver.capability(fs_type="ext4", flags=["noatime"])
    request = localdriver.create_request(
        "v", size=10, limit=20, want=[capability], parameters={"backend": "directory"},
        requisite=[{"k": "a"}],
    )  # fmt: skip
    assert wish(request) == Wish(
        "v",
        (Capability(AccessType.MOUNT, AccessMode.SINGLE_NODE_WRITER, "ext4", ("noatime",)),),
        Parameters("directory"),
        10,
        20,
        Requirement(({"k": "a"},), ({"k": "a"},)),
    )


def test_a_bare_request_is_read() -> None:
    request = v1.CreateVolumeRequest(name="v", volume_capabilities=[localdriver.block_capability()])
    read = wish(request)
    assert (read.required, read.limit, read.requirement) == (0, 0, Requirement())
    assert read.access == {AccessType.BLOCK}


def changed(**changes: object) -> v1.CreateVolumeRequest:
    request = localdriver.create_request("v")
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def capability_with(change: Callable[[v1.VolumeCapability], None]) -> list[v1.VolumeCapability]:
    one = localdriver.capability()
    change(one)
    return [one]


@pytest.mark.parametrize(
    ("request_", "code", "field"),
    [
        pytest.param(changed(name=""), Code.INVALID_ARGUMENT, "name: required", id="no name"),
        pytest.param(changed(name="x" * 129), Code.INVALID_ARGUMENT, "name: ", id="long name"),
        pytest.param(changed(name="v\x1b[2J"), Code.INVALID_ARGUMENT, "name: ", id="control"),
        pytest.param(
            changed(volume_capabilities=[]), Code.INVALID_ARGUMENT, "volume_capabilities", id="none"
        ),
        pytest.param(
            changed(capacity_range=v1.CapacityRange(required_bytes=-1)),
            Code.OUT_OF_RANGE, "capacity_range.required_bytes", id="negative",
        ),
        pytest.param(
            changed(volume_content_source=v1.VolumeContentSource()),
            Code.INVALID_ARGUMENT, "volume_content_source", id="source",
        ),
        pytest.param(
            changed(parameters={"colour": "red"}), Code.INVALID_ARGUMENT, "'colour'", id="parameter"
        ),
        pytest.param(
            changed(volume_capabilities=capability_with(lambda c: setattr(c, "access_mode", None))),
            Code.INVALID_ARGUMENT, "volume_capabilities[0].access_mode", id="no mode",
        ),
        pytest.param(
            changed(volume_capabilities=capability_with(lambda c: setattr(c, "mount", None))),
            Code.INVALID_ARGUMENT, "volume_capabilities[0].access_type", id="no type",
        ),
        pytest.param(
            changed(volume_capabilities=[localdriver.capability(mode=Mode.UNKNOWN)]),
            Code.INVALID_ARGUMENT, "access_mode", id="unknown mode",
        ),
        pytest.param(
            changed(volume_capabilities=[localdriver.capability(mode=Mode.MULTI_NODE_MULTI_WRITER)]),
            Code.INVALID_ARGUMENT, "MULTI_NODE_MULTI_WRITER", id="several nodes",
        ),
        pytest.param(
            changed(
                volume_capabilities=capability_with(
                    lambda c: setattr(c.mount, "volume_mount_group", "staff")
                )
            ),
            Code.INVALID_ARGUMENT, "volume_mount_group", id="group",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(request_: v1.CreateVolumeRequest, code: Code, field: str) -> None:
    with pytest.raises(RpcError) as caught:
        wish(request_)
    assert caught.value.code is code
    assert field in caught.value.message


def test_modes_of_several_nodes_can_be_allowed() -> None:
    request = localdriver.create_request(
        "v", want=[localdriver.capability(mode=Mode.MULTI_NODE_MULTI_WRITER)]
    )
    assert wish(request, multi_node=True).capabilities[0].mode is AccessMode.MULTI_NODE_MULTI_WRITER


def test_every_mode_of_the_specification_has_its_name() -> None:
    assert {mode.value for mode in AccessMode} == {mode.name for mode in Mode} - {"UNKNOWN"}


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("0", 0), ("17", 17)])
def test_tokens(text: str, expected: int) -> None:
    assert listing.position(text) == expected


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9" * 30, " 1"])
def test_other_tokens_are_aborted(text: str) -> None:
    with pytest.raises(RpcError) as caught:
        listing.position(text)
    assert caught.value.code is Code.ABORTED


def test_paths() -> None:
    assert requests.path("/a/b", "target_path") == pathlib.Path("/a/b")
    for text in ("", "a/b", "/", "/a/../b", "/a\0b", "/" + "ä" * 2048):
        with pytest.raises(RpcError, match="target_path"):
            requests.path(text, "target_path")
