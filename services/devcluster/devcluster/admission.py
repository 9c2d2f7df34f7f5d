"""What is decided from other objects before a write. (filled in next)"""

from typing import TYPE_CHECKING

from devcluster.resources import Object, Resource

if TYPE_CHECKING:
    from devcluster.api import Api


def before_create(api: "Api", resource: Resource, obj: Object) -> None:
    """Admit and complete a new object."""


def before_update(
    api: "Api", resource: Resource, old: Object, new: Object, subresource: str
) -> None:
    """Admit a change."""


def before_delete(resource: Resource, old: Object) -> None:
    """Admit a deletion."""
