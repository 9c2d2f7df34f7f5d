"""What is spelled as upstream spells it, and the paths of our own."""

PROGRAM = "csi-node-driver-registrar"

PROBE_MODE = "kubelet-registration-probe"
"""The ``--mode`` of exec probes in old manifests."""

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

SOCKET_MODE = 0o700
"""Permission bits of the registration socket: what umask 0077 leaves."""
