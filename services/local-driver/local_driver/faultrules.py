"""Faults as people write them, and which of them a call meets. Pure but for its dice.

A rule is ``RPC:fault[@rate][,times=N][,name=text]``. RPC is a method's name or ``*``; the rate
is a share of calls between 0 and 1; ``times`` ends the rule after N calls; ``name`` limits it
to requests whose name or volume ID holds the text. Faults:

- ``latency=50ms`` or any distribution of ``latencies``: wait first;
- ``code=Unavailable``: answer so, with nothing done;
- ``lost``: do the work and cut the connection instead of answering;
- ``hang`` or ``hang=after``: never answer, before or after the work;
- ``crash=before``, ``crash=after``, ``crash=STEP``: kill -9, also at a step inside;
- ``empty``: answer without any field; and wrong answers of CreateVolume: ``missing-id``,
  ``capacity-too-small``, ``other-topology``, ``huge-context``, ``other-content``;
- ``not-ready`` of CreateSnapshot and CreateVolumeGroupSnapshot: the copy is said to go on;
- ``without=EXPAND_VOLUME`` of the RPCs that tell capabilities: that one is missing.
"""

import enum
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bitts.core import literals
from bitts.rpc.codes import Code

from local_driver import latencies, steps

ANY = "*"


class Kind(enum.StrEnum):
    """What goes wrong."""

    LATENCY = "latency"
    CODE = "code"
    LOST = "lost"
    HANG = "hang"
    CRASH = "crash"
    EMPTY = "empty"
    MISSING_ID = "missing-id"
    CAPACITY_TOO_SMALL = "capacity-too-small"
    OTHER_TOPOLOGY = "other-topology"
    HUGE_CONTEXT = "huge-context"
    OTHER_CONTENT = "other-content"
    NOT_READY = "not-ready"
    WITHOUT = "without"


VOLUME_ANSWERS = frozenset(
    {
        Kind.MISSING_ID,
        Kind.CAPACITY_TOO_SMALL,
        Kind.OTHER_TOPOLOGY,
        Kind.HUGE_CONTEXT,
        Kind.OTHER_CONTENT,
    }
)
_ANSWERERS: dict[Kind, frozenset[str]] = {
    **dict.fromkeys(VOLUME_ANSWERS, frozenset({"CreateVolume"})),
    Kind.NOT_READY: frozenset({"CreateSnapshot", "CreateVolumeGroupSnapshot"}),
    Kind.WITHOUT: frozenset(
        {
            "GetPluginCapabilities",
            "ControllerGetCapabilities",
            "GroupControllerGetCapabilities",
            "NodeGetCapabilities",
        }
    ),
}
"""Which RPCs can give a wrong answer of which kind; others can be given by all."""

