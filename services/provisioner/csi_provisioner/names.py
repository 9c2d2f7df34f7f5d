# ruff: noqa: S105 - names of annotations that refer to Secrets, no passwords
"""Every string that other programs know this one by, spelled as upstream spells it."""

from typing import Final

PROGRAM: Final = "csi-provisioner"

# Annotations and finalizers
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
ALPHA_SELECTED_NODE: Final = "volume.alpha.kubernetes.io/selected-node"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
DELETION_SECRET_NAME: Final = "volume.kubernetes.io/provisioner-deletion-secret-name"
DELETION_SECRET_NAMESPACE: Final = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
MODIFY_SECRET_NAME: Final = "volume.kubernetes.io/controller-modify-secret-name"
MODIFY_SECRET_NAMESPACE: Final = "volume.kubernetes.io/controller-modify-secret-namespace"
FINALIZER: Final = "external-provisioner.volume.kubernetes.io/finalizer"
IDENTITY_ATTRIBUTE: Final = "storage.kubernetes.io/csiProvisionerIdentity"

# StorageClass and CreateVolume parameters
PARAMETER_PREFIX: Final = "csi.storage.k8s.io/"
FSTYPE: Final = "csi.storage.k8s.io/fstype"
DEPRECATED_FSTYPE: Final = "fstype"
CLAIM_NAME_PARAMETER: Final = "csi.storage.k8s.io/pvc/name"
CLAIM_NAMESPACE_PARAMETER: Final = "csi.storage.k8s.io/pvc/namespace"
VOLUME_NAME_PARAMETER: Final = "csi.storage.k8s.io/pv/name"

# Event reasons
PROVISIONING: Final = "Provisioning"
PROVISIONING_SUCCEEDED: Final = "ProvisioningSucceeded"
PROVISIONING_FAILED: Final = "ProvisioningFailed"
VOLUME_DELETE: Final = "VolumeDelete"
VOLUME_FAILED_DELETE: Final = "VolumeFailedDelete"

# Queues (label `name` of the workqueue metrics)
CLAIMS_QUEUE: Final = "claims"
VOLUMES_QUEUE: Final = "volumes"
CAPACITY_QUEUE: Final = "csistoragecapacity"

# Metrics
PROVISION_TOTAL: Final = "controller_persistentvolumeclaim_provision_total"
PROVISION_FAILED_TOTAL: Final = "controller_persistentvolumeclaim_provision_failed_total"
PROVISION_SECONDS: Final = "controller_persistentvolumeclaim_provision_duration_seconds"
DELETE_TOTAL: Final = "controller_persistentvolume_delete_total"
DELETE_FAILED_TOTAL: Final = "controller_persistentvolume_delete_failed_total"
DELETE_SECONDS: Final = "controller_persistentvolume_delete_duration_seconds"
CAPACITY_GOAL: Final = "csistoragecapacities_desired_goal"
CAPACITY_CURRENT: Final = "csistoragecapacities_desired_current"
CAPACITY_OBSOLETE: Final = "csistoragecapacities_obsolete"

# CSIStorageCapacity objects
CAPACITY_NAME_PREFIX: Final = "csisc-"
CAPACITY_DRIVER_LABEL: Final = "csi.storage.k8s.io/drivername"
CAPACITY_MANAGER_LABEL: Final = "csi.storage.k8s.io/managed-by"
CAPACITY_MANAGER: Final = "external-provisioner"
