"""A CSI driver for storage on the node: folders, or images over loop devices."""
