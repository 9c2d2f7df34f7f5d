"""The Identity service alone, for small programs: a fifth of what ``v1`` loads.

The classes are those of ``v1``, where all the rules for messages stand.
"""

from bitts.csi._generated.identity import *  # noqa: F403  # the module lists its names
from bitts.csi._generated.identity import __all__ as __all__
