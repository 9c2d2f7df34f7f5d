"""The command line: every spelling that upstream has or had, ending up in frozen options.

What this version does not do yet is either refused with a clear text (a mode that would work
on nothing) or accepted with a warning (a number that tunes it), so that a Deployment's
arguments keep working when only its image changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bitts.core import features, sidecarflags
from bitts.core.flags import Flag, FlagError, FlagSet, FlagValues
from bitts.core.sidecarflags import PacingOptions, SidecarOptions
from bitts.volumes import naming

from csi_provisioner import names, topology

TOPOLOGY = "Topology"
ATTRIBUTES_CLASSES = "VolumeAttributesClass"
CROSS_NAMESPACE = "CrossNamespaceVolumeDataSource"
RELEASE_LEASE = "ReleaseLeaderElectionOnExit"

GATES = features.FeatureSet(
    {
        TOPOLOGY: features.Gate(default=True, stage=features.Stage.GA),
        ATTRIBUTES_CLASSES: features.Gate(default=True, stage=features.Stage.GA),
        CROSS_NAMESPACE: features.Gate(default=False, stage=features.Stage.ALPHA),
        RELEASE_LEASE: features.Gate(default=False, stage=features.Stage.ALPHA),
    }
)
FATAL = 255
"""The exit code of upstream's fatal log records."""

_REMOVED = (
    ("provisioner", "the name comes from the driver", False),
    ("connection-timeout", "connecting takes at most 30s", False),
    ("enable-leader-election", "use --leader-election", True),
    ("leader-election-type", "leases are the only type", False),
)


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """CSIStorageCapacity objects. ``poll_interval`` is seconds; ``owner_level`` -1 means none."""

    immediate: bool
    poll_interval: float
    owner_level: int
    threads: int
    pacing: PacingOptions
    namespace: str
    pod_name: str


@dataclass(frozen=True, slots=True)
class Options:
    """All that the process was told. ``capacity`` is None unless it was asked for."""

    sidecar: SidecarOptions
    master: str
    name_prefix: str
    name_length: int
    default_fstype: str
    extra_metadata: bool
    publish_readonly: bool
    placing: topology.Settings
    capacity: CapacityOptions | None
    intent_journal: str
    gates: frozenset[str]
    warnings: tuple[str, ...]


class Flags:
    """The flags and how to read them."""

    def __init__(self, version: str) -> None:
        flags = FlagSet(
            names.PROGRAM,
            "Makes and deletes the volumes behind PersistentVolumeClaims with a CSI driver.",
            version=version,
            interspersed=True,
        )
        self.set = flags
        self._sidecar = sidecarflags.SidecarFlags(flags, timeout=10.0, worker_threads=100)
        self._master = flags.string("master", "", "URL of the API server; overrides kubeconfig")
        self._prefix = flags.string("volume-name-prefix", "pvc", "begins every volume's name")
        self._length = flags.integer(
            "volume-name-uuid-length", -1, "digits of the claim's UID in the name; -1: all of it"
        )
        self._fstype = flags.string(
            "default-fstype", "", "file system when the StorageClass names none"
        )
        self._metadata = flags.boolean(
            "extra-create-metadata", False, "tell the driver the names of claim and volume"
        )
        self._readonly = flags.boolean(
            "controller-publish-readonly", False, "mark volumes whose only mode is ReadOnlyMany"
        )
        self._strict = flags.boolean(
            "strict-topology", False, "late binding: ask for the selected node's place only"
        )
        self._immediate = flags.boolean(
            "immediate-topology", True, "immediate binding: tell the driver the cluster's places"
        )
        self._journal = flags.choice(
            "intent-journal", ("auto", "lease", "file", "off"), "auto",
            "where calls are noted before they are made, so that no crash leaks a volume;"
            " auto: a Lease with leader election, else a file beside the driver's socket",
        )  # fmt: skip
        self._capacity = _CapacityFlags(flags)
        self._node_deployment = flags.boolean(
            "node-deployment", False, "not supported by this version"
        )
        _accept_the_rest(flags)

    def options(self, values: FlagValues, environment: Mapping[str, str]) -> Options:
        """Return the options; raises FlagError naming flag or variable and what to do."""
        sidecar = self._sidecar.options(values)
        if values[self._node_deployment]:
            raise FlagError(
                "--node-deployment is not supported by this version: run one central deployment"
                " of this sidecar (with --leader-election if it has several replicas)",
                FATAL,
            )
        try:
            naming.check_uuid_length(values[self._length])
        except naming.NamingError as error:
            raise FlagError(str(error)) from None
        gates, gate_warnings = GATES.apply(sidecar.gates)
        warnings = [*values.warnings, *gate_warnings]
        if CROSS_NAMESPACE in gates:
            warnings.append(f"feature gate {CROSS_NAMESPACE} has no effect in this version")
        return Options(
            sidecar=sidecar,
            master=values[self._master],
            name_prefix=values[self._prefix],
            name_length=values[self._length],
            default_fstype=values[self._fstype],
            extra_metadata=values[self._metadata],
            publish_readonly=values[self._readonly],
            placing=topology.Settings(values[self._strict], values[self._immediate]),
            capacity=self._capacity.options(values, environment),
            intent_journal=_journal(values[self._journal], leading=sidecar.election.enabled),
            gates=gates,
            warnings=tuple(warnings),
        )


