"""VLANs of a bridge port (pure; cni.dev: main/bridge): what is configured, what it changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bitts.cni.documents import Fields
from bitts.cni.errors import CniError, Code

_LAST = 4094
_DEFAULT = 1


@dataclass(frozen=True, slots=True)
class VlanChange:
    """One VLAN that a port gets or loses."""

    number: int
    is_pvid: bool = False
    is_removed: bool = False


def access(fields: Fields) -> int:
    """Read the port's own VLAN; 0 for none."""
    number = fields.integer("vlan")
    if not 0 <= number <= _LAST:
        raise CniError(Code.INTERNAL, f"invalid VLAN ID {number} (must be between 0 and {_LAST})")
    return number


def trunk(fields: Fields) -> tuple[int, ...]:
    """Read the tagged VLANs: single ones and stretches, sorted and without doubles."""
    found: set[int] = set()
    for each in fields.objects("vlanTrunk"):
        low, high = each.optional_integer("minID"), each.optional_integer("maxID")
        single = each.optional_integer("id")
        if low is not None and high is not None:
            if not 0 < low <= _LAST:
                raise CniError(Code.INTERNAL, "incorrect trunk minID parameter")
            if not 0 < high <= _LAST:
                raise CniError(Code.INTERNAL, "incorrect trunk maxID parameter")
            if low > high:
                raise CniError(Code.INTERNAL, "minID is greater than maxID in trunk parameter")
            found.update(range(low, high + 1))
        elif low is not None or high is not None:
            raise CniError(
                Code.INTERNAL,
                "minID and maxID should be configured simultaneously, minID is missing"
                if low is None
                else "minID and maxID should be configured simultaneously, maxID is missing",
            )
        if single is not None:
            if not 0 < single <= _LAST:
                raise CniError(Code.INTERNAL, "incorrect trunk id parameter")
            found.add(single)
    return tuple(sorted(found))


def changes(
    own: int, tagged: Sequence[int], preserves_default: bool  # noqa: FBT001 - configured so
) -> Iterator[VlanChange]:  # fmt: skip
    """Yield what to change on a new port, which starts in VLAN 1 untagged."""
    if not own and not tagged:
        return
    if not preserves_default:
        yield VlanChange(_DEFAULT, is_removed=True)
    if own:
        yield VlanChange(own, is_pvid=True)
    elif tagged:
        yield VlanChange(_DEFAULT, is_pvid=True)
    for number in tagged:
        yield VlanChange(number)
