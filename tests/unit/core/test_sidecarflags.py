"""The standard flags: defaults, and values that do not make sense."""

import re
from collections.abc import Sequence

import pytest
from bitts.core.flags import FlagError, FlagSet
from bitts.core.sidecarflags import (
    ElectionOptions,
    HttpOptions,
    IntrospectionOptions,
    LogOptions,
    PacingOptions,
    SidecarFlags,
    SidecarOptions,
)


def options(*argv: str) -> SidecarOptions:
    flags = FlagSet("csi-example", version="1")
    sidecar = SidecarFlags(flags, timeout=15, worker_threads=100)
    return sidecar.options(flags.parse(argv))


def test_defaults_are_upstreams() -> None:
    assert options() == SidecarOptions(
        show_version=False,
        kubeconfig="",
        csi_address="/run/csi/socket",
        timeout=15,
        retry_start=1,
        retry_max=300,
        worker_threads=100,
        election=ElectionOptions(False, "", 15, 10, 5, {}),
        pacing=PacingOptions(None, None),
        http=HttpOptions("", "/metrics", legacy=False, profiling=False),
        logs=LogOptions("text", 0, ""),
        gates={},
        introspection=IntrospectionOptions("/run/csi/bitts-csi-example.sock", is_required=False),
    )


def test_everything_given() -> None:
    given = options(
        "--kubeconfig=k", "--csi-address=unix:///csi/csi.sock", "--timeout=3s", "-v=5",
        "--retry-interval-start=2s", "--retry-interval-max=1m", "--worker-threads=7",
        "--leader-election", "--leader-election-namespace=ns", "--leader-election-labels=a:b",
        "--leader-election-lease-duration=137s", "--leader-election-renew-deadline=107s",
        "--leader-election-retry-period=26s", "--http-endpoint=:8080", "--metrics-path=/m",
        "--enable-pprof", "--vmodule=app=4", "--feature-gates=Topology=false", "--automaxprocs=",
        "--introspection-socket=/x.sock", "--log-flush-frequency=1s", "--kube-api-qps=100",
        "--kube-api-burst=200",
    )  # fmt: skip
    assert (given.kubeconfig, given.csi_address) == ("k", "unix:///csi/csi.sock")
    assert (given.timeout, given.retry_start, given.retry_max) == (3, 2, 60)
    assert given.worker_threads == 7
    assert given.election == ElectionOptions(True, "ns", 137, 107, 26, {"a": "b"})
    assert given.http == HttpOptions(":8080", "/m", legacy=False, profiling=True)
    assert given.logs == LogOptions("text", 5, "app=4")
    assert given.gates == {"Topology": False}
    assert given.introspection == IntrospectionOptions("/x.sock", is_required=True)
    assert given.pacing == PacingOptions(100, 200)


@pytest.mark.parametrize(
    ("argv", "pacing"),
    [
        pytest.param(["--kube-api-qps=0"], PacingOptions(5, 10), id="zero means the default"),
        pytest.param(["--kube-api-qps=20"], PacingOptions(20, 10), id="rate alone"),
        pytest.param(["--kube-api-burst=20"], PacingOptions(None, None), id="burst alone"),
        pytest.param(["--kube-api-qps=-1"], PacingOptions(-1, 10), id="no limit"),
    ],
)
def test_pacing(argv: Sequence[str], pacing: PacingOptions) -> None:
    assert options(*argv).pacing == pacing


def test_the_deprecated_address_flag_is_told_apart() -> None:
    http = options("--metrics-address=:8080").http
    assert (http.endpoint, http.legacy, http.flag) == (":8080", True, "--metrics-address")
    assert options("--http-endpoint=:8080").http.flag == "--http-endpoint"


@pytest.mark.parametrize("address", ["/csi/csi.sock", "unix:///csi/csi.sock", "unix:/csi/csi.sock"])
def test_the_introspection_socket_is_beside_the_drivers(address: str) -> None:
    given = options(f"--csi-address={address}")
    assert given.introspection.path == "/csi/bitts-csi-example.sock"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--http-endpoint=:1", "--metrics-address=:2"], 1, "not both"),
        (["--metrics-path=metrics"], 1, '--metrics-path must begin with "/"'),
        (["--logging-format=xml"], 1, '--logging-format must be text or json, not "xml"'),
        (["--logging-format=json", "--vmodule=a=1"], 1, "--vmodule works with"),
        (["--vmodule=a"], 1, '--vmodule: "a" must be pattern=N'),
        (["--csi-address=tcp://x"], 1, '--csi-address must be an absolute path'),
        (["--csi-address=csi.sock"], 1, '--csi-address must be an absolute path'),
        (["--introspection-socket=/" + "x" * 107], 1, "--introspection-socket: socket path"),
        (["--timeout=0"], 1, "--timeout must be greater than 0"),
        (["--worker-threads=0"], 1, "--worker-threads must be greater than 0"),
        (["--retry-interval-start=-1s"], 1, "--retry-interval-start must be greater than 0"),
        (["--kube-api-qps=nan"], 2, "--kube-api-qps must be a number"),
        (["--kube-api-qps=5", "--kube-api-burst=-1"], 2, "--kube-api-burst must not be negative"),
        (["--leader-election", "--leader-election-retry-period=0"], 2, "retry-period must be"),
        (["--leader-election", "--leader-election-renew-deadline=6s"], 2, "1.2 times"),
        (["--leader-election", "--leader-election-lease-duration=10s"], 2, "lease-duration must"),
    ],
)  # fmt: skip
def test_values_that_make_no_sense(argv: Sequence[str], code: int, message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)) as caught:
        options(*argv)
    assert caught.value.code == code


def test_election_durations_do_not_matter_without_election() -> None:
    assert options("--leader-election-lease-duration=1s").election.lease_duration == 1


@pytest.mark.parametrize(
    "argv", ["--logtostderr", "--stderrthreshold=INFO", "--log-json-split-stream=true"]
)
def test_flags_of_old_charts_are_tolerated(argv: str) -> None:
    flags = FlagSet("csi-example")
    SidecarFlags(flags, timeout=1)
    assert len(flags.parse([argv]).warnings) == 1


def test_a_sidecar_without_gates_has_no_such_flag() -> None:
    flags = FlagSet("csi-example")
    sidecar = SidecarFlags(flags, timeout=1, gates=False)
    assert sidecar.options(flags.parse([])).gates == {}
    with pytest.raises(FlagError, match="unknown flag --feature-gates"):
        flags.parse(["--feature-gates=A=true"])
