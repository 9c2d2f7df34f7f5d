"""The flags that every sidecar has in common, and the frozen options they end up as.

Names and defaults are upstream's. A program without all of them (the registrar, a driver) takes
just the groups that it needs: ``CompanionFlags``, ``LogFlags``, ``HttpFlags``, ``ElectionFlags``,
``PacingFlags``.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from bitts.core import literals, socketpaths
from bitts.core.flags import Flag, FlagError, FlagSet, FlagValues

_KLOG_REMOVED = (
    "add_dir_header", "alsologtostderr", "logtostderr", "one_output", "skip_headers",
    "skip_log_headers",
)  # fmt: skip
_KLOG_REMOVED_WITH_VALUE = (
    "log_backtrace_at", "log_dir", "log_file", "log_file_max_size", "stderrthreshold",
)  # fmt: skip
_RENEW_FACTOR = 1.2  # client-go's jitter: the renew deadline must leave room for one jittered retry


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How to log: ``text`` or ``json``, and up to which verbosity, overall and per file."""

    format: str = "text"
    verbosity: int = 0
    vmodule: str = ""


@dataclass(frozen=True, slots=True)
class IntrospectionOptions:
    """The socket that tells what goes on; unless ``is_required`` it may fail to be there."""

    path: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class CompanionOptions:
    """What every process beside a CSI driver is told."""

    csi_address: str
    introspection: IntrospectionOptions
    logs: LogOptions


@dataclass(frozen=True, slots=True)
class ElectionOptions:
    """Leader election on a Lease. An empty namespace means the one that the process runs in."""

    enabled: bool = False
    namespace: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 5.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PacingOptions:
    """Requests per second to the API server, and at once above that rate.

    Both are None if no rate was given: pacing is adaptive then. A negative rate is no limit.
    """

    qps: float | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The HTTP endpoint; empty means none.

    ``legacy`` tells that it was given by the deprecated flag, which serves no health path.
    """

    endpoint: str = ""
    metrics_path: str = "/metrics"
    legacy: bool = False
    profiling: bool = False

    @property
    def flag(self) -> str:
        """The flag that the endpoint came from, for error messages."""
        return "--metrics-address" if self.legacy else "--http-endpoint"


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """What every sidecar is told on its command line. Durations are seconds."""

    show_version: bool
    kubeconfig: str
    csi_address: str
    timeout: float
    retry_start: float
    retry_max: float
    worker_threads: int
    election: ElectionOptions
    pacing: PacingOptions
    http: HttpOptions
    logs: LogOptions
    gates: Mapping[str, bool]
    introspection: IntrospectionOptions


class LogFlags:
    """The logging flags of every Kubernetes component; those that were removed are tolerated."""

    def __init__(self, flags: FlagSet) -> None:
        self._format = flags.string("logging-format", "text", "text or json")
        self._verbosity = flags.integer("v", 0, "log verbosity; 5 shows every CSI call")
        self._vmodule = flags.string(
            "vmodule", "", "verbosity of single files, as in app=5,chan*=4 (text format only)"
        )
        flags.duration("log-flush-frequency", 5.0, "accepted; every record is written at once")
        for form in ("text", "json"):
            flags.removed(f"log-{form}-split-stream", "all records go to stderr", boolean=True)
            flags.removed(f"log-{form}-info-buffer-size", "records are not buffered")
        for name in _KLOG_REMOVED:
            flags.removed(name, "records go to stderr, with headers", boolean=True)
        for name in _KLOG_REMOVED_WITH_VALUE:
            flags.removed(name, "records go to stderr")

    def options(self, values: FlagValues) -> LogOptions:
        """Return the options; raises FlagError as upstream's exit code 1 for a wrong one."""
        options = LogOptions(values[self._format], values[self._verbosity], values[self._vmodule])
        if options.format not in ("text", "json"):
            raise FlagError(f'--logging-format must be text or json, not "{options.format}"', 1)
        if options.vmodule and options.format != "text":
            raise FlagError("--vmodule works with --logging-format=text only", 1)
        try:
            literals.vmodule(options.vmodule)
        except ValueError as error:
            raise FlagError(f"--vmodule: {error}", 1) from None
        return options


