"""The list of nodes."""

import contextlib
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_driver.cluster import roster
from local_driver.roles import NodesOptions

NODE = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
HOST = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
ADDRESS = st.tuples(HOST, st.integers(1, 65535))


@given(nodes=st.dictionaries(NODE, ADDRESS), separator=st.sampled_from([",", "\n", " ,\n# x\n"]))
def test_what_is_listed_is_read(nodes: dict[str, tuple[str, int]], separator: str) -> None:
    text = separator.join(f"{node}={host}:{port}" for node, (host, port) in nodes.items())
    assert roster.parse(text, "") == nodes


@given(text=st.text(max_size=60), template=st.sampled_from(["", "{node}.net:9"]))
def test_whatever_is_listed_is_read_or_refused(text: str, template: str) -> None:
    with contextlib.suppress(ValueError):
        found = roster.parse(text, template)
        assert all(host and port for host, port in found.values())


def test_a_template_gives_addresses_to_bare_names() -> None:
    found = roster.parse("a, b=c:1  # as yet", "{node}.net:9")
    assert found == {"a": ("a.net", 9), "b": ("c", 1)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "'a' has no address"),
        ("a=b", "write host:port"),
        ("a=:1", "needs both"),
        ("a=b:0", "needs both"),
        ("a b=c:1", "is no node's name"),
        ("../x=c:1", "is no node's name"),
        (f"{'x' * 64}=c:1", "is no node's name"),
        ("a=b:1,a=b:2", "node 'a' has two addresses"),
    ],
)
def test_a_wrong_entry_is_quoted(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        roster.parse(text, "")


def test_nodes_whose_ids_would_be_confused_are_refused(tmp_path: pathlib.Path) -> None:
    text = "nodes 'node-31705' and 'node-40730' share their digest"
    with pytest.raises(ValueError, match=text):
        roster.parse("node-31705=h:1,node-40730=h:2", "")
    path = tmp_path / "nodes"
    path.write_text("node-31705=h:1\n")
    nodes = roster.Roster(NodesOptions("node-40730=h:2", str(path), ""))
    assert list(nodes.current()) == ["node-40730"]


def test_a_file_is_followed_and_a_wrong_one_changes_nothing(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nodes"
    nodes = roster.Roster(NodesOptions("fixed=h:1", str(path), ""))
    assert nodes.current() == {"fixed": ("h", 1)}
    path.write_text("a=h:2\n")
    assert nodes.current() == {"fixed": ("h", 1), "a": ("h", 2)}
    path.write_text("a=h:2\nb: wrong\n")
    assert nodes.current() == {"fixed": ("h", 1), "a": ("h", 2)}
    path.unlink()
    assert nodes.current() == {"fixed": ("h", 1), "a": ("h", 2)}
    path.write_text("b=h:3\n")
    assert nodes.current() == {"fixed": ("h", 1), "b": ("h", 3)}


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(ValueError, match="--nodes: 'a' has no address"):
        roster.Roster(NodesOptions("a", "", ""))
