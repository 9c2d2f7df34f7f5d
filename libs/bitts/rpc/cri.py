"""The part of the container runtime interface (CRI v1) that lists sandboxes."""

from bitts.rpc._generated.cri import *  # noqa: F403  # the module lists its names
from bitts.rpc._generated.cri import __all__ as __all__
