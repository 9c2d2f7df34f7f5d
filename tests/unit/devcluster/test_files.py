"""What a cluster writes into its folder, and reads there again."""

import pathlib

import pytest
from devcluster import files


def test_the_port_of_an_earlier_run_is_known(tmp_path: pathlib.Path) -> None:
    assert files.former_port(tmp_path) == 0
    path = tmp_path / "kubeconfig"
    files.write_kubeconfig(path, "https://127.0.0.1:4711", tmp_path / "ca.crt", "secret")
    assert files.former_port(tmp_path) == 4711


@pytest.mark.parametrize("text", ["", "server: https://10.0.0.1:1\n", "\udcff"])
def test_a_file_that_is_not_ours_names_no_port(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text, errors="surrogateescape")
    assert files.former_port(tmp_path) == 0
