"""Nodes, namespaces, secrets and pods (core/v1), as far as sidecars look at them."""

from collections.abc import Mapping

from bitts.kube.objects import meta


class Namespace(meta.Object, frozen=True):
    """core/v1 Namespace."""


class NodeStatus(meta.View, frozen=True):
    """core/v1 NodeStatus: readiness and attached volumes."""

    conditions: tuple[meta.Condition, ...] = ()
    volumes_in_use: tuple[str, ...] = ()


class Node(meta.Object, frozen=True):
    """core/v1 Node; its labels are what topology is made of."""

    status: NodeStatus = NodeStatus()


class Secret(meta.Object, frozen=True):
    """core/v1 Secret; ``data`` is decoded from base64. Never in a repr, never in a log."""

    type: str = ""
    data: Mapping[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Secret({self.key!r}, keys={sorted(self.data)})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("key", self.key)]


class PersistentVolumeClaimVolume(meta.View, frozen=True):
    """A pod volume's claim."""

    claim_name: str = ""
    read_only: bool = False


class PodVolume(meta.View, frozen=True):
    """A volume of a pod, of which only claims matter here."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolume | None = None
    # Whether it is a generic ephemeral volume, whose claim is named <pod>-<volume>.
    ephemeral: Mapping[str, object] | None = None


class PodSpec(meta.View, frozen=True):
    """core/v1 PodSpec: where it runs and which volumes it uses."""

    node_name: str = ""
    volumes: tuple[PodVolume, ...] = ()


class PodStatus(meta.View, frozen=True):
    """core/v1 PodStatus."""

    phase: str = ""
    reason: str = ""


class Pod(meta.Object, frozen=True):
    """core/v1 Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether no container will run again: its volumes are no longer in use by it."""
        return self.status.phase in ("Succeeded", "Failed")
