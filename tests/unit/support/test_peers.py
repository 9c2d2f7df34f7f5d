"""What the builder of upstream's programs reads out of a go.mod."""

import pytest
from support import peers

MANIFEST = """module example.test/x

go 1.26.0

tool k8s.io/kubernetes/cmd/kubectl

require k8s.io/kubernetes v1.37.2

require (
\tgithub.com/kubernetes-csi/csi-test/v5 v5.6.0 // indirect
)
"""


def test_version_of_a_single_requirement() -> None:
    assert peers.version(MANIFEST, "k8s.io/kubernetes/cmd/kubectl") == "v1.37.2"


def test_version_inside_a_block() -> None:
    package = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity"
    assert peers.version(MANIFEST, package) == "v5.6.0"


def test_kubernetes_programs_are_told_their_version_twice() -> None:
    flags = peers.linker_flags(MANIFEST, "k8s.io/kubernetes/cmd/kubectl")
    assert "k8s.io/client-go/pkg/version.gitVersion=v1.37.2" in flags
    assert "k8s.io/component-base/version.gitMinor=37" in flags


@pytest.mark.parametrize("name", sorted(path.name for path in peers.MODULES.iterdir()))
def test_every_module_names_one_tool_with_a_pinned_version(name: str) -> None:
    manifest = (peers.MODULES / name / "go.mod").read_text()
    tools = [line for line in manifest.splitlines() if line.startswith("tool ")]
    assert len(tools) == 1
    assert peers.version(manifest, tools[0].removeprefix("tool ")).startswith("v")
