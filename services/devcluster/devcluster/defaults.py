"""Values that the server fills in. (filled in next)"""

from devcluster.resources import Object, Resource


def on_create(resource: Resource, obj: Object) -> None:
    """Fill in defaults of a new object."""


def on_update(resource: Resource, old: Object, new: Object) -> None:
    """Fill in defaults of a changed object."""
