"""A request that takes too long: its caller is told in time, and what comes of it is undone."""

import fcntl
import os
import pathlib

import pytest
from support import cnidaemon, netns, processes, waiting

pytestmark = pytest.mark.root


def test_a_caller_is_told_in_time_and_its_late_attachment_undone(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    node = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir)
    node.start("--deadline=4s")
    config = node.config("bridge", isGateway=True, ipam="host-local")
    pod, other = namespaces.make("pod"), namespaces.make("other")
    assert node.call("ADD", config, container="c2", pod=other).status == 0
    lock = os.open(node.ipam / "tnet" / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as the reference plugin holds it while it allocates
    try:
        outcome = node.call("ADD", config, pod=pod)
    finally:
        os.close(lock)
    assert outcome.status == 1
    assert outcome.document["code"] == 11
    assert "not done within 4 seconds, still at it" in outcome.document["msg"]
    waiting.until_blocking(lambda: "Undoing an ADD" in node.log(), "undoing")
    waiting.until_blocking(lambda: len(node.addresses()) == 1, "release")
    assert node.call("DEL", config, container="c2", pod=other).status == 0
    waiting.until_blocking(lambda: cnidaemon.leftovers(node.host) == [], "removal")