class _CapacityFlags:
    """The flags of CSIStorageCapacity objects."""

    def __init__(self, flags: FlagSet) -> None:
        self._enabled = flags.boolean(
            "enable-capacity", False, "publish the driver's free capacity for the scheduler"
        )
        self._immediate = flags.boolean(
            "capacity-for-immediate-binding", False, "for classes with immediate binding too"
        )
        self._poll = flags.duration(
            "capacity-poll-interval", 60.0, "how often every figure is asked for again"
        )
        self._level = flags.integer(
            "capacity-ownerref-level", 1,
            "who owns the objects: -1 nobody, 0 the pod, 1 its controller, 2 that one's, ...",
        )  # fmt: skip
        self._threads = flags.unsigned("capacity-threads", 1, "figures asked for at the same time")
        self._qps: Flag[float] = flags.number(
            "kube-api-capacity-qps", 0.0, "as --kube-api-qps, for capacity objects"
        )
        self._burst = flags.integer(
            "kube-api-capacity-burst", 0, "as --kube-api-burst, for capacity objects"
        )

    def options(self, values: FlagValues, environment: Mapping[str, str]) -> CapacityOptions | None:
        if not values[self._enabled]:
            return None
        level = values[self._level]
        namespace, pod_name = environment.get("NAMESPACE", ""), environment.get("POD_NAME", "")
        if not namespace:
            raise FlagError(
                "--enable-capacity needs the environment variable NAMESPACE: set it to the"
                " namespace for CSIStorageCapacity objects (fieldRef metadata.namespace)",
                FATAL,
            )
        if level >= 0 and not pod_name:
            raise FlagError(
                "--capacity-ownerref-level of 0 or more needs the environment variable POD_NAME:"
                " set it (fieldRef metadata.name), or the level to -1",
                FATAL,
            )
        if values[self._poll] <= 0:
            raise FlagError("--capacity-poll-interval must be greater than 0")
        return CapacityOptions(
            immediate=values[self._immediate],
            poll_interval=values[self._poll],
            owner_level=level,
            threads=max(1, values[self._threads]),
            pacing=sidecarflags.pacing(values, self._qps, self._burst),
            namespace=namespace,
            pod_name=pod_name,
        )


def _accept_the_rest(flags: FlagSet) -> None:
    for name, note, boolean in _REMOVED:
        flags.removed(name, note, boolean=boolean)
    later = "accepted; data sources are not provisioned by this version"
    flags.unsigned("cloning-protection-threads", 1, later)
    flags.duration("snapshot-orphan-sweep-interval", 300.0, later)
    flags.boolean("prevent-volume-mode-conversion", True, later)
    nodes = "accepted; --node-deployment is not supported by this version"
    flags.boolean("node-deployment-immediate-binding", True, nodes)
    flags.duration("node-deployment-base-delay", 20.0, nodes)
    flags.duration("node-deployment-max-delay", 60.0, nodes)


def _journal(choice: str, *, leading: bool) -> str:
    if choice == "auto":
        return "lease" if leading else "file"
    if choice == "lease" and not leading:
        raise FlagError(
            "--intent-journal=lease needs --leader-election: without it two processes may write"
            " the same Lease; use file"
        )
    return choice
