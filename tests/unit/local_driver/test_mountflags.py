"""Mount options: words in, flags and data out."""

import pytest
from bitts.rpc.codes import Code, RpcError
from local_driver import mountflags
from local_driver.mountflags import MountFlags


@pytest.mark.parametrize(
    ("options", "read_only", "expected"),
    [
        pytest.param([], False, MountFlags(), id="none"),
        pytest.param([], True, MountFlags(1, 1), id="read-only by request"),
        pytest.param(["ro"], True, MountFlags(1, 1), id="read-only twice"),
        pytest.param(["noatime"], False, MountFlags(1024, 0x10), id="one word"),
        pytest.param(["nosuid,nodev", "noexec"], False, MountFlags(14, 14), id="lists"),
        pytest.param(["rw", "defaults", ""], False, MountFlags(), id="defaults say nothing"),
        pytest.param(["relatime"], False, MountFlags(1 << 21, 0), id="relatime"),
        pytest.param(["sync"], False, MountFlags(16, 0), id="of the file system"),
        pytest.param(
            ["discard", "commit=30", "discard"],
            False,
            MountFlags(0, 0, "discard,commit=30"),
            id="data",
        ),
    ],
)
def test_words_are_sorted_out(options: list[str], read_only: bool, expected: MountFlags) -> None:
    assert mountflags.parse(options, read_only=read_only) == expected


@pytest.mark.parametrize("word", ["bind", "remount", "rshared", "loop=/dev/loop0", "move"])
def test_words_that_change_what_is_mounted_are_refused(word: str) -> None:
    with pytest.raises(RpcError) as caught:
        mountflags.parse(["noatime", word])
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert word in caught.value.message


@pytest.mark.parametrize(
    ("words", "is_fine"), [(["ro", "noexec"], True), (["discard"], False), (["sync"], False)]
)
def test_a_shared_file_system_takes_options_of_the_mount_only(
    words: list[str],
    is_fine: bool,
) -> None:
    flags = mountflags.parse(words)
    if is_fine:
        mountflags.require_generic(flags, "directory")
        return
    with pytest.raises(RpcError) as caught:
        mountflags.require_generic(flags, "directory")
    assert words[0] in caught.value.message


def test_words_that_a_mount_does_not_follow_are_named() -> None:
    flags = mountflags.parse(["nosuid,noexec", "relatime", "discard"], read_only=True)
    assert flags.absent_from({"rw", "noexec"}) == ["nosuid"]
    assert flags.absent_from({"rw", "nosuid", "noexec", "nodev", "relatime"}) == []
    assert MountFlags().absent_from({"rw"}) == []


def test_a_rule_for_access_times_replaces_the_old_one() -> None:
    assert mountflags.parse(["strictatime"]).changes_access_time
    assert not mountflags.parse(["ro"]).changes_access_time
