"""When to offer the driver to the kubelet, when anew, and when to give up.

The kubelet acts on a socket that appears: it registers what is new, forgets what is gone, and
comes back to neither. After a refusal it does not try again (kubernetes #127108), and a driver
that restarted behind a socket that stayed goes unnoticed. So whatever should make it look again
is a new socket. While a driver is away its socket stays: to take a driver off the node for the
second that its restart takes would only make pods fail that need not.
"""

import errno
from collections.abc import Sequence

from bitts.core.plans import Done, Failed, RetryLater, WaitFor

from node_driver_registrar.model import (
    Action,
    GiveUp,
    Limits,
    Offer,
    Offered,
    Seen,
    Withdraw,
    Word,
)

Plan = Sequence[Action | RetryLater | WaitFor]

CONFLICT_PAUSE = 2.0
"""Seconds between two looks whether another process still offers the same driver."""


def decide(seen: Seen, limits: Limits) -> Plan:
    """Return what should happen now."""
    if seen.offered is not None:
        return _offered(seen, seen.offered, limits)
    if seen.driver is None:
        return [WaitFor("the driver has not said its name yet")]
    return [Offer(seen.driver, "the driver is there"), _answer(limits.silence)]


def settle(seen: Seen, outcome: Done[Action] | Failed[Action]) -> Plan:
    """Return what follows from a result: an offer may meet another process's, or no folder."""
    match outcome:
        case Failed(Offer(driver=driver), OSError(errno=errno.EADDRINUSE)):
            text = f"another process offers {driver.name}: waiting until it ends"
            return [WaitFor(text, CONFLICT_PAUSE)]
        case Failed(_, error):
            return [GiveUp(f"{error}; look at --plugin-registration-path")]
        case _:
            return []


def _offered(seen: Seen, offered: Offered, limits: Limits) -> Plan:
    if offered.word is Word.REFUSED:
        return _refused(seen, offered, limits)
    reason = _why_anew(seen, offered, limits)
    if reason:
        driver = seen.driver or offered.driver
        return [Withdraw(reason), Offer(driver, reason), _answer(limits.silence)]
    if offered.word is Word.REGISTERED:
        return []
    return [_answer(limits.silence - offered.age if limits.silence else 0.0)]


def _refused(seen: Seen, offered: Offered, limits: Limits) -> Plan:
    reason = f"the kubelet refused the driver: {offered.error or 'it gave no reason'}"
    refusals = seen.refusals + 1
    if limits.refusals and refusals >= limits.refusals:
        return [Withdraw(reason), GiveUp(f"{reason} (refusal {refusals} of {limits.refusals})")]
    return [Withdraw(reason), RetryLater(reason)]


def _why_anew(seen: Seen, offered: Offered, limits: Limits) -> str:
    """Return why the kubelet should look again, if it should."""
    if seen.driver is not None and seen.driver.name != offered.driver.name:
        return f"the driver is called {seen.driver.name} now, not {offered.driver.name}"
    if seen.driver is not None and seen.driver != offered.driver:
        return "the driver was restarted"
    if not offered.is_in_place:
        return "the registration socket was removed or replaced"
    if offered.word is Word.NONE and 0 < limits.silence <= offered.age:
        return f"the kubelet has said nothing for {limits.silence:g} s"
    return ""


def _answer(silence: float) -> WaitFor:
    return WaitFor("the kubelet has not answered yet", silence if silence > 0 else None)
