"""STATUS and VERSION are answered whatever else goes on, since by them a node is judged."""

import fcntl
import os
import pathlib

import pytest
from cni_daemon import server
from support import cnidaemon, netns, waiting

pytestmark = pytest.mark.root


def program(daemon: cnidaemon.Daemon, name: str, script: str) -> str:
    """Install an IPAM plugin of the given shell script."""
    path = daemon.plugins / name
    path.write_text(f"#!/bin/sh\ncat >/dev/null\n{script}\n")
    path.chmod(0o755)
    return name


@pytest.fixture
def gate(daemon: cnidaemon.Daemon) -> pathlib.Path:
    """A pipe; the plugin ``slow`` waits until somebody opens it for writing."""
    path = daemon.folder / "gate"
    os.mkfifo(path)
    program(daemon, "slow", f"echo x >>{daemon.folder}/begun\n: <{path}\nexit 1")
    return path


def test_questions_are_answered_while_every_worker_is_busy(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces, gate: pathlib.Path
) -> None:
    pod = namespaces.make("pod")
    slow = daemon.config("bridge", ipam={"type": "slow"})
    waiting_for_it = server.WORKERS + server.RESERVED + 4
    runs = [
        daemon.begin("ADD", slow, pod=pod, ifname=f"eth{number}")
        for number in range(waiting_for_it)
    ]
    begun = daemon.folder / "begun"
    waiting.until_blocking(
        lambda: begun.exists() and begun.read_text().count("x") == server.WORKERS, "the workers"
    )
    for question in ("STATUS", "VERSION", "STATUS"):
        answered = daemon.call(question, daemon.config("bridge", ipam="host-local"))
        assert answered.status == 0, answered.error
    assert begun.read_text().count("x") == server.WORKERS, "nobody had to end for the answers"
    with gate.open("r+b", buffering=0):  # whoever opens it for reading goes on
        outcomes = [run() for run in runs]
    others = [each.error for each in outcomes if "netplugin failed" not in each.error]
    assert not others
    assert begun.read_text().count("x") >= waiting_for_it, "those that waited had their turn"


def test_status_does_not_wait_for_a_store_that_others_hold(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    config = daemon.config("bridge", ipam="host-local")
    assert daemon.call("ADD", config, pod=namespaces.make("pod")).status == 0
    lock = os.open(daemon.ipam / "tnet" / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        adding = daemon.begin("ADD", config, pod=namespaces.make("next"), container="c2")
        answered = daemon.call("STATUS", config)
        assert list(daemon.addresses()) == ["10.88.0.2"], "the ADD waits still"
    finally:
        os.close(lock)
    assert answered.status == 0, answered.error
    assert adding().status == 0


def test_a_program_that_prints_without_end_is_stopped(
    daemon: cnidaemon.Daemon, namespaces: netns.Namespaces
) -> None:
    loud = program(daemon, "loud", "yes")
    pod = namespaces.make("pod")
    refused = daemon.call("ADD", daemon.config("bridge", ipam={"type": loud}), pod=pod)
    assert "plugin loud printed more than 1048576 bytes, and was killed" in refused.error
    assert daemon.process is not None
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < 200 * 1024, f"{peak} KiB"
