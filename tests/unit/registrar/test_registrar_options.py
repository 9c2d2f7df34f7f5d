"""The registrar's command line."""

import subprocess

import pytest
from bitts.core.flags import FlagError
from bitts.core.sidecarflags import IntrospectionOptions
from node_driver_registrar import options
from node_driver_registrar.model import Limits
from node_driver_registrar.options import HttpOptions, Options
from support import processes

REQUIRED = "--kubelet-registration-path=/var/lib/kubelet/plugins/d/csi.sock"


def parse(*words: str) -> Options:
    flags = options.Flags("1.2.3")
    return flags.options(flags.set.parse(words))


def test_the_defaults_are_upstream_s() -> None:
    found = parse(REQUIRED)
    assert (found.csi_address, found.folder) == ("/run/csi/socket", "/registration")
    assert found.endpoint == "/var/lib/kubelet/plugins/d/csi.sock"
    assert (found.timeout, found.is_probe) == (1.0, False)
    assert found.http == HttpOptions()
    assert (found.limits, found.ready_timeout) == (Limits(10, 180.0), 30.0)
    assert found.introspection == IntrospectionOptions(
        "/run/csi/bitts-csi-node-driver-registrar.sock", is_required=False
    )
    assert found.warnings == ()


EVERY_FLAG = [
    "--csi-address=unix:///csi/csi.sock",
    "--plugin-registration-path=/reg",
    "--timeout=2s",
    "--http-endpoint=:9809",
    "--health-port=0",
    "--mode=registration",
    "--connection-timeout=15s",
    "--enable-pprof",
    "--automaxprocs",
    "--driver-ready-timeout=0",
    "--registration-attempts=1",
    "--registration-deadline=1m",
    "--health-driver-probe",
    "--introspection-socket=/run/x.sock",
    "-v=5",
    "--logging-format=json",
]


def test_every_flag_of_upstream_and_our_own_is_taken() -> None:
    found = parse(REQUIRED, *EVERY_FLAG)
    assert (found.csi_address, found.folder) == ("unix:///csi/csi.sock", "/reg")
    assert found.http == HttpOptions(":9809", has_dumps=True, probes_driver=True)
    assert found.limits == Limits(1, 60.0)
    assert found.introspection == IntrospectionOptions("/run/x.sock", is_required=True)
    assert len(found.warnings) == 2


def test_the_deprecated_port_is_an_endpoint() -> None:
    found = parse(REQUIRED, "--health-port=9809")
    assert found.http == HttpOptions(":9809", flag="--health-port")
    assert found.warnings == ("flag --health-port is deprecated: use --http-endpoint",)
    assert parse(REQUIRED, "--health-port=-1").http.endpoint == ""


def test_the_old_probe_is_known() -> None:
    old = (REQUIRED, "--mode=kubelet-registration-probe")
    assert parse(*old).is_probe
    assert parse(*old, "--http-endpoint=:1", "--health-port=2").is_probe, "it looks at nothing else"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--kubelet-registration-path is required"),
        (["--mode=kubelet-registration-probe"], "--kubelet-registration-path is required"),
        ([REQUIRED, "--http-endpoint=:1", "--health-port=2"], "not both"),
        ([REQUIRED, "--timeout=0"], "--timeout must be greater than 0"),
        ([REQUIRED, "--csi-address=tcp://x"], "--csi-address must be"),
        ([REQUIRED, "--logging-format=xml"], "--logging-format"),
        ([REQUIRED, f"--introspection-socket=/{'x' * 120}"], "--introspection-socket"),
    ],
)
def test_wrong_command_lines_are_upstream_s_exit_code_1(words: list[str], named: str) -> None:
    with pytest.raises(FlagError, match=named) as caught:
        parse(*words)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["--version"], 0, "csi-node-driver-registrar 0.1.0"),
        ([REQUIRED, "--mode=kubelet-registration-probe"], 0, ""),
        (["--mode=kubelet-registration-probe"], 1, "is required"),
        (["--nonsense"], 2, "unknown flag --nonsense"),
    ],
)
def test_exit_codes(words: list[str], code: int, output: str) -> None:
    command = [processes.script("csi-node-driver-registrar"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert output in done.stdout + done.stderr
