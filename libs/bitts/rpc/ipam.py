"""Messages, stub and service base of ``bitts.ipam.v1``: addresses of a node, as they change."""

from bitts.rpc._generated.ipam import *  # noqa: F403  # the module lists its names
from bitts.rpc._generated.ipam import __all__ as __all__
