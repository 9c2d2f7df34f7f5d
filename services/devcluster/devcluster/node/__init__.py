"""The node agent: registers CSI drivers, mounts volumes and runs pods, in the kubelet's role."""
