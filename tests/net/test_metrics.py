"""What the daemon tells of itself over HTTP."""

import pathlib
import re
import socket
import urllib.error
import urllib.request

import pytest
from support import cnidaemon, netns, processes, waiting

pytestmark = pytest.mark.root

PORT = 9100


def fetch(host: str, path: str) -> str:
    """Ask inside the node; returns the body, or the status of a refusal."""

    def ask() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.code)

    return netns.inside(host, ask)


def figures(text: str) -> dict[str, float]:
    """Return every sample of ours by its name and labels."""
    lines = [line for line in text.splitlines() if line.startswith("bitts_cni_")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_a_scrape_tells_what_was_done_and_what_is_left(
    namespaces: netns.Namespaces, spawner: processes.Processes, short_dir: pathlib.Path
) -> None:
    node = cnidaemon.Daemon(spawner, namespaces.make("node"), short_dir)
    netns.run(node.host, "ip", "link", "set", "lo", "up")
    node.start(f"--http-endpoint=127.0.0.1:{PORT}", "--upkeep-interval=50ms")
    assert fetch(node.host, "/healthz") == "ok"
    assert fetch(node.host, "/") == "404"
    config = node.config("bridge", ipam="host-local")
    pods = [namespaces.make(f"pod{number}") for number in range(3)]
    for number, pod in enumerate(pods):
        assert node.call("ADD", config, pod=pod, container=f"c{number}").status == 0
    assert node.call("ADD", config, pod=pods[0], container="c0").status == 1
    assert node.call("DEL", config, pod=pods[2], container="c2").status == 0
    assert node.call("GC", {**config, "cni.dev/valid-attachments": [
        {"containerID": "c0", "ifname": "eth0"}]}).status == 0  # fmt: skip
    found = figures(fetch(node.host, "/metrics"))
    kind = 'plugin="bridge",command="ADD",code='
    duration = "bitts_cni_operation_duration_seconds"
    assert found[f'{duration}_count{{{kind}"0"}}'] == 3
    assert found[f'{duration}_count{{{kind}"999"}}'] == 1
    assert found[f'{duration}_bucket{{{kind}"0",le="+Inf"}}'] == 3
    assert 0 < found[f'{duration}_sum{{{kind}"0"}}'] < 60
    assert found[f'{duration}_count{{plugin="bridge",command="DEL",code="0"}}'] == 1
    assert found['bitts_cni_attachments{network="tnet",plugin="bridge"}'] == 1
    assert found['bitts_cni_addresses_used{network="tnet"}'] == 1
    assert found['bitts_cni_addresses_free{network="tnet"}'] == 252
    assert found['bitts_cni_events_total{event="collected"}'] == 1
    assert found["bitts_cni_journal_records"] >= 12
    assert found["bitts_cni_attachments_unfinished"] == 0
    # What was cut off is counted by the next life.
    node.kill()
    assert node.call("DEL", config, pod=pods[0], container="c0").status == 0
    node.start(f"--http-endpoint=127.0.0.1:{PORT}", "--upkeep-interval=50ms")
    waiting.until_blocking(
        lambda: (
            figures(fetch(node.host, "/metrics"))['bitts_cni_events_total{event="intent"}'] == 1
        ),
        "intent carried out and counted",
    )


def test_nothing_is_served_over_http_by_default(daemon: cnidaemon.Daemon) -> None:
    listening = netns.run(daemon.host, "ss", "-Hltn")
    assert not re.search(r"LISTEN", listening)


def test_a_taken_port_ends_the_daemon_and_is_named(
    spawner: processes.Processes, daemon: cnidaemon.Daemon
) -> None:
    daemon.stop()
    netns.run(daemon.host, "ip", "link", "set", "lo", "up")
    with netns.inside(daemon.host, lambda: socket.create_server(("127.0.0.1", PORT))):
        second = daemon.spawn(f"--http-endpoint=127.0.0.1:{PORT}")
        waiting.until_blocking(lambda: not second.alive, "end of the second daemon")
    assert second.exit_code == 1
    assert "--http-endpoint" in second.output()