class CompanionFlags:
    """Where the driver is, and how the process tells of itself: logs and introspection."""

    def __init__(self, flags: FlagSet, csi_address: str = "/run/csi/socket") -> None:
        self._program = flags.program
        self._address = flags.string("csi-address", csi_address, "socket of the CSI driver")
        self._introspection = flags.string(
            "introspection-socket", "",
            "socket that answers what the process does and why; empty: beside --csi-address",
        )  # fmt: skip
        flags.boolean("automaxprocs", False, "accepted; there are no threads to limit", empty=True)
        self._logs = LogFlags(flags)

    def options(self, values: FlagValues) -> CompanionOptions:
        """Return the options; raises FlagError naming the flag whose value is wrong."""
        address = values[self._address]
        return CompanionOptions(
            address, self._introspect(values, socket_path(address)), self._logs.options(values)
        )

    def _introspect(self, values: FlagValues, driver: str) -> IntrospectionOptions:
        given = values[self._introspection]
        path = given or posixpath.join(posixpath.dirname(driver), f"bitts-{self._program}.sock")
        if given:  # the other one fails with a warning, when it is served
            try:
                socketpaths.check(path)
            except ValueError as error:
                raise FlagError(f"--introspection-socket: {error}", 1) from None
        return IntrospectionOptions(path, is_required=bool(given))


class HttpFlags:
    """The flags of the HTTP endpoint."""

    def __init__(self, flags: FlagSet) -> None:
        self._endpoint = flags.string(
            "http-endpoint", "", "host:port to serve metrics and health on; empty serves nothing"
        )
        self._legacy = flags.string(
            "metrics-address", "", "host:port to serve metrics on", deprecated="use --http-endpoint"
        )
        self._path = flags.string("metrics-path", "/metrics", "path of the metrics")
        self._profiling = flags.boolean(
            "enable-pprof", False, "serve dumps of tasks, queues and decisions on /debug/bitts/"
        )

    def options(self, values: FlagValues) -> HttpOptions:
        """Return the options; giving both address flags is upstream's exit code 1."""
        endpoint, legacy = values[self._endpoint], values[self._legacy]
        if endpoint and legacy:
            raise FlagError("give either --http-endpoint or --metrics-address, not both", 1)
        path = values[self._path]
        if not path.startswith("/"):
            raise FlagError(f'--metrics-path must begin with "/", not be "{path}"', 1)
        return HttpOptions(endpoint or legacy, path, bool(legacy), values[self._profiling])


class ElectionFlags:
    """The flags of leader election."""

    def __init__(self, flags: FlagSet) -> None:
        self._enabled = flags.boolean("leader-election", False, "work only while holding the Lease")
        self._namespace = flags.string(
            "leader-election-namespace", "", "namespace of the Lease; empty: that of the pod"
        )
        self._lease = flags.duration(
            "leader-election-lease-duration", 15.0, "how long others respect a Lease not renewed"
        )
        self._renew = flags.duration(
            "leader-election-renew-deadline", 10.0, "how long to try renewing before giving up"
        )
        self._retry = flags.duration("leader-election-retry-period", 5.0, "pause between tries")
        self._labels = flags.pairs("leader-election-labels", "labels of the Lease")

    def options(self, values: FlagValues) -> ElectionOptions:
        """Return the options; raises FlagError if the durations do not fit each other."""
        options = ElectionOptions(
            values[self._enabled],
            values[self._namespace],
            values[self._lease],
            values[self._renew],
            values[self._retry],
            values[self._labels],
        )
        if options.enabled:
            _check_election(options)
        return options