_BEFORE, _AFTER = "before", "after"
_AT_ONCE = latencies.Uniform(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault and when to show it. ``times`` 0 is for ever.

    ``when`` is ``before`` or ``after`` the work, or the name of a step.
    """

    rpc: str
    kind: Kind
    when: str = _BEFORE
    code: Code = Code.OK
    latency: latencies.Latency = _AT_ONCE
    rate: float = 1.0
    times: int = 0
    name: str = ""
    value: str = ""
    text: str = ""

    @property
    def is_after(self) -> bool:
        """Whether the work is done first."""
        return self.when == _AFTER

    def concerns(self, rpc: str, subject: str) -> bool:
        """Whether the rule is about such a call, dice aside."""
        return self.rpc in (ANY, rpc) and self.name in subject


def parse(text: str, methods: Iterable[str]) -> Rule:
    """Read a rule; raises ValueError that says what is wrong and what is possible."""
    rpc, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ValueError(f"{text!r} is no fault: write RPC:fault, as CreateVolume:code=Unavailable")
    if rpc != ANY and rpc not in set(methods):
        nearest = literals.nearest(rpc, methods)
        raise ValueError(
            f"{text!r}: unknown RPC {rpc!r}" + (f", did you mean {nearest}?" if nearest else "")
        )
    fault, conditions = _split(rest)
    fault, at, rate = fault.partition("@")
    fields: dict[str, object] = {"rpc": rpc, "text": text}
    try:
        fields |= _fault(rpc, fault)
        if at:
            fields["rate"] = _rate(rate)
        for condition in conditions:
            fields |= _condition(condition)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return Rule(**fields)  # type: ignore[arg-type]  # each value was read by its field's reader


def _split(text: str) -> tuple[str, list[str]]:
    """Part a fault from its conditions; percentiles have commas of their own."""
    fault, *rest = text.split(",")
    if fault.startswith(f"{Kind.LATENCY}={latencies.TABLE}"):
        while rest and rest[0].startswith(latencies.TABLE):
            fault = f"{fault},{rest.pop(0)}"
    return fault, rest


def _fault(rpc: str, text: str) -> dict[str, object]:
    word, _, value = text.partition("=")
    try:
        kind = Kind(word)
    except ValueError:
        known = ", ".join(Kind)
        raise ValueError(f"unknown fault {word!r}; known are {known}") from None
    if rpc not in _ANSWERERS.get(kind, {rpc}):
        possible = " and ".join(sorted(_ANSWERERS[kind]))
        raise ValueError(f"{word} is an answer of {possible}, not of {rpc}")
    match kind:
        case Kind.LATENCY:
            return {"kind": kind, "latency": latencies.parse(value)}
        case Kind.CODE:
            return {"kind": kind, "code": Code.from_name(value)}
        case Kind.HANG:
            return {"kind": kind, "when": _when(value or _BEFORE, ())}
        case Kind.CRASH:
            return {"kind": kind, "when": _when(value, steps.STEPS_OF.get(rpc, ()))}
        case Kind.WITHOUT:
            if not value:
                raise ValueError("without needs a capability's name, as without=EXPAND_VOLUME")
            return {"kind": kind, "when": _AFTER, "value": value}
        case Kind.LOST:
            return {"kind": kind, "when": _AFTER}
        case _:
            if value:
                raise ValueError(f"{word} takes no value")
            return {"kind": kind, "when": _AFTER}


def _when(value: str, inside: Sequence[str]) -> str:
    possible = (_BEFORE, _AFTER, *inside)
    if value not in possible:
        raise ValueError(f"{value!r} must be one of {', '.join(possible)}")
    return value


def _rate(text: str) -> float:
    rate = literals.number(text)
    if not 0 <= rate <= 1:
        raise ValueError(f"rate {text} is not between 0 and 1")
    return rate


def _condition(text: str) -> dict[str, object]:
    key, _, value = text.partition("=")
    if key == "times":
        return {"times": literals.unsigned(value)}
    if key == "name":
        return {"name": value}
    raise ValueError(f"unknown condition {key!r}; known are times=N and name=text")


class FaultSet:
    """The rules in force, how often each fired, and how many calls there were."""

    def __init__(self, rules: Iterable[Rule] = (), dice: random.Random | None = None) -> None:
        self._rules: list[Rule] = list(rules)
        self._fired: Counter[int] = Counter()
        self._dice = dice or random.Random()  # noqa: S311 - no secret depends on it
        self.calls: Counter[str] = Counter()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force, in the order in which they were added."""
        return tuple(self._rules)

    def add(self, rule: Rule) -> None:
        """Put a rule in force."""
        self._rules.append(rule)

    def clear(self, rpc: str = ANY) -> None:
        """End the rules of one RPC, or all."""
        self._rules = [rule for rule in self._rules if rpc not in (ANY, rule.rpc)]

    def draw(self, rpc: str, subject: str) -> list[Rule]:
        """Count a call and return the faults that it meets."""
        self.calls[rpc] += 1
        concerned = [
            rule
            for rule in self._rules
            if rule.when not in set(steps.Step) and rule.concerns(rpc, subject)
        ]
        return [rule for rule in concerned if self._fires(rule)]

    def kills_at(self, step: steps.Step, rpc: str, subject: str) -> bool:
        """Whether a crash is due at a step of a call."""
        return any(
            rule.when == step and rule.concerns(rpc, subject) and self._fires(rule)
            for rule in self.rules
        )

    def latency(self, rule: Rule) -> float:
        """Return the seconds to wait."""
        return rule.latency.draw(self._dice)

    def _fires(self, rule: Rule) -> bool:
        if self._dice.random() >= rule.rate:
            return False
        self._fired[id(rule)] += 1
        if rule.times and self._fired[id(rule)] >= rule.times:
            self._rules = [kept for kept in self._rules if kept is not rule]
        return True
