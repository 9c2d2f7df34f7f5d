"""The rules of the kinds we touch. (filled in next)"""

from devcluster.errors import Cause
from devcluster.resources import Object, Resource


def on_create(resource: Resource, obj: Object) -> list[Cause]:
    """List what is wrong with a new object."""
    return []


def on_update(resource: Resource, old: Object, new: Object, subresource: str) -> list[Cause]:
    """List what is wrong with a change."""
    return []
