"""IPAM plugins run as programs: what they gave is given back, wherever they are by then."""

import json
import pathlib
from typing import Any

import pytest
from support import cnidaemon, netns

pytestmark = pytest.mark.root

PROGRAM = """#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID" >>{record}
cat >/dev/null
[ "$CNI_COMMAND" != ADD ] || echo '{{"cniVersion": "1.1.0", "ips": [{{"address": "10.9.0.7/24"}}]}}'
"""


class Giver:
    """An IPAM plugin of a test's own, and what it was asked."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._record = folder / "record"
        self.folder = folder / "first"
        self.path = self.folder / "giver"
        self.folder.mkdir()
        self.path.write_text(PROGRAM.format(record=self._record))
        self.path.chmod(0o755)

    def asked(self) -> list[str]:
        """Return the commands since the last time."""
        found = self._record.read_text().splitlines() if self._record.exists() else []
        self._record.unlink(missing_ok=True)
        return found

    def move(self) -> pathlib.Path:
        """Put it elsewhere; returns the folder."""
        elsewhere = self.folder.parent / "second"
        elsewhere.mkdir()
        self.path = self.path.rename(elsewhere / "giver")
        return elsewhere


@pytest.fixture
def giver(tmp_path: pathlib.Path) -> Giver:
    return Giver(tmp_path)


@pytest.fixture
def config(daemon: cnidaemon.Daemon, giver: Giver) -> dict[str, Any]:
    """A network whose addresses a program gives."""
    return daemon.config("bridge", ipMasq=True, ipam={"type": "giver"})


@pytest.fixture
def pod(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, giver: Giver, config: dict[str, Any]
) -> str:
    """A container that was attached."""
    made = namespaces.make("pod")
    added = daemon.call("ADD", config, pod=made, path=str(giver.folder))
    assert added.status == 0, added.error
    assert giver.asked() == ["ADD c1"]
    return made


def collected(
    daemon: cnidaemon.Daemon, config: dict[str, Any], path: pathlib.Path
) -> cnidaemon.Outcome:
    return daemon.call("GC", {**config, "cni.dev/valid-attachments": []}, path=str(path))


def kept(daemon: cnidaemon.Daemon) -> list[str]:
    """Return what a daemon that starts now would know of."""
    daemon.stop()
    lines = (daemon.state / "journal").read_text().splitlines()
    documents = [json.loads(each.partition(" ")[2]) for each in lines]
    known = {str(each.get("k")): each["r"] for each in documents if each["r"] != "head"}
    daemon.start()
    return [key for key, last in known.items() if last != "gone"]


def test_gc_has_the_program_give_back_and_collect(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str
) -> None:
    done = collected(daemon, config, giver.folder)
    assert done.status == 0, done.error
    assert giver.asked() == ["DEL c1", "GC c1"]
    assert "eth0" not in netns.links(pod)


@pytest.mark.parametrize("command", ["GC", "DEL"])
def test_a_program_that_has_moved_is_found_where_the_caller_says(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str, command: str
) -> None:
    path = giver.move()
    if command == "GC":
        done = collected(daemon, config, path)
    else:
        done = daemon.call("DEL", config, pod=pod, path=str(path))
    assert done.status == 0, done.error
    assert "DEL c1" in giver.asked()


def test_gc_forgets_what_a_program_that_is_gone_would_have_to_give_back_and_says_so(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str
) -> None:
    giver.path.unlink()
    told = collected(daemon, config, giver.folder).error
    assert (
        'addresses of container c1, eth0 are not given back: failed to find plugin "giver"' in told
    )
    assert "free them where it keeps them" in told
    assert "eth0" not in netns.links(pod)
    assert cnidaemon.leftovers(daemon.host) == []
    again = collected(daemon, config, giver.folder).error
    assert again == f'999: failed to find plugin "giver" in path [{giver.folder}]'
    assert kept(daemon) == []


def test_del_waits_for_a_program_that_is_away(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str
) -> None:
    giver.path.rename(giver.folder / "away")
    removed = daemon.call("DEL", config, pod=pod, path=str(giver.folder))
    assert 'failed to find plugin "giver"' in removed.error
    assert cnidaemon.leftovers(daemon.host) == []
    (giver.folder / "away").rename(giver.path)
    assert daemon.call("DEL", config, pod=pod, path=str(giver.folder)).status == 0
    assert "DEL c1" in giver.asked()
    assert kept(daemon) == []


def test_del_needs_no_program_that_is_gone_and_that_nobody_names_any_more(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str
) -> None:
    """The network has another IPAM plugin by now: nothing would ever bring the old one back."""
    giver.path.unlink()
    now = {**config, **daemon.config("bridge", ipam="host-local")}
    assert daemon.call("DEL", now, pod=pod, path=str(giver.folder)).status == 0
    assert "Addresses are not given back" in daemon.log()
    assert "eth0" not in netns.links(pod)
    assert kept(daemon) == []


@pytest.mark.parametrize("comes_back", [True, False])
def test_what_only_a_missing_program_could_give_back_is_tried_for_a_while(
    daemon: cnidaemon.Daemon, giver: Giver, config: dict[str, Any], pod: str, *, comes_back: bool
) -> None:
    daemon.stop()
    daemon.start("--upkeep-interval=50ms", f"--abandon-after={'1h' if comes_back else '300ms'}")
    away = giver.path.rename(giver.folder / "away")
    assert daemon.call("DEL", config, pod=pod, path=str(giver.folder)).status == 1
    process = daemon.process
    assert process is not None
    process.wait_ready_blocking(lambda: "Cannot take apart" in daemon.log(), "a try")
    if comes_back:
        away.rename(giver.path)
        process.wait_ready_blocking(lambda: giver.asked() == ["DEL c1"], "the program's turn")
    else:
        said = "Addresses are not given back"
        process.wait_ready_blocking(lambda: said in daemon.log(), "giving up")
    assert kept(daemon) == []
