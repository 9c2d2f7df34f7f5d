"""What the failure of a CSI call leaves open: may the driver still be working on it?

Taking a failure for final while the driver goes on leaks a volume; taking it for open when it is
final only costs a retry. So everything that doesn't prove an end counts as open
(external-provisioner's rule, provisioning state "in background"). Pure.
"""

from enum import Enum, auto

from bitts.rpc import codes

_OPEN = frozenset(
    {
        codes.Code.CANCELLED,
        codes.Code.DEADLINE_EXCEEDED,
        codes.Code.UNAVAILABLE,
        codes.Code.ABORTED,
    }
)


class Finality(Enum):
    """Whether a failed call is over at the driver."""

    FINAL = auto()
    IN_BACKGROUND = auto()


def finality(error: codes.RpcError) -> Finality:
    """Say whether the driver is done with a call that failed with ``error``.

    RESOURCE_EXHAUSTED is final here; whether another place may have room is the caller's to
    decide. An answer that nobody can read proves nothing, whatever code stands for it.
    """
    is_open = isinstance(error, codes.UnreadableError) or error.code in _OPEN
    return Finality.IN_BACKGROUND if is_open else Finality.FINAL


def is_infeasible(code: codes.Code) -> bool:
    """Say whether the same request can only fail again, so that retries may be slow."""
    return code is codes.Code.INVALID_ARGUMENT
