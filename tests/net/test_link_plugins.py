"""Plugins that make or move links, beside the reference: the same for every configuration.

One daemon and one container of ours serve all, since nothing may stay. Kinds of links that this
kernel lacks are tried in the test machine.
"""

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from bitts.cni.errors import Code
from support import (
    cluster,
    cnidaemon,
    cnilinks,
    cnimatrix,
    cnisnapshot,
    kernelkinds,
    netns,
    processes,
)  # fmt: skip

pytestmark = [pytest.mark.root, pytest.mark.builds("cni-plugins")]


@dataclass(frozen=True, slots=True)
class Ours:
    """A daemon on a prepared node, and the one container that all cases attach and detach."""

    daemon: cnidaemon.Daemon
    pod: str
    before: tuple[Any, Any]

    def now(self) -> tuple[Any, Any]:
        """Return what can be seen of container and node."""
        return cnisnapshot.pod(self.pod), cnilinks.devices(self.daemon.host)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    spaces = netns.Namespaces()
    spawner = processes.Processes(tmp_path_factory.mktemp("daemon"))
    folder = cluster.short_directory()
    daemon = cnidaemon.Daemon(spawner, spaces.make("ours"), folder)
    pod = spaces.make("pod")
    cnilinks.prepare(daemon.host, pod)
    daemon.start()
    yield Ours(daemon, pod, (cnisnapshot.pod(pod), cnilinks.devices(daemon.host)))
    spawner.close()
    spaces.close()
    cluster.remove_tree(folder)


class Reference:
    """The reference plugins with a node and a container, which they may leave in any state."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.plugins = cnilinks.reference(folder, *cnimatrix.LINKS)
        self.spaces = netns.Namespaces()
        self.renew()

    def renew(self) -> None:
        """Make both anew."""
        self.spaces.close()
        self.node, self.pod = self.spaces.make("theirs"), self.spaces.make("pod")
        cnilinks.prepare(self.node, self.pod)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    made = Reference(tmp_path_factory.mktemp("reference"))
    yield made
    made.spaces.close()


def cases() -> Iterator[Any]:
    for kind, configs in cnimatrix.LINKS.items():
        needed = [kind] if kind in kernelkinds.KINDS else []
        for config in configs:
            name = f"{kind} {' '.join(f'{key}={value}' for key, value in config.items())}"
            yield pytest.param(kind, config, id=name[:80], marks=pytest.mark.kernel(kinds=needed))
    labelled = {"selinuxContext": "system_u:object_r:t:s0", "multiQueue": True, "mac": cnilinks.MAC}
    reason = "both refuse a context where there is no SELinux"
    yield pytest.param(
        "tap", labelled, id="tap with a context", marks=pytest.mark.guest(reason=reason)
    )


@pytest.mark.parametrize(("kind", "keys"), list(cases()))
def test_both_do_the_same(
    ours: Ours,
    reference: Reference,
    kind: str,
    keys: dict[str, Any],
    tmp_path: pathlib.Path,
) -> None:
    config = {"cniVersion": "1.0.0", "name": "lnet", "type": kind, **keys}
    program, node = ours.daemon.plugins / kind, ours.daemon.host
    documents = [cnilinks.addressed(config, tmp_path / side) for side in ("ours", "theirs")]
    mine = cnilinks.observed(program, node, ours.pod, documents[0])
    theirs = cnilinks.observed(
        reference.plugins / kind, reference.node, reference.pod, documents[1]
    )
    if "refused" in theirs or kind == "host-device":
        reference.renew()  # links and addresses stay
    after = (mine["after"], mine["node after"]) if "add" in mine else ours.now()
    assert after == ours.before
    assert cnisnapshot.differences(adjusted(mine, config), adjusted(theirs, config)) == []
    assert list((tmp_path / "ours").rglob("10.*")) == []


_UNNAMED = 999
"""The reference's code for all mistakes in its keys; ours tells those that are out of range."""


def adjusted(found: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Take out what differs on purpose."""
    if "refused" in found:  # the reference leaves links, and we do not
        code = found["refused"]
        return {"refused": _UNNAMED if code == Code.INVALID_CONFIG else code}
    if config["type"] == "tap" and config.get("owner") and config.get("group"):
        found["pod"]["links"]["eth0"]["mtu"] = found["mac"] = "theirs forgets what was asked for"
    if config["type"] == "ipvlan" and "master" not in config:
        found["check"] = "theirs looks for a master without a name"
    if config["type"] == "host-device":
        found["again"] = "theirs fails when the device is back already"
        found["node after"].pop("hd0")  # ours has its alias again
    return found
