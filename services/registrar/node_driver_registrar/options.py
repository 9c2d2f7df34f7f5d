"""The command line as frozen options. It is read without loading anything heavy."""

from dataclasses import dataclass

from bitts.core import sidecarflags
from bitts.core.flags import FlagError, FlagSet, FlagValues
from bitts.core.sidecarflags import IntrospectionOptions, LogOptions

from node_driver_registrar import names
from node_driver_registrar.model import Limits

_SUMMARY = "Makes the CSI driver beside it known to the kubelet of this node."


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where health is served, empty for nowhere; ``flag`` is what the address came from."""

    endpoint: str = ""
    flag: str = "--http-endpoint"
    has_dumps: bool = False
    probes_driver: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the registrar is told. Durations are seconds."""

    csi_address: str
    endpoint: str
    folder: str
    timeout: float
    ready_timeout: float
    limits: Limits
    is_probe: bool
    http: HttpOptions
    introspection: IntrospectionOptions
    logs: LogOptions
    warnings: tuple[str, ...]


class Flags:
    """All flags of the registrar."""

    def __init__(self, version: str) -> None:
        self.set = flags = FlagSet(names.PROGRAM, _SUMMARY, version=version)
        self._companion = sidecarflags.CompanionFlags(flags)
        self._endpoint = flags.string(
            "kubelet-registration-path", "", "the driver's socket as the kubelet sees it (required)"
        )
        self._folder = flags.string(
            "plugin-registration-path", "/registration", "where the kubelet looks for plugins"
        )
        self._timeout = flags.duration("timeout", 1.0, "limit of each call")
        self._http = flags.string(
            "http-endpoint", "", "host:port to serve health on; empty serves nothing"
        )
        self._port = flags.integer("health-port", 0, "deprecated: use --http-endpoint")
        self._dumps = flags.boolean("enable-pprof", False, "serve dumps on /debug/bitts/")
        self._mode = flags.string("mode", "", f"deprecated; {names.PROBE_MODE}: do nothing")
        flags.removed("connection-timeout", "the driver is waited for as long as it takes")
        self._ready = flags.duration(
            "driver-ready-timeout", 30.0,
            "how long a driver may Probe as not ready before it is registered all the same;"
            " 0 asks for no Probe",
        )  # fmt: skip
        self._refusals = flags.unsigned(
            "registration-attempts", 10,
            "refusals of the kubelet in a row before exiting with 1; 0 never exits",
        )  # fmt: skip
        self._silence = flags.duration(
            "registration-deadline", 180.0,
            "silence of the kubelet after which the socket is offered anew; 0 waits for ever",
        )  # fmt: skip
        self._probes = flags.boolean(
            "health-driver-probe", False, f"have {names.HEALTH_PATH} Probe the driver too"
        )

    def options(self, values: FlagValues) -> Options:
        """Check and group the values; raises FlagError naming the flag."""
        companion = self._companion.options(values)
        endpoint = values[self._endpoint]
        if not endpoint:
            raise FlagError(
                "--kubelet-registration-path is required: the driver's socket as a path on the"
                " host, usually /var/lib/kubelet/plugins/DRIVER/csi.sock",
                1,
            )
        is_probe = values[self._mode] == names.PROBE_MODE
        return Options(
            csi_address=companion.csi_address,
            endpoint=endpoint,
            folder=values[self._folder],
            timeout=self._positive(values),
            ready_timeout=values[self._ready],
            limits=Limits(values[self._refusals], values[self._silence]),
            is_probe=is_probe,
            # As upstream, an old exec probe looks at nothing else that it is given.
            http=HttpOptions() if is_probe else self._http_options(values),
            introspection=companion.introspection,
            logs=companion.logs,
            warnings=self._warnings(values),
        )

    def _positive(self, values: FlagValues) -> float:
        timeout = values[self._timeout]
        if timeout <= 0:
            raise FlagError(f"--timeout must be greater than 0, not {timeout:g}", 1)
        return timeout

    def _http_options(self, values: FlagValues) -> HttpOptions:
        endpoint, port = values[self._http], values[self._port]
        if endpoint and port > 0:
            raise FlagError("give either --http-endpoint or --health-port, not both", 1)
        legacy = port > 0
        return HttpOptions(
            endpoint=f":{port}" if legacy else endpoint,
            flag="--health-port" if legacy else "--http-endpoint",
            has_dumps=values[self._dumps],
            probes_driver=values[self._probes],
        )

    def _warnings(self, values: FlagValues) -> tuple[str, ...]:
        found = list(values.warnings)
        if values[self._port] > 0:
            found.append("flag --health-port is deprecated: use --http-endpoint")
        if values[self._mode]:
            found.append("flag --mode is deprecated and without effect: remove it")
        return tuple(found)
