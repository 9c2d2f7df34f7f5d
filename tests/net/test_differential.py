"""Every configuration of a matrix through the reference plugins and through ours, compared.

Answers, links, addresses, routes and settings after ADD, the answer of CHECK, and what is left
after DEL must be equal. Where we differ on purpose, ``adjusted`` names it and says why.
``BITTS_MATRIX`` is how many drawn configurations there are beside those written down.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support import cluster, cnidaemon, cnimatrix, cnisnapshot, netns, peers, processes

pytestmark = [pytest.mark.root, pytest.mark.slow]

COUNT = int(os.environ.get("BITTS_MATRIX", "25"))
PLUGINS = ("bridge", "loopback", "ptp", "host-local", "static")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the reference plugins."""
    folder = tmp_path_factory.mktemp("reference")
    for name in PLUGINS:
        (folder / name).symlink_to(peers.plugin(name))
    return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cnidaemon.Daemon]:
    """One daemon for all configurations; its node is swept after each."""
    spaces = netns.Namespaces()
    spawner = processes.Processes(tmp_path_factory.mktemp("daemon"))
    folder = cluster.short_directory()
    made = cnidaemon.Daemon(spawner, spaces.make("ours"), folder)
    made.start()
    yield made
    spawner.close()
    spaces.close()
    cluster.remove_tree(folder)


def observe(
    plugins: pathlib.Path, host: str, pod: str, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Run ADD, CHECK and DEL (twice), and return everything that can be seen of them."""
    program = plugins / config["type"]
    found: dict[str, Any] = {}

    def call(command: str, document: Mapping[str, Any]) -> cnidaemon.Outcome:
        return cnidaemon.execute(program, command, document, host=host, pod=pod)

    added = call("ADD", config)
    found["add"] = cnisnapshot.outcome(added, pod)
    later = dict(config)
    if added.status == 0:
        later["prevResult"] = added.document
        found |= {"pod": cnisnapshot.pod(pod), "node": cnisnapshot.node(host)}
        if config["cniVersion"] >= "0.4.0":
            found["check"] = cnisnapshot.outcome(call("CHECK", later), pod)
        found["del"] = cnisnapshot.outcome(call("DEL", later), pod)
        found["del again"] = cnisnapshot.outcome(call("DEL", later), pod)
        found |= {"pod after": cnisnapshot.pod(pod), "node after": cnisnapshot.node(host)}
    return found


def adjusted(found: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Take out what differs on purpose."""
    for view in ("pod", "pod after"):
        if config["type"] == "ptp" and view in found:
            # Addresses of ptp skip duplicate address detection too: they are ours alone.
            found[view]["settings"] = "accept_dad is 0"
    add = found["add"]
    for verb in ("add", "check"):
        # The words of refusals are compared in tests of their own; here: the code.
        if found.get(verb, {}).get("status"):
            found[verb]["document"] = found[verb]["document"]["code"]
    if add["status"] == 0 and config["type"] == "loopback":
        add["document"].pop("dns", None)
    return found


@pytest.mark.parametrize(
    "config", list(cnimatrix.cases(COUNT)), ids=lambda config: cnimatrix.label(config)
)
def test_both_do_the_same(
    config: dict[str, Any],
    ours: cnidaemon.Daemon,
    reference: pathlib.Path,
    namespaces: netns.Namespaces,
    tmp_path: pathlib.Path,
) -> None:
    documents = []
    for side in ("theirs", "ours"):
        document = dict(config)
        if "ipam" in document:
            document["ipam"] = {**document["ipam"], "dataDir": str(tmp_path / side)}
        documents.append(document)
    node = namespaces.make("theirs")
    for each in (node, ours.host):
        sweep(each)
    theirs = observe(reference, node, namespaces.make("a"), documents[0])
    mine = observe(ours.plugins, ours.host, namespaces.make("b"), documents[1])
    assert cnisnapshot.differences(adjusted(mine, config), adjusted(theirs, config)) == []
    left = [sorted(p.name for p in (tmp_path / s).rglob("*")) for s in ("ours", "theirs")]
    assert left[0] == left[1]


def sweep(host: str) -> None:
    """Make the node as new, for the next configuration."""
    for name in netns.links(host):
        if name != "lo":
            netns.run(host, "ip", "link", "del", name, check=False)
    for key in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        netns.run(host, "sh", "-c", f"echo 0 > /proc/sys/net/{key}")
