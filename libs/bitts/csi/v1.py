"""CSI messages, stubs and service bases by the spec's names: ``from bitts.csi import v1``.

Nested types carry their parents' names: ``v1.VolumeCapabilityAccessModeMode``. Fields that
hold a message are ``None`` when absent; of a oneof, all members but one are ``None``. Ask
``is not None``, never truth: a message whose fields are all default counts as false. Messages
print their secrets, so nothing but ``bitts.csi.redact`` may turn one into text.
"""

from bitts.csi._generated.csi import *  # noqa: F403  # the module lists its names
from bitts.csi._generated.csi import __all__ as __all__
