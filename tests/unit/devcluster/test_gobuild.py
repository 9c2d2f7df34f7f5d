"""What the builder of Go programs reads out of a module, and where it puts the results."""

import pathlib

import pytest
from devcluster import gobuild
from support import peers

MANIFEST = """module example.test/x

go 1.26.0

tool k8s.io/kubernetes/cmd/kubectl

require k8s.io/kubernetes v1.37.2

require (
\tgithub.com/kubernetes-csi/csi-test/v5 v5.6.0 // indirect
)
"""


def module_at(folder: pathlib.Path, manifest: str, sums: str = "") -> pathlib.Path:
    (folder / "go.mod").write_text(manifest)
    (folder / "go.sum").write_text(sums)
    return folder


def test_version_of_a_single_requirement() -> None:
    assert gobuild.version(MANIFEST, "k8s.io/kubernetes/cmd/kubectl") == "v1.37.2"


def test_version_inside_a_block() -> None:
    package = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
    assert gobuild.version(MANIFEST, package) == "v5.6.0"


def test_a_package_of_no_required_module_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"example\.test/other"):
        gobuild.version(MANIFEST, "example.test/other")


def test_kubernetes_programs_are_told_their_version_twice() -> None:
    flags = gobuild.linker_flags(MANIFEST, "k8s.io/kubernetes/cmd/kubectl")
    assert "k8s.io/client-go/pkg/version.gitVersion=v1.37.2" in flags
    assert "k8s.io/component-base/version.gitMinor=37" in flags


def test_programs_of_a_block_are_found_by_name(tmp_path: pathlib.Path) -> None:
    manifest = (
        "module x\n\ntool (\n\tgo.etcd.io/etcd/server/v3\n\tk8s.io/kubernetes/cmd/kubelet\n)\n"
    )
    assert gobuild.tools(module_at(tmp_path, manifest)) == {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    }


def test_a_changed_pin_has_another_place(tmp_path: pathlib.Path) -> None:
    before = gobuild.place(module_at(tmp_path, MANIFEST), "kubectl")
    after = gobuild.place(module_at(tmp_path, MANIFEST, sums="x v1 h1:y=\n"), "kubectl")
    assert before != after
    assert before.name == after.name == "kubectl"


@pytest.mark.parametrize("name", sorted(path.name for path in peers.MODULES.iterdir()))
def test_every_peer_names_tools_with_pinned_versions(name: str) -> None:
    packages = gobuild.tools(peers.MODULES / name)
    manifest = (peers.MODULES / name / "go.mod").read_text()
    versions = [gobuild.version(manifest, package) for package in packages.values()]
    assert versions
    assert all(version.startswith("v") for version in versions)
