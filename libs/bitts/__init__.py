"""What every Bitts service is made of: control loops, Kubernetes, CSI and gRPC access."""

__version__ = "0.1.0"
