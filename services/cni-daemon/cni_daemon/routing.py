"""Operations on routing beyond a plain route: rules by source, and routes that take a place.

They belong to ``operations``, which has the list of all kinds and their codec.
"""

from dataclasses import dataclass

from bitts.net.routes import Route
from bitts.net.rules import Rule


@dataclass(frozen=True, slots=True)
class AddRule:
    """Let a table serve packets from an address."""

    place: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class RemoveRule:
    """Let it serve them no longer."""

    place: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class ReplaceRoute:
    """Add a route, or let it take another's place; an optional one may fail."""

    place: str
    route: Route
    is_optional: bool = False


RoutingOperation = AddRule | RemoveRule | ReplaceRoute