class PacingFlags:
    """The flags that fix the rate of API requests."""

    def __init__(self, flags: FlagSet) -> None:
        self._qps = flags.number(
            "kube-api-qps", 0.0,
            "API requests per second; not given: as many as the server takes; negative: no limit",
        )  # fmt: skip
        self._burst = flags.integer(
            "kube-api-burst", 0, "API requests at once above --kube-api-qps, 10 if not given"
        )

    def options(self, values: FlagValues) -> PacingOptions:
        """Return the options; raises FlagError for a rate or burst that would hold all up."""
        return pacing(values, self._qps, self._burst)


def pacing(values: FlagValues, qps: Flag[float], burst: Flag[int]) -> PacingOptions:
    """Read a rate: 0 means upstream's defaults, 5 a second and 10 at once.

    Raises FlagError for a rate that is no number and for a burst that lets nothing through.
    """
    if values[qps] != values[qps]:  # as only NaN is
        raise FlagError(f"--{qps.name} must be a number of requests per second")
    if values[burst] < 0:
        raise FlagError(f"--{burst.name} must not be negative: nothing could be sent")
    if not values.is_set(qps):
        return PacingOptions()
    return PacingOptions(values[qps] or 5.0, values[burst] or 10)


class SidecarFlags:
    """All standard flags. The arguments are the defaults that differ between sidecars."""

    def __init__(
        self,
        flags: FlagSet,
        *,
        timeout: float,
        worker_threads: int = 10,
        csi_address: str = "/run/csi/socket",
        gates: bool = True,
    ) -> None:
        self._show_version = flags.show_version
        self._kubeconfig = flags.string(
            "kubeconfig", "", "path of a kubeconfig file; empty: the cluster that the pod runs in"
        )
        self._companion = CompanionFlags(flags, csi_address)
        self._timeout = flags.duration("timeout", timeout, "limit of each call to the CSI driver")
        self._retry_start = flags.duration(
            "retry-interval-start", 1.0, "first delay after a failure; it doubles each time"
        )
        self._retry_max = flags.duration("retry-interval-max", 300.0, "longest delay of a retry")
        self._workers = flags.unsigned(
            "worker-threads", worker_threads, "how many objects are worked on at the same time"
        )
        self._gates = flags.gates(help="feature gates") if gates else None
        self._election = ElectionFlags(flags)
        self._pacing = PacingFlags(flags)
        self._http = HttpFlags(flags)

    def options(self, values: FlagValues) -> SidecarOptions:
        """Return the options; raises FlagError naming the flag whose value is out of range."""
        companion = self._companion.options(values)
        return SidecarOptions(
            show_version=values[self._show_version],
            kubeconfig=values[self._kubeconfig],
            csi_address=companion.csi_address,
            timeout=_positive("timeout", values[self._timeout]),
            retry_start=_positive("retry-interval-start", values[self._retry_start]),
            retry_max=_positive("retry-interval-max", values[self._retry_max]),
            worker_threads=int(_positive("worker-threads", values[self._workers])),
            election=self._election.options(values),
            pacing=self._pacing.options(values),
            http=self._http.options(values),
            logs=companion.logs,
            gates=values[self._gates] if self._gates else {},
            introspection=companion.introspection,
        )


def socket_path(address: str) -> str:
    """Return the path in a CSI address; raises FlagError unless it names a unix socket."""
    path = address.removeprefix("unix://").removeprefix("unix:")
    if not path.startswith("/"):
        raise FlagError(
            f'--csi-address must be an absolute path or unix:///path, not "{address}"', 1
        )
    return path


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise FlagError(f"--{name} must be greater than 0, not {value:g}", 1)
    return value


def _check_election(options: ElectionOptions) -> None:
    if options.retry_period <= 0:
        raise FlagError("--leader-election-retry-period must be greater than 0")
    if options.renew_deadline <= _RENEW_FACTOR * options.retry_period:
        raise FlagError(
            "--leader-election-renew-deadline must be more than 1.2 times"
            " --leader-election-retry-period"
        )
    if options.lease_duration <= options.renew_deadline:
        raise FlagError(
            "--leader-election-lease-duration must be more than --leader-election-renew-deadline"
        )
