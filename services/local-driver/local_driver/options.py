"""The command line as frozen options. It is read without loading anything heavy."""

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

import bitts
from bitts.core.flags import FlagError, FlagSet, FlagValues
from bitts.core.sidecarflags import LogFlags, LogOptions
from bitts.rpc import addresses

from local_driver import names
from local_driver.roles import Role, RoleFlags, RoleOptions

_SUMMARY = "A CSI driver for storage on the node: folders, or images over loop devices."
_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_LARGEST = 1 << 62
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """``folder`` is where kubelet looks for plugins, empty serves no registration.

    ``endpoint`` is the driver's socket as kubelet sees it, on the host.
    """

    folder: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class FaultOptions:
    """Faults from the start, and the socket to change them at; empty: neither."""

    rules: tuple[str, ...]
    socket: str


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """Where volumes are kept and how many bytes of them there may be (None: all there is)."""

    state: str
    backends: tuple[str, ...]
    """Empty: whatever works here."""
    default_backend: str
    """Empty: the first that works here."""
    capacity: int | None
    pool_size: int
    has_multi_node_access: bool


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What is served and announced; ``has_health_rpcs`` is CSI 1.13's way of telling health."""

    attaches: bool = False
    has_health_rpcs: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Everything the driver is told."""

    socket: str
    driver_name: str
    node_id: str
    max_volumes: int
    storage: StorageOptions
    services: ServiceOptions
    registration: RegistrationOptions
    roles: RoleOptions
    faults: FaultOptions
    introspection_socket: str
    checks: bool
    """Look at what is stored and end, instead of serving; ``repairs`` also clears away."""
    repairs: bool
    logs: LogOptions

    @property
    def segments(self) -> Mapping[str, str]:
        """The topology of this node."""
        return {names.topology_key(self.driver_name): self.node_id}


class StorageFlags:
    """The flags about where and how volumes are kept."""

    def __init__(self, flags: FlagSet) -> None:
        self._state = flags.string(
            "state-dir", "/var/lib/bitts/local-driver", "folder for the volumes and their metadata"
        )
        self._backends = flags.string(
            "backends",
            "",
            "ways of keeping volumes that classes may choose, of directory, image and btrfs; "
            "empty: what works here",
        )
        self._pool = flags.string(
            "btrfs-size",
            "",
            "have a btrfs of this size, such as 100Gi, in a file under --state-dir where that is "
            "not on btrfs; empty: no",
        )
        self._default_backend = flags.string(
            "default-backend",
            "",
            "backend of classes that choose none; empty: the first of --backends",
        )
        self._capacity = flags.string(
            "capacity", "", "sum of all volumes' sizes, such as 500Gi; empty: what the disk has"
        )
        self._multi_node = flags.boolean(
            "multi-node-access",
            False,
            "accept access modes of several nodes although a volume stays on one: "
            "for clusters of one node, and for tests",
        )

    def options(self, values: FlagValues) -> StorageOptions:
        """Check and group the values; raises FlagError naming the flag."""
        backends = tuple(word for word in values[self._backends].split(",") if word)
        unknown = [word for word in backends if word not in names.BACKENDS]
        if unknown:
            known = ", ".join(names.BACKENDS)
            raise FlagError(f"--backends {','.join(unknown)!r}: name some of {known}", 1)
        default = values[self._default_backend] or (backends[0] if backends else "")
        if default and default not in (backends or names.BACKENDS):
            raise FlagError(f"--default-backend {default!r} is not among --backends", 1)
        capacity, pool = values[self._capacity], values[self._pool]
        return StorageOptions(
            state=os.path.abspath(values[self._state]),
            backends=backends,
            default_backend=default,
            capacity=parse_size("capacity", capacity) if capacity else None,
            pool_size=parse_size("btrfs-size", pool) if pool else 0,
            has_multi_node_access=values[self._multi_node],
        )


class ServiceFlags:
    """The flags about what is served beside the plain volumes."""

    def __init__(self, flags: FlagSet) -> None:
        self._attach = flags.boolean(
            "attach",
            False,
            "serve attaching and refuse volumes on nodes that they are not attached to: for a "
            "CSIDriver with attachRequired: true",
        )
        self._generation = flags.choice(
            "csi",
            ("1.12", "1.13"),
            "1.12",
            "how the health of volumes is told: as volume condition (1.12) or by RPCs (1.13)",
        )

    def options(self, values: FlagValues) -> ServiceOptions:
        """Return the values."""
        return ServiceOptions(values[self._attach], values[self._generation] == "1.13")


class Flags:
    """All flags of the driver."""

    def __init__(self) -> None:
        self.set = flags = FlagSet(names.PROGRAM, _SUMMARY, version=bitts.__version__)
        self._endpoint = flags.string(
            "endpoint", "unix:///csi/csi.sock", "unix socket to serve CSI at"
        )
        self._driver_name = flags.string("driver-name", names.DRIVER_NAME, "name of the CSI driver")
        self._node_id = flags.string(
            "node-id", "", "the node's name; empty: $NODE_NAME, else the host's name"
        )
        self._max_volumes = flags.unsigned(
            "max-volumes-per-node", 0, "volumes that pods on the node may use at once; 0: no limit"
        )
        self._roles = RoleFlags(flags)
        self._storage = StorageFlags(flags)
        self._services = ServiceFlags(flags)
        self._registration = flags.string(
            "registration-dir", "", "kubelet's plugins_registry folder; empty: do not register"
        )
        self._kubelet_path = flags.string(
            "kubelet-registration-path",
            "",
            "the socket's path on the host, as kubelet sees it; empty: the --endpoint",
        )
        self._faults = flags.strings("fault", "fault to show, as CreateVolume:code=Unavailable@0.3")
        self._fault_socket = flags.string(
            "fault-socket", "", "unix socket to change faults at; empty: none"
        )
        self._introspection = flags.string(
            "introspection-socket",
            "",
            "socket that answers what the process does and why; empty: beside --endpoint",
        )
        self._check = flags.boolean(
            "check",
            False,
            "say what is wrong with what is stored, attached and mounted, and end; the driver "
            "must not run meanwhile",
        )
        self._repair = flags.boolean("repair", False, "as --check, and remove what nobody owns")
        self._logs = LogFlags(flags)

    def options(self, values: FlagValues) -> Options:
        """Check and group the values; raises FlagError naming the flag."""
        socket = _socket("endpoint", values[self._endpoint])
        node_id = values[self._node_id] or os.environ.get("NODE_NAME") or os.uname().nodename
        _check_topology_value(node_id)
        driver_name = values[self._driver_name]
        if len(driver_name) > names.SEGMENT_LIMIT or not _DOMAIN.fullmatch(driver_name):
            raise FlagError(
                f"--driver-name {driver_name!r} must be a domain name of at most "
                f"{names.SEGMENT_LIMIT} characters",
                1,
            )
        roles = self._roles.options(values, driver_name)
        if roles.role is Role.CONTROLLER:
            self._refuse_of_nodes(values)
        introspection = values[self._introspection] or posixpath.join(
            posixpath.dirname(socket), f"bitts-{names.PROGRAM}.sock"
        )
        return Options(
            socket=socket,
            driver_name=driver_name,
            node_id=node_id,
            max_volumes=values[self._max_volumes],
            storage=self._storage.options(values),
            services=self._services.options(values),
            registration=RegistrationOptions(
                values[self._registration], values[self._kubelet_path] or socket
            ),
            roles=roles,
            faults=FaultOptions(
                values[self._faults], _optional("fault-socket", values[self._fault_socket])
            ),
            introspection_socket=_socket("introspection-socket", introspection),
            checks=values[self._check] or values[self._repair],
            repairs=values[self._repair],
            logs=self._logs.options(values),
        )

    def _refuse_of_nodes(self, values: FlagValues) -> None:
        """Refuse what has no meaning for a controller that has no volumes itself."""
        given = {
            "registration-dir": bool(values[self._registration]),
            "check": values[self._check],
            "repair": values[self._repair],
        }
        for flag, is_given in given.items():
            if is_given:
                raise FlagError(f"--{flag} is for nodes, not for --role=controller", 1)


def parse_size(flag: str, text: str) -> int:
    """Return the bytes of a quantity such as ``500Gi`` or ``1e9``; raises FlagError."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)([A-Za-z]*)", text)
    if found is None or found[2] not in _SUFFIXES:
        raise FlagError(f"--{flag} {text!r} is no size: write a number and Ki, Mi, Gi, Ti or Pi", 1)
    size = float(found[1]) * _SUFFIXES[found[2]]
    if size > _LARGEST:
        raise FlagError(f"--{flag} {text!r} is more than any disk has", 1)
    return int(size)


def _check_topology_value(node_id: str) -> None:
    if len(node_id) > names.SEGMENT_LIMIT or not _LABEL.fullmatch(node_id):
        raise FlagError(
            f"--node-id {node_id!r} becomes the value of a label: at most {names.SEGMENT_LIMIT} "
            "letters, digits, '-', '_' and '.', with a letter or digit at both ends",
            1,
        )


def _socket(flag: str, address: str) -> str:
    try:
        return addresses.socket_path(address)
    except ValueError as error:
        raise FlagError(f"--{flag}: {error}", 1) from None


def _optional(flag: str, address: str) -> str:
    return _socket(flag, address) if address else ""
