"""Claims, classes and volumes as the provisioner sees them, with everything that may vary."""

from typing import Any

from bitts.kube import objects
from csi_provisioner import names
from csi_provisioner.model import (
    ClaimRef,
    ClaimSeen,
    Created,
    Draft,
    Past,
    Policy,
    VolumeSeen,
)
from csi_provisioner.topology import Nodes

DRIVER = "csi.example.com"
UID = "11111111-2222-3333-4444-555555555555"
VOLUME_NAME = f"pvc-{UID}"
GIB = 1 << 30
NOW = 1000.0

POLICY = Policy(
    driver_name=DRIVER,
    plugin=frozenset({"CONTROLLER_SERVICE"}),
    controller=frozenset({"CREATE_DELETE_VOLUME", "MODIFY_VOLUME"}),
)


def claim(
    *, annotations: dict[str, str] | None = None, uid: str = UID, **spec: Any
) -> objects.PersistentVolumeClaim:
    """A claim that is ready to be provisioned, unless told otherwise."""
    given = {names.STORAGE_PROVISIONER: DRIVER} if annotations is None else annotations
    fields: dict[str, Any] = {
        "access_modes": ("ReadWriteOnce",),
        "storage_class_name": "fast",
        "resources": objects.VolumeResources(requests={"storage": "1Gi"}),
    }
    return objects.PersistentVolumeClaim(
        metadata=objects.ObjectMeta(
            name="data", namespace="team", uid=uid, resource_version="7", annotations=given
        ),
        spec=objects.PersistentVolumeClaimSpec(**(fields | spec)),
    )


def storage_class(**fields: Any) -> objects.StorageClass:
    """The claim's class."""
    given: dict[str, Any] = {"provisioner": DRIVER, "reclaim_policy": "Delete"}
    metadata = objects.ObjectMeta(name="fast", uid="class-uid")
    return objects.StorageClass(metadata=metadata, **(given | fields))


def volume(
    *,
    phase: str = "Bound",
    finalizers: tuple[str, ...] = (names.FINALIZER,),
    annotations: dict[str, str] | None = None,
    deleting: bool = False,
    uid: str = UID,
    claimed: bool = True,
    **spec: Any,
) -> objects.PersistentVolume:
    """The PersistentVolume of the claim with ``uid``."""
    if annotations is None:
        annotations = {
            names.PROVISIONED_BY: DRIVER,
            names.DELETION_SECRET_NAME: "",
            names.DELETION_SECRET_NAMESPACE: "",
        }
    owner = objects.ObjectReference(
        kind="PersistentVolumeClaim", namespace="team", name="data", uid=uid
    )
    fields: dict[str, Any] = {
        "claim_ref": owner if claimed else None,
        "csi": objects.CSIPersistentVolumeSource(driver=DRIVER, volume_handle="vol-1"),
        "persistent_volume_reclaim_policy": "Delete",
        "storage_class_name": "fast",
    }
    return objects.PersistentVolume(
        metadata=objects.ObjectMeta(
            name=VOLUME_NAME,
            uid="pv-uid",
            annotations=annotations,
            finalizers=finalizers,
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        spec=objects.PersistentVolumeSpec(**(fields | spec)),
        status=objects.PersistentVolumeStatus(phase=phase),
    )


def draft(**fields: Any) -> Draft:
    """What ``claim()`` of ``storage_class()`` asks for."""
    given: dict[str, Any] = {
        "claim": ClaimRef("team", "data", UID, "7"),
        "volume_name": VOLUME_NAME,
        "class_name": "fast",
        "class_uid": "class-uid",
        "provisioner": DRIVER,
        "required_bytes": GIB,
        "access_modes": ("ReadWriteOnce",),
    }
    return Draft(**(given | fields))


CREATED = Created(volume_id="vol-1", capacity_bytes=GIB)


def seen(**fields: Any) -> ClaimSeen:
    """A claim that nothing is known of yet."""
    given: dict[str, Any] = {
        "claim": claim(),
        "storage_class": storage_class(),
        "volume": None,
        "past": Past(),
        "nodes": Nodes(),
        "now": NOW,
    }
    return ClaimSeen(**(given | fields))


def volume_seen(**fields: Any) -> VolumeSeen:
    """A PersistentVolume that is released, unless told otherwise."""
    given: dict[str, Any] = {"volume": volume(phase="Released"), "storage_class": storage_class()}
    return VolumeSeen(**(given | fields))
