"""What a cluster of Kubernetes' own programs is made of: names, addresses, command lines."""

import csv
import ipaddress
import json
import pathlib
import tomllib

import msgspec
import pytest
from devcluster.kubernetes import (
    addresses,
    binaries,
    controlplane,
    identities,
    lastwords,
    layout,
    nodeplan,
    nodes,
    podnetwork,
    programs,
    tunnel,
)

DIRECTORY = pathlib.Path("/tmp/c")
LAYOUT = layout.layout(DIRECTORY, None)
PORTS = controlplane.Ports(etcd=1001, api=1002)
NODES = addresses.nodes(3)


def test_nodes_share_nothing() -> None:
    every = addresses.nodes(addresses.MOST_NODES)
    assert len({node.address for node in every} | {addresses.GATEWAY}) == len(every) + 1
    subnets = [ipaddress.ip_network(node.pods) for node in every]
    assert all(subnet.subnet_of(addresses.PODS) for subnet in subnets)  # type: ignore[arg-type]
    assert len(set(subnets)) == len(every)
    assert all(len(node.port) <= 15 for node in every), "longer than an interface's name may be"


def test_more_nodes_than_addresses_are_refused_by_the_flag_s_name() -> None:
    with pytest.raises(ValueError, match="--nodes: at most 32, not 33"):
        addresses.nodes(33)


def test_a_node_routes_to_everybody_s_pods_but_its_own() -> None:
    commands = addresses.node_commands(NODES[0], NODES)
    assert f"route add {NODES[1].pods} via {NODES[1].address}" in commands
    assert not any(NODES[0].pods in command for command in commands)


def test_the_same_folder_has_the_same_identity_and_another_has_another() -> None:
    assert layout.layout(DIRECTORY, None).identity == LAYOUT.identity
    assert layout.layout(pathlib.Path("/tmp/d"), None).identity != LAYOUT.identity


def test_a_folder_too_long_for_sockets_is_refused_with_the_length_that_is_not() -> None:
    with pytest.raises(ValueError, match=r"--nodes-dir: /x+ .*at most 39 bytes"):
        layout.check(layout.layout(DIRECTORY, pathlib.Path("/" + "x" * 39)))
    layout.check(layout.layout(DIRECTORY, pathlib.Path("/" + "x" * 38)))


def test_the_control_plane_listens_on_the_loopback_only() -> None:
    etcd = controlplane.etcd(LAYOUT, PORTS, keep=False)
    server = controlplane.api_server(LAYOUT, PORTS, has_nodes=True)
    assert "--listen-client-urls=https://127.0.0.1:1001" in etcd
    assert "--client-cert-auth" in etcd
    assert "--bind-address=127.0.0.1" in server
    for others in (controlplane.controller_manager(LAYOUT), controlplane.scheduler(LAYOUT)):
        assert "--secure-port=0" in others


def test_only_what_is_to_last_is_synchronised_to_disk() -> None:
    assert "--unsafe-no-fsync" in controlplane.etcd(LAYOUT, PORTS, keep=False)
    assert "--unsafe-no-fsync" not in controlplane.etcd(LAYOUT, PORTS, keep=True)


def test_without_nodes_there_is_no_way_into_their_network() -> None:
    server = controlplane.api_server(LAYOUT, PORTS, has_nodes=False)
    assert not any("egress" in argument for argument in server)


def test_every_file_on_a_command_line_is_one_that_is_written() -> None:
    plans = identities.plans(NODES)
    written = {f"{plan.name}.{end}" for plan in plans for end in ("crt", "key")}
    written |= {"accounts.key", "tokens.csv", "audit-policy.yaml", "egress.yaml", "ca.key"}
    written |= {f"{user.program}.kubeconfig" for user in identities.users(NODES)}
    lines = [
        *controlplane.etcd(LAYOUT, PORTS, keep=True),
        *controlplane.api_server(LAYOUT, PORTS, has_nodes=True),
        *controlplane.controller_manager(LAYOUT),
        *controlplane.scheduler(LAYOUT),
        *nodeplan.kubelet(places(), NODES[0]),
        *nodeplan.proxy(places(), NODES[0]),
    ]
    used = {line.rpartition("/")[2] for line in lines if f"={LAYOUT.pki}/" in line}
    assert used <= written
    assert len(used) > 12


def test_the_token_file_gives_everybody_the_name_that_kubernetes_expects() -> None:
    tokens = {user: f"t{number}" for number, user in enumerate(identities.users(NODES[:1]))}
    rows = list(csv.reader(identities.token_file(tokens).splitlines()))
    names = {row[1]: row[3] for row in rows}
    assert names["bitts-admin"] == "system:masters"
    assert names["system:node:node-1"] == "system:nodes"
    assert names["system:kube-scheduler"] == ""
    assert len({row[0] for row in rows}) == len(rows)


def places() -> nodeplan.Places:
    paths = {name: pathlib.Path("/bin") / name for name in binaries.EVERY}
    return nodeplan.Places(LAYOUT, paths, 1002)


