"""What node calls mean for the mounts there are."""

import pathlib

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import mountflags, publishing
from local_driver.mounts import Mount
from local_driver.volumes import AccessMode

STAGING, TARGET = pathlib.Path("/staging"), pathlib.Path("/target")


def mount(point: str, *options: str) -> Mount:
    return Mount(
        "7:1", "/", point, frozenset(options or {"rw"}), "ext4", "/dev/loop1", frozenset({"rw"})
    )


STAGED = mount("/staging")
OTHER = Mount("8:1", "/", "/target", frozenset({"rw"}), "xfs", "/dev/sda1", frozenset({"rw"}))
SINGLE = AccessMode.SINGLE_NODE_SINGLE_WRITER


@pytest.mark.parametrize(
    ("top", "own", "read_only", "expected"),
    [
        pytest.param(None, [], False, False, id="bare"),
        pytest.param(None, [mount("/elsewhere")], False, False, id="staged elsewhere"),
        pytest.param(STAGED, [STAGED], False, True, id="staged"),
        pytest.param(STAGED, [STAGED], True, True, id="staged with more than is wanted"),
        pytest.param(
            mount("/staging", "ro"), [mount("/staging", "ro")], True, True, id="read-only"
        ),
    ],
)
def test_staging(top: Mount | None, own: list[Mount], read_only: bool, expected: bool) -> None:
    assert publishing.is_staged(STAGING, top, own, read_only=read_only) is expected


@pytest.mark.parametrize(
    ("top", "own", "code"),
    [
        pytest.param(OTHER, [], Code.FAILED_PRECONDITION, id="another mount in the way"),
        pytest.param(
            mount("/staging", "ro"),
            [mount("/staging", "ro")],
            Code.ALREADY_EXISTS,
            id="other options",
        ),
    ],
)
def test_staging_refused(top: Mount, own: list[Mount], code: Code) -> None:
    with pytest.raises(RpcError) as caught:
        publishing.is_staged(STAGING, top, own, read_only=False)
    assert caught.value.code is code


def test_a_mount_with_other_options_is_not_the_one_that_is_asked_for() -> None:
    flags = mountflags.parse(["noexec"])
    publishing.require_options("target_path", mount("/target", "rw", "noexec", "nosuid"), flags)
    with pytest.raises(RpcError, match="noexec") as caught:
        publishing.require_options("target_path", mount("/target"), flags)
    assert caught.value.code is Code.ALREADY_EXISTS


@pytest.mark.parametrize(
    ("top", "own", "mode", "read_only", "expected"),
    [
        pytest.param(None, [STAGED], SINGLE, False, False, id="first target"),
        pytest.param(mount("/target"), [STAGED, mount("/target")], SINGLE, False, True, id="again"),
        pytest.param(
            None, [STAGED, mount("/b")], AccessMode.SINGLE_NODE_MULTI_WRITER, False, False,
            id="second target",
        ),
        pytest.param(
            mount("/target", "ro"), [mount("/target", "ro")], SINGLE, True, True, id="ro again"
        ),
    ],
)  # fmt: skip
def test_publishing(
    top: Mount | None,
    own: list[Mount],
    mode: AccessMode,
    read_only: bool,
    expected: bool,
) -> None:
    found = publishing.is_published(TARGET, STAGING, top, own, mode, read_only=read_only)
    assert found is expected


@pytest.mark.parametrize(
    ("top", "own", "read_only", "code"),
    [
        pytest.param(OTHER, [STAGED], False, Code.FAILED_PRECONDITION, id="another mount"),
        pytest.param(None, [STAGED, mount("/b")], False, Code.FAILED_PRECONDITION, id="second"),
        pytest.param(
            mount("/target"), [mount("/target")], True, Code.ALREADY_EXISTS, id="was writable"
        ),
        pytest.param(
            mount("/target", "ro"),
            [mount("/target", "ro")],
            False,
            Code.ALREADY_EXISTS,
            id="was ro",
        ),
    ],
)
def test_publishing_refused(
    top: Mount | None,
    own: list[Mount],
    read_only: bool,
    code: Code,
) -> None:
    with pytest.raises(RpcError) as caught:
        publishing.is_published(TARGET, STAGING, top, own, SINGLE, read_only=read_only)
    assert caught.value.code is code
