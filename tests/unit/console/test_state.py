"""Folders of a stack: where they are, how long their paths may be, whose they must be."""

import pathlib

import pytest
from bitts_console import stack, state


def folders(tmp_path: pathlib.Path) -> state.Folders:
    return state.Folders(tmp_path / "state", tmp_path / "run")


def test_default_is_below_the_users_state_home() -> None:
    found = state.locate("", {"XDG_STATE_HOME": "/s"}, 7)
    assert found.state == pathlib.Path("/s/bitts/dev")


def test_without_state_home_it_is_below_home() -> None:
    assert state.locate("", {"HOME": "/h"}, 7).state == pathlib.Path("/h/.local/state/bitts/dev")


def test_runtime_folder_follows_from_the_state_folder_alone() -> None:
    one, same, other = (state.locate(given, {}, 7) for given in ("/a/b", "/a/x/../b", "/a/c"))
    assert one.runtime == same.runtime != other.runtime
    assert one.runtime.name.startswith("bitts-7-")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param("/run/user/7", "/run/user/7", id="short"),
        pytest.param("/run/" + "u" * 40, "/tmp", id="too-long"),
        pytest.param("relative", "/tmp", id="relative"),
        pytest.param("", "/tmp", id="empty"),
    ],
)
def test_runtime_base_leaves_room_for_sockets(offered: str, expected: str) -> None:
    assert state.runtime_base({"XDG_RUNTIME_DIR": offered}) == pathlib.Path(expected)


def test_no_socket_of_a_stack_is_deeper_than_the_limit_assumes() -> None:
    found = state.Folders(pathlib.Path("/s"), pathlib.Path("/r"))
    depth = len("/r")
    longest = max(
        len(str(path)) - depth
        for path in (
            stack.driver_socket(found),
            stack.introspection_socket(found, "csi-provisioner"),
            found.node_root("node-16") / "plugins_registry" / f".{stack.DRIVER_NAME}-reg.sock.new",
        )
    )
    assert longest <= state.DEEPEST_SOCKET


def test_prepare_makes_private_folders(tmp_path: pathlib.Path) -> None:
    made = folders(tmp_path)
    state.prepare(made)
    state.prepare(made)
    assert (made.state.stat().st_mode & 0o777, made.runtime.stat().st_mode & 0o777) == (
        0o700,
        0o700,
    )
    assert made.logs.is_dir()


def test_a_symbolic_link_in_place_of_the_runtime_folder_is_refused(tmp_path: pathlib.Path) -> None:
    made = folders(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    made.runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(state.StateError, match="belongs to somebody else"):
        state.prepare(made)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: pathlib.Path) -> None:
    made = folders(tmp_path)
    made.state.write_text("")
    with pytest.raises(state.StateError, match=f"{made.state}.*--dir"):
        state.prepare(made)
