"""csi-node-driver-registrar: makes the CSI driver beside it known to the node's kubelet."""
