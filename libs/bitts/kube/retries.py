"""Which failed requests are sent again at once (pure); all else is the caller's backoff.

The rule: only what was surely not executed, or what does no harm when executed twice. A
write whose answer was lost is never repeated here: the caller has to look first.
"""

from bitts.kube import errors

_REFUSED_ATTEMPTS = 5
_BROKEN_ATTEMPTS = 3
_DEFAULT_REFUSED_DELAY = 1.0
_LONGEST_DELAY = 30.0


def delay(error: errors.ApiError, *, is_read: bool, attempt: int) -> float | None:
    """Seconds until the next attempt after ``attempt`` failed ones, ``None`` to give up."""
    if isinstance(error, errors.Throttled):
        return _refused(error, attempt)
    if isinstance(error, errors.ServerError) and error.retry_after is not None:
        # 503 with Retry-After is a server that does not take requests (starting, stopping).
        return _refused(error, attempt) if error.status == 503 or is_read else None
    if isinstance(error, errors.TransportError) and error.reason != "Certificate":
        never_sent = isinstance(error, errors.Unreachable)
        timed_out = error.reason == "Timeout"
        if attempt < _BROKEN_ATTEMPTS and (never_sent or (is_read and not timed_out)):
            return float(0.1 * 4 ** (attempt - 1))
    return None


def is_overload(error: errors.ApiError) -> bool:
    """Whether the failure says that the server has too much to do."""
    return (
        isinstance(error, errors.Throttled)
        or error.status in (503, 504)
        or (error.reason == "Timeout")
    )


def _refused(error: errors.ApiError, attempt: int) -> float | None:
    if attempt >= _REFUSED_ATTEMPTS:
        return None
    asked = error.retry_after
    wait = _DEFAULT_REFUSED_DELAY * 2 ** (attempt - 1) if asked is None else asked
    return min(wait, _LONGEST_DELAY)
