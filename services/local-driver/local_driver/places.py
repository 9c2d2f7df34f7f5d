"""Which node an ID is of. Pure.

IDs of volumes, snapshots and groups begin with a digest of their node's name and end with one
of their own (volumes.py, snapshots.py). So a controller finds the node that owns something by
its ID alone, and finds what has the same name on several nodes, without remembering either.
"""

import re

from local_driver import volumes

_ID = re.compile(r"(?:[sg]-)?([0-9a-f]{8})-([0-9a-f]{32})")


def of_node(node: str) -> str:
    """Return the beginning of all IDs of a node."""
    return volumes.volume_id(node, "").partition("-")[0]


def of_id(text: str) -> str:
    """Return the beginning that tells the node, of an ID; empty for what is no ID of ours."""
    found = _ID.fullmatch(text)
    return found[1] if found else ""


def digest(name: str) -> str:
    """Return the end of all IDs of what is called ``name``, on whichever node."""
    return volumes.volume_id("", name).rpartition("-")[2]


def digest_of_id(text: str) -> str:
    """Return the end that tells the name, of an ID; empty for what is no ID of ours."""
    found = _ID.fullmatch(text)
    return found[2] if found else ""
