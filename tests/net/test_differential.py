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
from support import cluster, cnichains, cnidaemon, cnimatrix, cnisnapshot, netns, peers, processes

pytestmark = [pytest.mark.root, pytest.mark.slow]

COUNT = int(os.environ.get("BITTS_MATRIX", "30"))
DEBIAN = pathlib.Path("/usr/lib/cni")
"""Where Debian's package containernetworking-plugins (1.1.1 in Debian 12) has its programs."""

PLUGINS = ("bridge", "loopback", "ptp", "host-local", "static", "tuning", "portmap")


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


class List:
    """A case as a runtime runs it: plugin after plugin, each handed the result before its own."""

    def __init__(self, plugins: pathlib.Path, host: str, pod: str, config: Mapping[str, Any],
                 folder: pathlib.Path) -> None:  # fmt: skip
        first = {key: value for key, value in config.items() if key != cnimatrix.THEN}
        head = {"cniVersion": config["cniVersion"], "name": config["name"]}
        then = [{**head, "dataDir": str(folder), **each} for each in config.get(cnimatrix.THEN, [])]
        self._plugins, self._host, self._pod = plugins, host, pod
        self.documents: list[dict[str, Any]] = [first, *then]

    def call(self, command: str, previous: Any = None) -> cnidaemon.Outcome:
        """Run a command through the list up to the first refusal; DEL goes backwards."""
        outcome = cnidaemon.Outcome(0, "")
        documents = self.documents[:: -1 if command == "DEL" else 1]
        for document in documents:
            handed = document if previous is None else {**document, "prevResult": previous}
            program = self._plugins / document["type"]
            outcome = cnidaemon.execute(program, command, handed, host=self._host, pod=self._pod)
            if outcome.status:
                break
            previous = outcome.document if command == "ADD" else previous
        return outcome


def observe(
    plugins: pathlib.Path, host: str, pod: str, config: Mapping[str, Any], folder: pathlib.Path
) -> dict[str, Any]:
    """Run ADD, CHECK and DEL (twice), and return everything that can be seen of them."""
    found: dict[str, Any] = {}
    case = List(plugins, host, pod, config, folder)
    added = case.call("ADD")
    found["add"] = cnisnapshot.outcome(added, pod)
    if added.status == 0:
        previous = added.document
        found |= {"pod": cnisnapshot.pod(pod), "node": cnisnapshot.node(host)}
        if any(each["type"] == "portmap" for each in case.documents):
            found["published"] = answered(host, pod)
        if config["cniVersion"] >= "0.4.0":
            found["check"] = cnisnapshot.outcome(case.call("CHECK", previous), pod)
        found["del"] = cnisnapshot.outcome(case.call("DEL", previous), pod)
        found["del again"] = cnisnapshot.outcome(case.call("DEL", previous), pod)
        found |= {"pod after": cnisnapshot.pod(pod), "node after": cnisnapshot.node(host)}
    elif len(case.documents) > 1:
        case.call("DEL")  # as runtimes do; of lists nothing else is compared then
    return found


def answered(host: str, pod: str) -> list[str]:
    """Return what the published port says to the node, by the gateway's address and by lo's."""
    server = netns.inside(pod, lambda: cnichains.Answering(cnimatrix.CONTAINER_PORT, b"here"))
    try:
        return [
            netns.inside(host, lambda to=to: cnichains.ask(to, cnimatrix.HOST_PORT)).decode()  # type: ignore[misc]
            for to in ("10.77.0.1", "127.0.0.1")
        ]
    finally:
        server.close()


def adjusted(found: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Take out what differs on purpose."""
    for view in ("pod", "pod after"):
        if config["type"] == "ptp" and view in found:
            # Addresses of ptp skip duplicate address detection too: they are ours alone.
            found[view]["settings"] = "accept_dad is 0"
    ranges = config.get("ipam", {}).get("ranges", [])
    if config.get("ipMasq") and sum(":" not in each[0]["subnet"] for each in ranges) > 1:
        # Of several addresses of one family the reference's iptables rules share a chain, which
        # it cannot remove with the first: its DEL fails, and succeeds when called again.
        found.pop("del", None)
    add = found["add"]
    for verb in ("add", "check"):
        # The words of refusals are compared in tests of their own; here: the code.
        if found.get(verb, {}).get("status"):
            found[verb]["document"] = found[verb]["document"]["code"]
    if add["status"] == 0 and not add["document"].get("dns"):
        add["document"].pop("dns", None)  # the reference's loopback, and release 1.1.1, tell {}
    return found


def compared(
    config: dict[str, Any], ours: cnidaemon.Daemon, reference: pathlib.Path,
    namespaces: netns.Namespaces, tmp_path: pathlib.Path,
) -> list[str]:  # fmt: skip
    """Run a case on both sides and return what differs, reservations on disk counted."""
    documents = []
    for side in ("theirs", "ours"):
        document = dict(config)
        if "ipam" in document:
            document["ipam"] = {**document["ipam"], "dataDir": str(tmp_path / side)}
        documents.append(document)
    node = namespaces.make("theirs")
    for each in (node, ours.host):
        sweep(each)
    kept = tmp_path.parent / f"{tmp_path.name}-tuning"
    theirs = observe(reference, node, namespaces.make("a"), documents[0], kept)
    mine = observe(ours.plugins, ours.host, namespaces.make("b"), documents[1], kept)
    assert mine.get("del", {"status": 0})["status"] == 0
    found = cnisnapshot.differences(adjusted(mine, config), adjusted(theirs, config))
    left = [sorted(p.name for p in (tmp_path / s).rglob("*")) for s in ("ours", "theirs")]
    return found + cnisnapshot.differences(left[0], left[1], "/disk")


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
    assert compared(config, ours, reference, namespaces, tmp_path) == []


@pytest.mark.parametrize(
    "config", list(cnimatrix.cases(0)), ids=lambda config: cnimatrix.label(config)
)
def test_debian_s_release_does_the_same(
    config: dict[str, Any],
    ours: cnidaemon.Daemon,
    namespaces: netns.Namespaces,
    tmp_path: pathlib.Path,
) -> None:
    """A second opinion: another release, built by others."""
    found = compared(config, ours, DEBIAN, namespaces, tmp_path)
    reason = cnimatrix.NOT_IN_DEBIAN.get(cnimatrix.label(config))
    assert bool(found) == bool(reason), found


def sweep(host: str) -> None:
    """Make the node as new, for the next configuration."""
    for name in netns.links(host):
        if name != "lo":
            netns.run(host, "ip", "link", "del", name, check=False)
    for key in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        netns.run(host, "sh", "-c", f"echo 0 > /proc/sys/net/{key}")
