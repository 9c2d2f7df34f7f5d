"""csi-provisioner: makes and deletes the volumes behind PersistentVolumeClaims."""
