"""The probe's command line."""

import pytest
from bitts.core.flags import FlagError
from bitts.core.sidecarflags import IntrospectionOptions
from livenessprobe import options
from livenessprobe.model import Rules
from livenessprobe.options import Endpoint, Options


def parse(*words: str) -> Options:
    flags = options.Flags("1.2.3")
    return flags.options(flags.set.parse(words))


def test_the_defaults_are_upstream_s() -> None:
    found = parse()
    assert (found.csi_address, found.timeout) == ("/run/csi/socket", 3.0)
    assert found.endpoints == (Endpoint("0.0.0.0:9808", "--health-port", has_health=True),)
    assert found.rules == Rules(threshold=1, grace=0.0, max_age=0.0)
    assert found.metrics_path == "/metrics"
    assert found.introspection == IntrospectionOptions(
        "/run/csi/bitts-livenessprobe.sock", is_required=False
    )
    assert found.warnings == ()


HTTP = "--http-endpoint=127.0.0.1:9808"


@pytest.mark.parametrize(
    ("words", "endpoints"),
    [
        pytest.param(
            ["--health-port=9909"],
            [Endpoint("0.0.0.0:9909", "--health-port", has_health=True)],
            id="another port",
        ),
        pytest.param(
            [HTTP],
            [Endpoint("127.0.0.1:9808", "--http-endpoint", has_health=True, has_metrics=True)],
            id="both on one",
        ),
        pytest.param(
            ["--metrics-address=:8080"],
            [
                Endpoint("0.0.0.0:9808", "--health-port", has_health=True),
                Endpoint(":8080", "--metrics-address", has_metrics=True),
            ],
            id="upstream's second server",
        ),
        pytest.param(
            [HTTP, "--metrics-endpoint=unix:///run/m.sock"],
            [
                Endpoint("127.0.0.1:9808", "--http-endpoint", has_health=True),
                Endpoint("unix:///run/m.sock", "--metrics-endpoint", has_metrics=True),
            ],
            id="apart",
        ),
    ],
)
def test_where_health_and_metrics_are_served(words: list[str], endpoints: list[Endpoint]) -> None:
    assert parse(*words).endpoints == tuple(endpoints)


def test_our_own_flags() -> None:
    found = parse("--failure-threshold=3", "--startup-grace=2m", "--result-max-age=5s")
    assert found.rules == Rules(3, 120.0, 5.0)
    found = parse("--introspection-socket=/run/x.sock", "--metrics-path=/m", "--probe-timeout=1s")
    assert found.introspection == IntrospectionOptions("/run/x.sock", is_required=True)
    assert (found.metrics_path, found.timeout) == ("/m", 1.0)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([HTTP, "--health-port=1"], "not both"),
        ([HTTP, "--metrics-address=:1"], "give either --http-endpoint or --metrics-address"),
        (
            ["--metrics-endpoint=:2", "--metrics-address=:1"],
            "give either --metrics-endpoint or --metrics-address",
        ),
        (["--health-port=http"], "--health-port must be a port"),
        (["--health-port=70000"], "--health-port must be a port"),
        (["--metrics-path=m"], "--metrics-path must begin"),
        (["--metrics-path=/healthz"], "--metrics-path must begin"),
        (["--probe-timeout=0"], "--probe-timeout must be greater"),
        (["--failure-threshold=0"], "--failure-threshold must be at least 1"),
        (["--startup-grace=-1s"], "--startup-grace must not be negative"),
        (["--csi-address=relative"], "--csi-address must be"),
        ([f"--introspection-socket=/{'x' * 120}"], "--introspection-socket"),
    ],
)
def test_wrong_command_lines_are_upstream_s_exit_code_1(words: list[str], named: str) -> None:
    with pytest.raises(FlagError, match=named) as caught:
        parse(*words)
    assert caught.value.code == 1
