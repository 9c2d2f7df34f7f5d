"""A template of all ADDs of one form (pure): planned once, with values that nobody else has.

An ADD is rehearsed: everything is made of it that a real one would write down, send and answer,
with made-up values. Cut at these values it is the template. It is rehearsed a second time with
others; only if the template filled with those is, to the last byte, what came out then, it is
one. So a template never differs from what the plugins plan. They know nothing of it; what
depends on more than ``holes.Given`` has none and is planned each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bitts.net import sysctls

from cni_daemon import holes, rehearsing
from cni_daemon.forms import Form
from cni_daemon.holes import Blank, Filler, Mould, Values
from cni_daemon.model import Place
from cni_daemon.operations import SetSysctl
from cni_daemon.rehearsing import Act, Played, See, Setting, UnfitError

_SEEDS = ((0x5A, 0xA7), (0x93, 0x6C), (0xE5, 0x3D))
"""Pairs to rehearse with: digits of one may happen to stand in a configuration."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something to do. ``settings`` are files and what to write, and whether that may fail.

    ``message`` is what is sent afterwards at that place. Where there is neither, ``operations``
    says what to do.
    """

    kind: str
    place: str
    operations: Filler
    message: Mould
    settings: tuple[tuple[str, bytes, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """What ADDs of one form have in common; its texts and fillers want the same values."""

    setting: Setting
    network: str
    step: str
    begun: Filler
    steps: Filler
    undo: Filler
    plan: Blank
    deeds: tuple[Deed, ...]
    carriers: Filler
    done: Blank
    answer: Blank
    has_digest: bool
    """Whether the attachment's digest is in it, which takes a while to compute."""


def of(form: Form, see: See) -> Template:
    """Return the template of a form. Raises UnfitError, and what a real ADD is refused with."""
    for one, other in _SEEDS:
        played, setting = _rehearsed(form, one, 1, see)
        found = _cut(played, setting)
        again, other_setting = _rehearsed(form, other, 2, see)
        if _is_like(found, other_setting.given.values(), again):
            return found
    raise UnfitError("two ADDs differ in more than in what is given")


def _rehearsed(form: Form, seed: int, position: int, see: See) -> tuple[Played, Setting]:
    given = holes.rehearsed(seed, form.container_size, len(form.pieces) - 1)
    return rehearsing.play(form, given, position, see)


def _cut(played: Played, setting: Setting) -> Template:
    values = setting.given.values()
    return Template(
        setting=setting,
        network=played.key.network,
        step=played.key.step,
        begun=holes.cut(played.begun, values),
        steps=holes.cut(played.steps, values),
        undo=holes.cut(played.undo, values),
        plan=holes.cut_text(played.plan, values),
        deeds=_joined([_deed(each, values) for each in played.acts]),
        carriers=holes.cut(played.carriers, values),
        done=holes.cut_text(played.done, values),
        answer=holes.cut_text(played.answer, values),
        has_digest=setting.given.digest in played.plan,
    )


def _deed(act: Act, values: Values) -> Deed:
    operations, message = holes.cut(act.operations, values), holes.cut_data(act.data, values)
    return Deed(act.kind, act.place, operations, message, _settings(act))


def _settings(act: Act) -> tuple[tuple[str, bytes, bool], ...]:
    return tuple(
        (sysctls.path(each.key), each.value.encode(), each.is_optional)
        for each in act.operations
        if isinstance(each, SetSysctl)
    )


def _joined(deeds: Sequence[Deed]) -> tuple[Deed, ...]:
    """Let what is set in a container and what is sent there be done in one visit."""
    found: list[Deed] = []
    for each in deeds:
        last = found[-1] if found else None
        if (
            last is not None
            and last.place == each.place == Place.POD
            and (last.kind, each.kind) == ("settings", "route")
        ):
            found[-1] = replace(each, settings=last.settings)
        else:
            found.append(each)
    return tuple(found)


def _is_like(found: Template, values: Values, played: Played) -> bool:
    """Say whether a template filled with the values of an ADD is what came out of it."""
    filled = (
        found.begun(values), found.steps(values), found.undo(values), found.plan.filled(values),
        found.carriers(values), found.done.filled(values), found.answer.filled(values),
        found.network, found.step,
    )  # fmt: skip
    wanted = (
        played.begun, played.steps, played.undo, played.plan, played.carriers, played.done,
        played.answer, played.key.network, played.key.step,
    )  # fmt: skip
    sent = [each.message.filled(values) for each in found.deeds if each.message.pattern]
    settings = [setting for each in found.deeds for setting in each.settings]
    return (
        filled == wanted
        and sent == [each.data for each in played.acts if each.data]
        and settings == [setting for each in played.acts for setting in _settings(each)]
    )