@pytest.mark.parametrize("choice", podnetwork.CHOICES)
def test_a_node_s_configuration_can_be_read_and_is_its_own(choice: str) -> None:
    files = nodeplan.configuration(LAYOUT, NODES[1], choice)
    place = LAYOUT.node("node-2")
    kubelet = msgspec.yaml.decode(files[place.files / "kubelet.yaml"])
    assert kubelet["cgroupRoot"] == f"/{LAYOUT.identity}/node-2"
    containerd = tomllib.loads(files[place.files / "containerd.toml"])
    runtime = containerd["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["cni"]["conf_dir"] == str(place.cni)
    is_ours = choice == podnetwork.DAEMON
    assert (runtime["cni"]["bin_dirs"][0] == "/var/lib/bitts/cni-bin") is is_ours
    network = json.loads(files[place.cni / "10-pods.conflist"])
    plugins = network["plugins"][0]["plugins"] if is_ours else network["plugins"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": NODES[1].pods}]]
    assert [one["type"] for one in plugins] == ["ptp", "portmap", "bandwidth"]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param([{"type": "Ready", "status": "True"}], True, id="ready"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], False, id="silent"),
        pytest.param([], False, id="just made"),
    ],
)
def test_a_node_is_ready_when_it_says_so(conditions: list[dict[str, str]], expected: bool) -> None:
    assert nodeplan.is_ready({"status": {"conditions": conditions}}) is expected
    assert nodeplan.is_ready(None) is False


def test_entering_a_node_enters_every_namespace_and_dies_with_it() -> None:
    words = nodes.enter(42)
    assert words[0] == "nsenter"
    assert {word.partition("=")[0] for word in words if word.startswith("--") and "=" in word} == {
        "--mount",
        "--net",
        "--uts",
        "--ipc",
        "--pid",
    }
    assert words[-4:] == ["setpriv", "--pdeathsig", "KILL", "--"]


@pytest.mark.parametrize(
    ("request_head", "expected"),
    [
        pytest.param(
            b"CONNECT 172.31.0.11:10250 HTTP/1.1\r\nHost: x\r\n\r\n",
            ("172.31.0.11", 10250),
            id="a kubelet",
        ),
        pytest.param(b"CONNECT [fd00::1]:443 HTTP/1.1\r\n\r\n", ("fd00::1", 443), id="IPv6"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", None, id="another method"),
        pytest.param(b"CONNECT a:99999 HTTP/1.1\r\n\r\n", None, id="no such port"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\n", None, id="cut off"),
    ],
)
def test_connect_requests_are_understood_or_refused(
    request_head: bytes, expected: tuple[str, int] | None
) -> None:
    assert tunnel.parse_connect(request_head) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("172.31.0.11", True), ("10.244.1.2", True), ("127.0.0.1", False), ("localhost", False)],
)
def test_only_addresses_of_the_nodes_network_are_dialled_there(host: str, expected: bool) -> None:
    assert tunnel.is_inside(host) is expected


def test_programs_are_started_again_ever_more_slowly() -> None:
    pauses = [programs.pause(failures) for failures in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.2
    assert pauses[-1] == 10.0


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(
            "I0101 00:00:00.0 1 a.go:1] starting\n"
            'E0101 00:00:00.1 1 run.go:72] "command failed" err="no key"\n'
            "I0101 00:00:00.2 1 a.go:1] more\n",
            'run.go:72: "command failed" err="no key"',
            id="klog: the error, not what came after",
        ),
        pytest.param(
            '{"level":"info","msg":"hello"}\n'
            '{"level":"fatal","msg":"listen failed","error":"address already in use"}\n',
            "listen failed address already in use",
            id="zap",
        ),
        pytest.param("panic: no\n\ngoroutine 1\n", "panic: no", id="a panic"),
        pytest.param("one\ntwo\n", "one\ntwo", id="no trouble known: the end"),
        pytest.param("", "(it said nothing)", id="silence"),
        pytest.param("E0101 00:00:00.1 1 a.go:1] x\n" * 9, "a.go:1: x", id="repetitions once"),
    ],
)
def test_last_words_are_those_that_explain(log: str, expected: str) -> None:
    assert lastwords.explain(log) == expected


def test_programs_that_are_handed_in_are_taken(tmp_path: pathlib.Path) -> None:
    given = tmp_path / "etcd"
    given.write_text("#!/bin/true\n")
    given.chmod(0o755)
    found = binaries.origins(("etcd", "kubectl"), {"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert found["etcd"] == binaries.Origin(given)
    assert found["kubectl"].module is not None


def test_a_cluster_does_not_start_to_build_by_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITTS_CACHE", str(tmp_path))
    with pytest.raises(binaries.MissingError, match=r"not built yet: etcd; run `make cluster`"):
        binaries.ready(("etcd",), {})


def test_what_is_there_already_is_not_built(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITTS_CACHE", str(tmp_path))
    for origin in binaries.origins(binaries.EVERY, {}).values():
        origin.path.parent.mkdir(parents=True, exist_ok=True)
        origin.path.write_text("")
    said: list[str] = []
    assert set(binaries.build(binaries.EVERY, {}, said.append)) == set(binaries.EVERY)
    assert said == []
