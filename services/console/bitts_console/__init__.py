"""The ``bitts`` command: a cluster, a driver and the sidecars on this machine, and a demo."""
