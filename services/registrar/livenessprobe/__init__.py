"""livenessprobe: answers the kubelet's HTTP probes for the CSI driver beside it."""
