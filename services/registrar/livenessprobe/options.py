"""The command line as frozen options. It is read without loading anything heavy."""

from dataclasses import dataclass

from bitts.core import sidecarflags
from bitts.core.flags import FlagError, FlagSet, FlagValues
from bitts.core.sidecarflags import IntrospectionOptions, LogOptions

from livenessprobe import names
from livenessprobe.model import Rules

_SUMMARY = "Answers the kubelet's HTTP probes for the CSI driver beside it."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address to serve at, TCP or ``unix:///path``; ``flag`` is where it came from."""

    address: str
    flag: str
    has_health: bool = False
    has_metrics: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the probe is told. Durations are seconds."""

    csi_address: str
    timeout: float
    rules: Rules
    endpoints: tuple[Endpoint, ...]
    metrics_path: str
    introspection: IntrospectionOptions
    logs: LogOptions
    warnings: tuple[str, ...]


class Flags:
    """All flags of the probe."""

    def __init__(self, version: str) -> None:
        self.set = flags = FlagSet(names.PROGRAM, _SUMMARY, version=version)
        self._companion = sidecarflags.CompanionFlags(flags)
        self._timeout = flags.duration(
            "probe-timeout", 3.0, "limit of one check, connecting and Probe together"
        )
        self._port = flags.string(
            "health-port", names.DEFAULT_PORT, "deprecated: use --http-endpoint"
        )
        self._http = flags.string(
            "http-endpoint", "", "host:port or unix:///path to serve health and metrics at"
        )
        self._legacy_metrics = flags.string(
            "metrics-address", "", "host:port to serve metrics at", deprecated="use --http-endpoint"
        )
        self._metrics = flags.string(
            "metrics-endpoint", "",
            "host:port or unix:///path for metrics, if not to be served beside health",
        )  # fmt: skip
        self._path = flags.string("metrics-path", "/metrics", "path of the metrics")
        self._threshold = flags.unsigned(
            "failure-threshold", 1, "failed checks in a row before a probe is answered 500"
        )
        self._grace = flags.duration(
            "startup-grace", 0.0,
            "how long after the start a driver that was never healthy is answered for with 200",
        )  # fmt: skip
        self._age = flags.duration(
            "result-max-age", 0.0, "how long a result answers further probes without a new check"
        )

    def options(self, values: FlagValues) -> Options:
        """Check and group the values; raises FlagError naming the flag."""
        companion = self._companion.options(values)
        timeout = values[self._timeout]
        if timeout <= 0:
            raise FlagError(f"--probe-timeout must be greater than 0, not {timeout:g}", 1)
        return Options(
            csi_address=companion.csi_address,
            timeout=timeout,
            rules=self._rules(values),
            endpoints=tuple(self._endpoints(values)),
            metrics_path=self._metrics_path(values),
            introspection=companion.introspection,
            logs=companion.logs,
            warnings=values.warnings,
        )

    def _rules(self, values: FlagValues) -> Rules:
        if values[self._threshold] < 1:
            raise FlagError("--failure-threshold must be at least 1", 1)
        for flag in (self._grace, self._age):
            if values[flag] < 0:
                raise FlagError(f"--{flag.name} must not be negative", 1)
        return Rules(values[self._threshold], values[self._grace], values[self._age])

    def _endpoints(self, values: FlagValues) -> list[Endpoint]:
        http, port = values[self._http], values[self._port]
        if http and port != names.DEFAULT_PORT:
            raise FlagError("give either --http-endpoint or --health-port, not both", 1)
        metrics, legacy = values[self._metrics], values[self._legacy_metrics]
        if legacy and (http or metrics):
            other = "--http-endpoint" if http else "--metrics-endpoint"
            raise FlagError(f"give either {other} or --metrics-address, not both", 1)
        if http:
            found = [Endpoint(http, "--http-endpoint", has_health=True, has_metrics=not metrics)]
        else:
            if not port.isdecimal() or int(port) > 65535:
                raise FlagError(f'--health-port must be a port, not "{port}"', 1)
            found = [Endpoint(f"0.0.0.0:{port}", "--health-port", has_health=True)]
        if metrics:
            found.append(Endpoint(metrics, "--metrics-endpoint", has_metrics=True))
        if legacy:
            found.append(Endpoint(legacy, "--metrics-address", has_metrics=True))
        return found

    def _metrics_path(self, values: FlagValues) -> str:
        path = values[self._path]
        if not path.startswith("/") or path == names.HEALTH_PATH:
            text = f'--metrics-path must begin with "/" and not be {names.HEALTH_PATH}: "{path}"'
            raise FlagError(text, 1)
        return path
