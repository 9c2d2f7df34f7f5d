"""The list of sandboxes as containerd itself tells it: judged by the real thing."""

import json
import pathlib

import pytest
from devcluster import gobuild, kubernetes
from support import building, cnidaemon, netns, processes, waiting

pytestmark = [pytest.mark.root, pytest.mark.builds(building.KUBERNETES)]

CONFIGURATION = """version = 3
root = "{folder}/root"
state = "{folder}/run"
[grpc]
  address = "{folder}/c.sock"
[ttrpc]
  address = "{folder}/t.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
[plugins.'io.containerd.nri.v1.nri']
  disable = true  # its socket would be the machine's
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{folder}/bin"]
  conf_dir = "{folder}/net.d"
"""


def test_what_containerd_has_no_sandbox_for_is_released(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    try:
        program = gobuild.build(kubernetes.RUNTIME, "containerd")
    except gobuild.ToolchainError as missing:
        pytest.skip(f"no containerd: {missing}")
    path = short_dir / "containerd.toml"
    path.write_text(CONFIGURATION.format(folder=short_dir))
    socket = short_dir / "c.sock"
    flags = (f"--runtime-endpoint=unix://{socket}", "--runtime-interval=50ms",
             "--runtime-grace=10ms")  # fmt: skip
    node = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, *flags)
    node.start()
    config = node.config("bridge", ipMasq=True, ipam="host-local")
    gone, stays = namespaces.make("gone"), namespaces.make("stays")
    for pod, container in ((gone, "gone"), (stays, "stays")):
        assert node.call("ADD", config, pod=pod, container=container).status == 0
    namespaces.remove(gone)
    waiting.until_blocking(
        lambda: "does not list its sandboxes" in node.log(), "a question to nobody"
    )
    assert len(node.addresses()) == 2, json.dumps(node.addresses())
    runtime = spawner.spawn([str(program), f"--config={path}"], name="containerd")
    runtime.wait_ready_blocking(lambda: len(node.addresses()) == 1, "release", timeout=60)
    assert node.addresses().popitem()[1].startswith("stays")
