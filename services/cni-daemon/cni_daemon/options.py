"""The command line as frozen options. It is read without loading anything heavy."""

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import bitts
from bitts.core import configfile
from bitts.core.flags import FlagError, FlagSet, FlagValues
from bitts.core.sidecarflags import LogFlags, LogOptions

from cni_daemon import faults, names
from cni_daemon.faults import FaultError, Reached

_SUMMARY = (
    "Attaches the containers of this node to their networks, by the CNI specification. "
    "Serves the plugins that `cni-daemon install` put into the runtime's folder."
)
_PATH_LIMIT = 100
"""Bytes of a socket's path: the kernel takes 107, and a temporary name is longer."""


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Where the container runtime lists its sandboxes (empty: nobody asks), and how often."""

    socket: str = ""
    interval: float = 60.0
    grace: float = 30.0


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where metrics and health are served; an empty endpoint serves nothing."""

    endpoint: str = ""
    metrics_path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the daemon is told. Times are seconds."""

    socket: str
    state: pathlib.Path
    introspection_socket: str
    deadline: float
    niceness: int
    reached: Reached
    logs: LogOptions
    http: HttpOptions = HttpOptions()
    runtime: RuntimeOptions = RuntimeOptions()
    upkeep_interval: float = 5.0
    abandon_after: float = 28800.0
    dhcp_timeout: float = 40.0

    @property
    def intents(self) -> pathlib.Path:
        """Where the shim leaves DELs."""
        return self.state / names.INTENTS


class Flags:
    """All flags of the daemon."""

    def __init__(self) -> None:
        self.set = flags = FlagSet(names.PROGRAM, _SUMMARY, version=bitts.__version__)
        self._socket = flags.string("socket", names.SOCKET, "unix socket for the shim")
        self._state = flags.string(
            "state-dir", names.STATE_DIRECTORY, "folder for the journal and the shim's intents"
        )
        self._introspection = flags.string(
            "introspection-socket",
            "",
            "socket that answers what the process does and why; empty: beside --socket",
        )
        self._deadline = flags.duration("deadline", 45.0, "longest time for one request")
        self._nice = flags.integer(
            "nice", -10, "priority while pods start all around: -20 (first) to 19 (last)"
        )
        self._fault = flags.string(
            "fault", "", "for tests: crash-at=N[:FILE] kills the process at its N-th instant"
        )
        self._endpoint = flags.string(
            "http-endpoint", "", "host:port to serve metrics and health on; empty serves nothing"
        )
        self._path = flags.string("metrics-path", "/metrics", "path of the metrics")
        self._runtime = flags.string(
            "runtime-endpoint",
            "",
            "socket of the container runtime (CRI), as unix:///run/containerd/containerd.sock: "
            "attachments of sandboxes that it does not know are released; empty asks nobody",
        )
        self._interval = flags.duration(
            "runtime-interval", 60.0, "pause between two questions to the runtime"
        )
        self._grace = flags.duration(
            "runtime-grace", 30.0, "how long a sandbox must be unknown before it is believed"
        )
        self._upkeep = flags.duration(
            "upkeep-interval",
            5.0,
            "pause between two looks at what has to be put right: intents, failed removals, "
            "rules that somebody flushed",
        )
        self._abandon = flags.duration(
            "abandon-after",
            28800.0,
            "how long an IPAM program may be missing before addresses of pods gone are given up",
        )
        self._dhcp = flags.duration(
            "dhcp-timeout", 40.0, "longest time to wait for a DHCP server when a pod is attached"
        )
        self._config = configfile.flag(flags)
        self._logs = LogFlags(flags)

    def resolve(self, argv: Sequence[str]) -> Options:
        """Read the command line and the file it names; prints what is wrong, and exits."""
        return configfile.resolve(self.set, self._config, argv, self.options)

    def options(self, values: FlagValues) -> Options:
        """Check and group the values; raises FlagError naming the flag."""
        socket = _socket("socket", values[self._socket])
        beside = os.path.join(os.path.dirname(socket), f"bitts-{names.PROGRAM}.sock")
        try:
            reached = faults.parse(values[self._fault]) if values[self._fault] else Reached()
        except FaultError as error:
            raise FlagError(f"--fault: {error}", 1) from None
        return Options(
            socket=socket,
            state=pathlib.Path(os.path.abspath(values[self._state])),
            introspection_socket=_socket(
                "introspection-socket", values[self._introspection] or beside
            ),
            deadline=values[self._deadline],
            niceness=values[self._nice],
            reached=reached,
            logs=self._logs.options(values),
            http=self._http(values),
            runtime=RuntimeOptions(
                _socket("runtime-endpoint", values[self._runtime]) if values[self._runtime] else "",
                _positive("runtime-interval", values[self._interval]),
                _positive("runtime-grace", values[self._grace]),
            ),
            dhcp_timeout=_positive("dhcp-timeout", values[self._dhcp]),
            abandon_after=_positive("abandon-after", values[self._abandon]),
            upkeep_interval=_positive("upkeep-interval", values[self._upkeep]),
        )

    def _http(self, values: FlagValues) -> HttpOptions:
        path = values[self._path]
        if not path.startswith("/"):
            raise FlagError(f'--metrics-path must begin with "/", not be {path!r}', 1)
        return HttpOptions(values[self._endpoint], path)


def _positive(flag: str, value: float) -> float:
    if value <= 0:
        raise FlagError(f"--{flag} must be greater than 0, not {value:g}", 1)
    return value


def _socket(flag: str, path: str) -> str:
    path = path.removeprefix("unix://")
    if not os.path.isabs(path) or len(path.encode()) > _PATH_LIMIT:
        raise FlagError(
            f"--{flag} {path!r} must be an absolute path of at most {_PATH_LIMIT} bytes", 1
        )
    return path
