"""Claims and volumes (core/v1 PersistentVolumeClaim, PersistentVolume)."""

from collections.abc import Mapping

from bitts.kube.objects import meta

BETA_STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class VolumeResources(meta.View, frozen=True):
    """Requested quantities by resource name; storage is ``requests["storage"]``."""

    requests: Mapping[str, str] = {}
    limits: Mapping[str, str] = {}


class TypedReference(meta.View, frozen=True):
    """What a new volume is filled from (dataSource, dataSourceRef)."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class PersistentVolumeClaimSpec(meta.View, frozen=True):
    """core/v1 PersistentVolumeClaimSpec."""

    access_modes: tuple[str, ...] = ()
    selector: meta.LabelSelector | None = None
    resources: VolumeResources = VolumeResources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedReference | None = None
    data_source_ref: TypedReference | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(meta.View, frozen=True):
    """How far a change of the VolumeAttributesClass has got."""

    target_volume_attributes_class_name: str = ""
    status: str = ""


class PersistentVolumeClaimStatus(meta.View, frozen=True):
    """core/v1 PersistentVolumeClaimStatus."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: Mapping[str, str] = {}
    conditions: tuple[meta.Condition, ...] = ()
    allocated_resources: Mapping[str, str] = {}
    allocated_resource_statuses: Mapping[str, str] = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(meta.Object, frozen=True):
    """core/v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class_name(self) -> str:
        """The class by the beta annotation if it is there, else by the spec; "" for none."""
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION)
        return beta if beta is not None else self.spec.storage_class_name or ""


class CSIPersistentVolumeSource(meta.View, frozen=True):
    """core/v1 CSIPersistentVolumeSource."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: Mapping[str, str] = {}
    controller_publish_secret_ref: meta.SecretReference | None = None
    node_stage_secret_ref: meta.SecretReference | None = None
    node_publish_secret_ref: meta.SecretReference | None = None
    controller_expand_secret_ref: meta.SecretReference | None = None
    node_expand_secret_ref: meta.SecretReference | None = None


class NodeSelectorRequirement(meta.View, frozen=True):
    """One expression about a node's labels or fields."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(meta.View, frozen=True):
    """Expressions that must all hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(meta.View, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class VolumeNodeAffinity(meta.View, frozen=True):
    """Which nodes can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(meta.View, frozen=True):
    """core/v1 PersistentVolumeSpec; of the sources only CSI is read."""

    capacity: Mapping[str, str] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: meta.ObjectReference | None = None
    csi: CSIPersistentVolumeSource | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeStatus(meta.View, frozen=True):
    """core/v1 PersistentVolumeStatus."""

    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: str | None = None


class PersistentVolume(meta.Object, frozen=True):
    """core/v1 PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class_name(self) -> str:
        """The class by the beta annotation if it is there, else by the spec; "" for none."""
        beta = self.metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION)
        return beta if beta is not None else self.spec.storage_class_name
