"""Attachments that the runtime has forgotten are released, living ones never."""

import pathlib
from collections.abc import Iterator

import pytest
from support import cnidaemon, netns, processes, runtimes, waiting

pytestmark = pytest.mark.root


@pytest.fixture
def runtime(short_dir: pathlib.Path) -> Iterator[runtimes.Runtime]:
    made = runtimes.Runtime(short_dir / "cri.sock")
    yield made
    made.stop()


@pytest.fixture
def node(
    namespaces: netns.Namespaces,
    spawner: processes.Processes,
    short_dir: pathlib.Path,
    runtime: runtimes.Runtime,
) -> cnidaemon.Daemon:
    """A daemon that asks the runtime every few milliseconds."""
    flags = (f"--runtime-endpoint={runtime.address}", "--runtime-interval=20ms")
    return cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir, *flags)


def attach(node: cnidaemon.Daemon, pod: str, container: str) -> None:
    config = node.config("bridge", ipMasq=True, isGateway=True, ipam="host-local")
    outcome = node.call("ADD", config, pod=pod, container=container)
    assert outcome.status == 0, outcome.stdout


def rounds(runtime: runtimes.Runtime, count: int) -> None:
    """Wait until the runtime was asked so many times more."""
    before = runtime.asked
    waiting.until_blocking(lambda: runtime.asked >= before + count, "questions to the runtime")


def test_only_what_the_runtime_does_not_know_and_whose_namespace_is_gone_is_released(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, runtime: runtimes.Runtime
) -> None:
    known, unknown, stopped, lost = (namespaces.make(each) for each in "abcd")
    runtime.start({"known", "stopped"})
    node.start("--runtime-grace=10ms")
    for pod, container in ((known, "known"), (unknown, "unknown"), (stopped, "stopped"),
                           (lost, "lost")):  # fmt: skip
        attach(node, pod, container)
    namespaces.remove(stopped)  # the runtime still has it, and will call DEL
    namespaces.remove(lost)
    owners = {"known", "unknown", "stopped"}
    waiting.until_blocking(
        lambda: {each.split()[0] for each in node.addresses().values()} == owners, "release"
    )
    rounds(runtime, 5)
    assert {each.split()[0] for each in node.addresses().values()} == owners
    assert "10.88.0.5" not in "".join(cnidaemon.leftovers(node.host))
    assert "Releasing what belongs to no sandbox" in node.log()


def test_a_path_that_leads_to_another_namespace_by_now_counts_as_gone(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, runtime: runtimes.Runtime
) -> None:
    runtime.start({"other"})
    node.start("--runtime-grace=10ms")
    pod, other = namespaces.make("pod"), namespaces.make("other")
    attach(node, pod, "c1")
    netns.run(other, "umount", pod)
    netns.run(other, "mount", "--bind", other, pod)
    waiting.until_blocking(lambda: not node.addresses(), "release")


def test_a_runtime_that_does_not_answer_gives_no_verdict(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, runtime: runtimes.Runtime
) -> None:
    node.start("--runtime-grace=10ms")
    pod = namespaces.make("pod")
    attach(node, pod, "c1")
    namespaces.remove(pod)
    runtime.is_failing = True
    runtime.start()
    rounds(runtime, 3)
    assert node.log().count("The runtime does not list its sandboxes") == 1
    assert len(node.addresses()) == 1
    runtime.is_failing = False
    waiting.until_blocking(lambda: not node.addresses(), "release")


def test_what_is_missed_for_the_first_time_gets_grace(
    node: cnidaemon.Daemon, namespaces: netns.Namespaces, runtime: runtimes.Runtime
) -> None:
    runtime.start()
    node.start("--runtime-grace=1h")
    pod = namespaces.make("pod")
    attach(node, pod, "c1")
    namespaces.remove(pod)
    rounds(runtime, 3)
    assert len(node.addresses()) == 1
