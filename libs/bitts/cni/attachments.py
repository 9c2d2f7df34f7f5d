"""The list of attachments that a GC request declares valid.

Three states must not be mixed up: a list, an empty list (``[]`` or ``null``: everything is
stale), and no list at all, which is no information, so nothing may be collected.
"""

from dataclasses import dataclass

from bitts.cni.documents import Fields

KEYS = ("cni.dev/valid-attachments", "cni.dev/attachments")
"""The specification renamed the key; libcni sends both."""


@dataclass(frozen=True, slots=True, order=True)
class Attachment:
    """What names an attachment within its network."""

    container_id: str
    ifname: str


def valid(config: Fields) -> frozenset[Attachment] | None:
    """Return the valid attachments, None when the request does not say. Raises DocumentError."""
    for key in KEYS:
        if key in config:
            return frozenset(
                Attachment(each.text("containerID"), each.text("ifname"))
                for each in config.objects(key)
            )
    return None
