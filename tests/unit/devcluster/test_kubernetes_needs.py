"""What a machine lacks for nodes is said before one starts."""

import pathlib

import pytest
from devcluster.kubernetes import needs, podnetwork


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty PATH: no compiler is on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_compiler_the_daemon_s_own_words_and_the_way_around_are_told(
    path: pathlib.Path,
) -> None:
    assert list(path.iterdir()) == []
    lacks = needs.missing_network(podnetwork.DAEMON)
    assert "install gcc" in lacks
    assert "--pod-network=reference" in lacks


@pytest.mark.parametrize("name", ["cc", "gcc", "clang"])
def test_a_compiler_is_enough(path: pathlib.Path, name: str) -> None:
    compiler = path / name
    compiler.touch(0o755)
    assert needs.missing_network(podnetwork.DAEMON) == ""


def test_the_shim_goes_where_containerd_looks_first() -> None:
    (folder,) = (
        word.partition("=")[2] for word in podnetwork.install() if word.startswith("--plugin-dir")
    )
    assert podnetwork.plugin_folders(podnetwork.DAEMON)[0] == folder
    assert folder not in podnetwork.plugin_folders(podnetwork.REFERENCE)
