"""What every object has: metadata, references, conditions, selectors (meta/v1)."""

from collections.abc import Mapping

import msgspec


class View(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    gc=False,
):
    """A read-only part of an object; unknown fields are skipped when decoding."""


class OwnerReference(View, frozen=True):
    """Who an object belongs to (meta/v1 OwnerReference)."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True):
    """meta/v1 ObjectMeta without managedFields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Object(View, frozen=True):
    """Any object, by its metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace; "" for cluster-scoped objects."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.metadata.uid

    @property
    def key(self) -> str:
        """The queue and cache key: ``namespace/name``, or the name if cluster-scoped."""
        metadata = self.metadata
        return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name

    @property
    def deleting(self) -> bool:
        """Whether deletion was asked for (a deletionTimestamp is set)."""
        return self.metadata.deletion_timestamp is not None


class Metadata(Object, frozen=True):
    """An object of any type of which only the metadata is of interest."""

    api_version: str = ""
    kind: str = ""


class ObjectReference(View, frozen=True):
    """core/v1 ObjectReference: which object an event is about, a PV's claim."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name if cluster-scoped."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class SecretReference(View, frozen=True):
    """core/v1 SecretReference."""

    name: str = ""
    namespace: str = ""


class Condition(View, frozen=True):
    """A status condition, of whichever kind of object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None


class LabelSelectorRequirement(View, frozen=True):
    """One expression of a label selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(View, frozen=True):
    """meta/v1 LabelSelector; all its parts must hold, an empty one matches everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
