"""Links of the host on their way out (pure): which operations remove them, and in what company."""

from collections.abc import Iterable
from typing import TypeGuard

from cni_daemon import operations as op
from cni_daemon.encoding import ELEMENT_OPERATIONS
from cni_daemon.model import Place


def is_host_link(operation: op.Operation) -> TypeGuard[op.DeleteLink]:
    """Say whether an operation removes a link of the host whose end can be heard of."""
    return (
        isinstance(operation, op.DeleteLink)
        and operation.place == Place.HOST
        and operation.index > 0
    )


def together(todo: Iterable[op.Operation]) -> list[op.Operation]:
    """Let links go together if nothing lies between them that could have to do with them."""
    found: list[op.Operation] = []
    place = -1
    for each in todo:
        if not is_host_link(each):
            found.append(each)
            place = place if isinstance(each, ELEMENT_OPERATIONS) else -1
        elif place < 0:
            found.append(each)
            place = len(found)
        else:
            found.insert(place, each)
            place += 1
    return found
