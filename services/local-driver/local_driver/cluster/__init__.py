"""The controller's half of the driver for several nodes: it forwards to the node that owns."""
