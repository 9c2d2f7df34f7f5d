"""Put a finalizer on an object, or take it off, whatever others write meanwhile.

The first attempt uses the object as the caller saw it; when that view was stale, the object
is read live. Only our own list element is ever touched (``patches``).
"""

from typing import TypeVar

from bitts.kube import client as clients
from bitts.kube import errors, kinds, objects, patches

T = TypeVar("T", bound=objects.Object)

_ATTEMPTS = 5


async def ensure(client: clients.Client, kind: kinds.Kind[T], seen: T, name: str) -> T:
    """Add a finalizer unless it is there; the object with it.

    NotFound if the object is gone (or is another one by now); Invalid if it is being deleted,
    when nothing may be added any more.
    """
    current, attempt = seen, 1
    while (patch := patches.add_finalizer(current, name)) is not None:
        try:
            return await client.patch(kind, seen.name, patch, seen.namespace)
        except (errors.Conflict, errors.Invalid):
            if attempt == _ATTEMPTS:
                raise
            attempt += 1
        current = await client.get(kind, seen.name, seen.namespace)
        if current.uid != seen.uid:
            raise errors.NotFound(f"{kind.kind} {seen.key!r} was replaced by another of its name")
        if current.deleting and name not in current.metadata.finalizers:
            raise errors.Invalid(f"{kind.kind} {seen.key!r} is being deleted")
    return current


async def remove(client: clients.Client, kind: kinds.Kind[T], seen: T, name: str) -> T | None:
    """Take a finalizer off if it is there; ``None`` if the object is gone, before or by this."""
    current, attempt = seen, 1
    try:
        while (patch := patches.remove_finalizer(current, name)) is not None:
            try:
                changed = await client.patch(kind, seen.name, patch, seen.namespace)
            except (errors.Conflict, errors.Invalid):
                if attempt == _ATTEMPTS:
                    raise
                attempt += 1
            else:
                gone = changed.deleting and not changed.metadata.finalizers
                return None if gone else changed
            current = await client.get(kind, seen.name, seen.namespace)
            if current.uid != seen.uid:
                return None
    except errors.NotFound:
        return None
    return current
