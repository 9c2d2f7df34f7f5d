"""The journal lost or damaged while containers run: they go on, and nothing of them stays."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from cni_daemon import records
from support import cnichains, cnidaemon, netns, processes, waiting

pytestmark = pytest.mark.root

PORT = 8080
WORD = b"still here"


@pytest.fixture
def node(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> cnidaemon.Daemon:
    """A daemon that looks at what nobody owns every few milliseconds."""
    flags = ("--upkeep-interval=50ms",)
    made = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, *flags)
    made.start()
    netns.run(made.host, "ip", "link", "set", "lo", "up")
    return made


def chain(node: cnidaemon.Daemon, port: int = PORT) -> cnichains.Chain:
    limit = {"egressRate": 10**9, "egressBurst": 10**7}
    mapping = {"hostPort": port, "containerPort": 80, "protocol": "tcp"}
    return cnichains.Chain(
        node,
        [
            cnichains.bridge(node, ipMasq=True, macspoofchk=True),
            {"type": "portmap", "runtimeConfig": {"portMappings": [mapping]}},
            {"type": "firewall"},
            {"type": "bandwidth", "runtimeConfig": {"bandwidth": limit}},
        ],
    )


def is_served(node: cnidaemon.Daemon, port: int = PORT) -> bool:
    return netns.inside(node.host, lambda: cnichains.ask("127.0.0.1", port)) == WORD


def lose(journal: pathlib.Path) -> None:
    journal.unlink()


def empty(journal: pathlib.Path) -> None:
    journal.write_bytes(b"")


def garble(journal: pathlib.Path) -> None:
    journal.write_bytes(bytes(range(256)) * 64)


def come_from_the_future(journal: pathlib.Path) -> None:
    """Have every record hold what this version does not know, as after a downgrade."""
    lines = journal.read_bytes().splitlines()
    documents = [dict(records.unseal(line)) for line in lines]
    for each in documents:
        if "undo" in each:
            each["undo"] = [["FoldSpace", {}]]
    journal.write_bytes(b"".join(map(records.seal, documents)))


@pytest.mark.parametrize("happens", [lose, empty, garble, come_from_the_future])
def test_a_lost_journal_disturbs_nobody_and_nothing_is_left(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces,
    happens: Callable[[pathlib.Path], None],
) -> None:  # fmt: skip
    stays, gone, other = (namespaces.make(each) for each in ("stays", "gone", "other"))
    lasting = chain(node)
    result = lasting.add(stays)
    chain(node, PORT + 1).add(gone, container="c2")
    before = cnidaemon.leftovers(node.host)
    server = netns.inside(stays, lambda: cnichains.Answering(80, WORD))
    try:
        node.kill()
        namespaces.remove(gone)
        happens(node.state / "journal")
        node.start()
        assert is_served(node)
        lasting.check(stays, result)
        left = cnidaemon.leftovers(node.host)
        assert set(left) < set(before)
        assert not [each for each in left if "10.88.0.3" in each], "of the one that has gone"
        assert set(node.addresses()) == {"10.88.0.2", "10.88.0.3"}, "until the DEL"
        refused = chain(node).attempt("ADD", other, container="c3")
        assert "is taken by another container" in refused.error
        assert chain(node).remove(other, container="c3") == []
    finally:
        server.close()
    assert lasting.remove(stays) == []
    assert chain(node).remove("", container="c2") == []
    assert "eth0" not in netns.links(stays)
    waiting.until_blocking(lambda: cnidaemon.leftovers(node.host) == [], "nothing left")
    assert node.addresses() == {}


def test_gc_takes_away_what_the_journal_does_not_know(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """An address is not given to the next one while the link of the former still stands."""
    valid, stale = namespaces.make("valid"), namespaces.make("stale")
    masquerading = cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True)])
    masquerading.add(valid)
    masquerading.add(stale, container="c2")
    node.kill()
    (node.state / "journal").unlink()
    node.start()
    request = masquerading.document(masquerading.plugins[0])
    request["cni.dev/valid-attachments"] = [{"containerID": "c1", "ifname": "eth0"}]
    assert node.call("GC", request).status == 0
    assert "eth0" in netns.links(valid)
    assert "eth0" not in netns.links(stale)
    assert set(node.addresses()) == {"10.88.0.2"}
    assert masquerading.remove(valid) == []
    waiting.until_blocking(lambda: cnidaemon.leftovers(node.host) == [], "nothing left")


def test_a_container_whose_namespace_is_kept_open_loses_its_link_by_its_del(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    """The runtime names no namespace any more, but somebody still holds it."""
    pod = namespaces.make("pod")
    alone = cnichains.Chain(node, [cnichains.bridge(node)])
    alone.add(pod)
    node.kill()
    (node.state / "journal").unlink()
    node.start()
    assert alone.remove("") == []
    assert "eth0" not in netns.links(pod)
    assert node.addresses() == {}


def flipped(data: bytes, line: int) -> bytes:
    """Return a journal of which one bit in the middle of a line is another."""
    lines = data.splitlines(keepends=True)
    damaged = bytearray(lines[line])
    damaged[len(damaged) // 2] ^= 1
    lines[line] = bytes(damaged)
    return b"".join(lines)


def test_a_bit_that_flipped_in_any_record_disturbs_nobody_and_nothing_is_left(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    pod = namespaces.make("pod")
    masquerading = cnichains.Chain(node, [cnichains.bridge(node, ipMasq=True)])
    result: Any = None
    line = 1
    while True:
        node.stop()
        (node.state / "journal").unlink()
        node.start()
        result = masquerading.add(pod)
        node.kill()
        journal = node.state / "journal"
        data = journal.read_bytes()
        if line == len(data.splitlines()):
            break
        journal.write_bytes(flipped(data, line))
        node.start()
        assert "The journal is damaged" in node.log()
        assert journal.with_suffix(".damaged").read_bytes() == flipped(data, line)
        masquerading.check(pod, result)
        assert "10.88.0." in "".join(node.addresses()), line
        assert "elements" in netns.run(
            node.host, "nft", "list", "map", "inet", "bitts_cni", "masq4"
        )
        assert masquerading.remove(pod) == []
        assert node.addresses() == {}, line
        waiting.until_blocking(lambda: cnidaemon.leftovers(node.host) == [], "nothing left")
        line += 1
    assert line > 3
    node.start()
    assert masquerading.remove(pod) == []
