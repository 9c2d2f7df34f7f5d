"""Kubernetes itself, built from source and run on this machine."""

import pathlib

MODULES = pathlib.Path(__file__).parent / "modules"
CONTROL_PLANE = MODULES / "controlplane"
"""The Go module that names etcd and Kubernetes' programs."""
RUNTIME = MODULES / "runtime"
"""The Go module that names containerd's programs."""
