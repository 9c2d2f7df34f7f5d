"""The PersistentVolume as it is sent: a plain dict, complete from the start.

One write must do: the claim can be used as soon as this object is stored. So finalizer,
annotations and claimRef are in it, and with reclaim policy Retain there is no finalizer that
would have to be taken off again.
"""

from typing import Any

from bitts.kube import quantity
from bitts.volumes.secrets import Use

from csi_provisioner import names
from csi_provisioner.model import Created, Draft, Policy

_REFERENCES = {
    Use.CONTROLLER_PUBLISH.name: "controllerPublishSecretRef",
    Use.NODE_STAGE.name: "nodeStageSecretRef",
    Use.NODE_PUBLISH.name: "nodePublishSecretRef",
    Use.CONTROLLER_EXPAND.name: "controllerExpandSecretRef",
    Use.NODE_EXPAND.name: "nodeExpandSecretRef",
}


def persistent_volume(
    policy: Policy, identity: str, draft: Draft, created: Created
) -> dict[str, Any]:
    """The object for a volume that the driver made; ``identity`` names this process."""
    metadata: dict[str, Any] = {"name": draft.volume_name, "annotations": _annotations(draft)}
    if draft.reclaim_policy == "Delete":
        metadata["finalizers"] = [names.FINALIZER]
    size = created.capacity_bytes or draft.required_bytes
    spec: dict[str, Any] = {
        "accessModes": list(draft.access_modes),
        "capacity": {"storage": quantity.format_bytes_binary(size)},
        "claimRef": _claim_reference(draft),
        "csi": _source(policy, identity, draft, created),
        "persistentVolumeReclaimPolicy": draft.reclaim_policy,
        "storageClassName": draft.class_name,
    }
    if draft.mount_options:
        spec["mountOptions"] = list(draft.mount_options)
    if draft.volume_mode:
        spec["volumeMode"] = draft.volume_mode
    if draft.attributes_class:
        spec["volumeAttributesClassName"] = draft.attributes_class
    if policy.topology and created.topology:
        spec["nodeAffinity"] = _affinity(created)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": spec,
    }


def _annotations(draft: Draft) -> dict[str, str]:
    deletion = draft.secrets.get(Use.PROVISION.name)
    annotations = {
        names.PROVISIONED_BY: draft.provisioner,
        names.DELETION_SECRET_NAME: deletion.name if deletion else "",
        names.DELETION_SECRET_NAMESPACE: deletion.namespace if deletion else "",
    }
    if modify := draft.secrets.get(Use.CONTROLLER_MODIFY.name):
        annotations[names.MODIFY_SECRET_NAME] = modify.name
        annotations[names.MODIFY_SECRET_NAMESPACE] = modify.namespace
    return annotations


def _claim_reference(draft: Draft) -> dict[str, str]:
    claim = draft.claim
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }


def _source(policy: Policy, identity: str, draft: Draft, created: Created) -> dict[str, Any]:
    source: dict[str, Any] = {
        "driver": policy.driver_name,
        "volumeHandle": created.volume_id,
        "volumeAttributes": {names.IDENTITY_ATTRIBUTE: identity, **created.context},
    }
    if draft.fs_type:
        source["fsType"] = draft.fs_type
    if policy.publish_readonly and draft.access_modes == ("ReadOnlyMany",):
        source["readOnly"] = True
    for use, field in _REFERENCES.items():
        if ref := draft.secrets.get(use):
            source[field] = {"name": ref.name, "namespace": ref.namespace}
    return source


def _affinity(created: Created) -> dict[str, Any]:
    terms = [
        {"matchExpressions": [_expression(key, value) for key, value in place]}
        for place in created.topology
    ]
    return {"required": {"nodeSelectorTerms": terms}}


def _expression(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
