"""Messages, stub and service base of ``bitts.routes.v1``: routes of a node, as they change."""

from bitts.rpc._generated.routes import *  # noqa: F403  # the module lists its names
from bitts.rpc._generated.routes import __all__ as __all__
