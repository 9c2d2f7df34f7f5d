"""The command line."""

import pytest
from bitts.core.flags import FlagError
from local_driver import options


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
    assert options.parse_size(text) == expected
