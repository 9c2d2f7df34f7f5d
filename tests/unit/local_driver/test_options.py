"""The command line."""

import pytest
from bitts.core.flags import FlagError
from local_driver import options, roles


def read(*words: str) -> options.Options:
    flags = options.Flags()
    return flags.options(flags.set.parse(words))


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "from-env")
    found = read()
    assert found.socket == "/csi/csi.sock"
    assert found.node_id == "from-env"
    assert found.segments == {"topology.local.csi.bitts.dev/node": "from-env"}
    assert found.introspection_socket == "/csi/bitts-local-driver.sock"
    assert found.storage.backends == ()
    assert found.storage.default_backend == ""
    assert found.storage.capacity is None
    assert found.registration == options.RegistrationOptions("", "/csi/csi.sock")


def test_everything_given() -> None:
    found = read(
        "--endpoint=unix:///run/d/csi.sock", "--driver-name=disk.example", "--node-id=n1",
        "--state-dir=/data", "--backends=image", "--capacity=1.5Gi", "--max-volumes-per-node=7",
        "--registration-dir=/reg", "--kubelet-registration-path=/var/lib/kubelet/csi.sock",
        "--fault=CreateVolume:lost", "--fault=*:latency=1ms", "--fault-socket=/run/d/faults.sock",
        "--multi-node-access", "--btrfs-size=1Gi", "-v=5",
    )  # fmt: skip
    assert found.segments == {"topology.disk.example/node": "n1"}
    assert found.storage == options.StorageOptions(
        "/data", ("image",), "image", 3 << 29, 1 << 30, True
    )
    assert found.max_volumes == 7
    assert found.registration.endpoint == "/var/lib/kubelet/csi.sock"
    assert found.faults.rules == ("CreateVolume:lost", "*:latency=1ms")
    assert found.logs.verbosity == 5


@pytest.mark.parametrize(
    "word",
    [
        "--endpoint=tcp://0.0.0.0:1",
        "--node-id=with space",
        f"--node-id={'x' * 64}",
        "--driver-name=Not_A_Domain",
        "--backends=tape",
        "--default-backend=tape",
        "--capacity=lots",
        "--capacity=5Zi",
        "--capacity=1e400",
        "--btrfs-size=much",
        "--fault-socket=relative",
    ],
)
def test_a_wrong_value_names_its_flag(word: str) -> None:
    with pytest.raises(FlagError) as caught:
        read("--node-id=n1", word) if "node-id" not in word else read(word)
    assert word.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1024", 1024), ("1Ki", 1024), ("2k", 2000), ("1.5Gi", 3 << 29), ("1e9", 10**9)],
)
def test_sizes(text: str, expected: int) -> None:
    assert options.parse_size("capacity", text) == expected


TLS = ("--tls-cert=c", "--tls-key=k", "--tls-ca=a")


def test_without_a_role_a_driver_serves_its_own_node() -> None:
    found = read("--node-id=n1").roles
    assert found.role is roles.Role.ALL
    assert found.link.name_of("n1") == "n1.nodes.local.csi.bitts.dev"
    assert found.link.controller_name == "controller.local.csi.bitts.dev"


def test_a_node_waits_for_its_controller() -> None:
    found = read("--role=node", "--node-id=n1", "--listen=[::]:9809", *TLS).roles
    assert found.role is roles.Role.NODE
    assert found.link == roles.LinkOptions(
        ("::", 9809), "c", "k", "a", "{node}.nodes.local.csi.bitts.dev",
        "controller.local.csi.bitts.dev",
    )  # fmt: skip


def test_a_controller_knows_its_nodes() -> None:
    found = read(
        "--role=controller", "--nodes=n1=h:1", "--nodes-file=/f",
        "--node-address-template={node}.net:9", "--driver-name=disk.example",
        "--tls-node-name={node}.example", "--tls-controller-name=boss.example", *TLS,
    ).roles  # fmt: skip
    assert found.nodes == roles.NodesOptions("n1=h:1", "/f", "{node}.net:9")
    assert found.link.name_of("n1") == "n1.example"
    assert found.link.controller_name == "boss.example"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--role=node", *TLS), "--role=node needs --listen"),
        (("--role=node", "--listen=:1", *TLS[1:]), "--role=node needs --tls-cert"),
        (("--role=controller", *TLS), "--role=controller needs --nodes or --nodes-file"),
        (("--role=controller", "--nodes=a=b:1"), "--role=controller needs --tls-cert"),
        (("--listen=:1",), "--listen is not for --role=all: it goes with --role=node"),
        (("--tls-ca=a",), "goes with --role=controller or --role=node"),
        (("--role=node", "--listen=:1", "--nodes-file=f", *TLS), "not for --role=node"),
        (("--role=node", "--listen=here", *TLS), "--listen: address 'here'"),
        (("--role=controller", "--nodes=a", "--tls-node-name=b", *TLS), "needs {node}"),
        (
            ("--role=controller", "--nodes=a", "--node-address-template={node}", *TLS),
            "--node-address-template: address 'node'",
        ),
        (("--role=controller", "--nodes=a=b:1", "--check", *TLS), "--check is for nodes"),
        (
            ("--role=controller", "--nodes=a=b:1", "--registration-dir=/r", *TLS),
            "--registration-dir is for nodes",
        ),
    ],
)
def test_a_role_lacks_nothing_and_has_nothing_of_the_others(
    words: tuple[str, ...], text: str
) -> None:
    with pytest.raises(FlagError) as caught:
        read("--node-id=n1", *words)
    assert text in str(caught.value)
