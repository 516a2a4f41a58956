"""Whether a step fails the check against the locked one, and why: each cause once.

A graph that is the same but for names and order, placed the same, is not compared at all; nor is
one that was searched, whose search may end otherwise under other names. A placement by a rule or a
search may move layers as it likes: only what that costs counts. Where
layers moved, the step is simulated with them put back, cause by cause: an effect stands under the
cause with which most of it is gone. What is left comes from the layers themselves.

Left out: what share of an effect each of several causes has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.check.causes import cause_in_settings, causes_of_moves, said_moves
from placement_advisor.check.changed_layers import (
    cause_in_layers,
    crossings,
)
from placement_advisor.check.device_pairs import renamed_devices, with_devices
from placement_advisor.check.difference import Difference, difference
from placement_advisor.check.effects import (
    broken_limits,
    effects,
    has_grown,
    improvements,
    is_better,
)
from placement_advisor.check.placements import Freedom
from placement_advisor.check.problem import MAX_CULPRITS, Code, Problem, alone, called

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.check.causes import Cause, Scopes
    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.difference import Move
    from placement_advisor.check.effects import Limits
    from placement_advisor.check.predicted import Predicted
    from placement_advisor.check.problem import Effect, Place
    from placement_advisor.check.record import Record

_OF_CROSSINGS = frozenset({Code.COPIES, Code.BYTES})
_OF_WAITS = frozenset({Code.SLOWER, Code.STANDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a step is judged by, and what explains it.

    ``devices`` are those of today, ``alike`` groups of them, and of hosts, that may trade places;
    ``freedom`` is that of what laid the placement out, ``scopes`` what today's `tf.device` scopes
    ask for, if they did. ``put_back`` simulates the step with some moves undone. ``configured_at``
    is the line of the settings, ``placed_at`` that of a layer in a placement file, if there is one.
    """

    limits: Limits
    devices: Sequence[str]
    alike: Sequence[Sequence[str]]
    freedom: Freedom
    scopes: Scopes | None
    lines: CodeLines
    put_back: Callable[[Sequence[Move]], Predicted]
    configured_at: Place
    placed_at: Callable[[str], Place | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What fails, what is only told, and what differs, if anything was compared."""

    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    difference: Difference | None


def judge(before: Record | None, today: Predicted, setting: Setting) -> Judgement:
    """Judge the step of today by the locked one, if there is one."""
    after, freedom = today.record, setting.freedom
    broken = broken_limits(after, setting.limits, today.shortages)
    if before is None:
        return Judgement(
            problems=(*_alone(broken, setting), _not_locked()), notes=(), difference=None
        )
    same_versions = before.versions == after.versions
    notes = [] if same_versions else [_not_comparable(before, after)]
    new_names = renamed_devices(before, after, setting.devices)
    if new_names:
        notes.append(_renamed("devices of other names", new_names))
        before = with_devices(before, new_names)
    is_same = before.placed == after.placed or (
        freedom is Freedom.SEARCH and same_versions and before.graph == after.graph
    )
    if is_same and before.placement == after.placement:
        return Judgement(problems=_alone(broken, setting), notes=tuple(notes), difference=None)
    found = difference(before, after, setting.alike)
    grown = [effect for effect in broken if has_grown(effect, found.before, after)]
    problems = (
        *_problems(found, grown, setting),
        *_alone([effect for effect in broken if effect not in grown], setting),
    )
    notes += _notes(found, setting, has_failed=bool(problems))
    return Judgement(problems=problems, notes=tuple(notes), difference=found)


def _problems(found: Difference, grown: Sequence[Effect], setting: Setting) -> list[Problem]:
    """Return each cause with its effects, those first that move layers."""
    lines = setting.lines
    left = [*effects(found.before, found.after, setting.limits, setting.freedom), *grown]
    is_free = _may_move(found, setting)
    problems: list[Problem] = []
    undone: list[Move] = []
    for cause in _causes(found, bool(left), setting):
        undone += cause.moves
        own = left
        if left and cause.problem.code is not Code.PLACEMENT_CHANGED:
            own = _gone(left, found.before, setting.put_back(undone), setting)
        left = [effect for effect in left if effect not in own]
        if own or not is_free:
            problems.append(replace(cause.problem, effects=tuple(own)))
    is_slower = any(effect.code in _OF_WAITS for effect in left)
    in_layers = cause_in_layers(found, setting.freedom, lines, is_slower=is_slower)
    if in_layers is not None and (left or in_layers.code is Code.NO_KERNEL):
        problems.append(replace(in_layers, effects=tuple(left)))
    elif left and problems:
        problems[0] = replace(problems[0], effects=(*problems[0].effects, *left))
    elif left:
        place = lines.of_cuts(found.cuts_added) or lines.largest.get(left[0].device)
        problems.append(replace(alone(left[0], place), effects=tuple(left[1:])))
    return _with_crossings(problems, found, lines)


def _may_move(found: Difference, setting: Setting) -> bool:
    """Whether layers may run elsewhere: by a rule, or for the better."""
    return setting.freedom is not Freedom.NONE or is_better(found.before, found.after)


def _causes(found: Difference, is_worse: bool, setting: Setting) -> list[Cause]:
    """Return why layers moved, as far as that may be to blame."""
    if found.before.placement != found.after.placement:
        if is_worse or (found.moves and not _may_move(found, setting)):
            return [cause_in_settings(found, setting.lines, setting.configured_at)]
        return []
    if setting.freedom is not Freedom.NONE:
        return []
    return causes_of_moves(found, setting.scopes, setting.lines, setting.placed_at)


def _gone(
    effects_today: Sequence[Effect], before: Record, without: Predicted, setting: Setting
) -> list[Effect]:
    """Return the effects of which less than half is left ``without`` some moves."""
    still = {
        (effect.code, effect.device): effect.size
        for effect in (
            *effects(before, without.record, setting.limits, setting.freedom),
            *broken_limits(without.record, setting.limits, without.shortages),
        )
    }
    return [
        effect
        for effect in effects_today
        if still.get((effect.code, effect.device), 0) < effect.size / 2
    ]


def _with_crossings(
    problems: Sequence[Problem], found: Difference, lines: CodeLines
) -> list[Problem]:
    """Return the problems, the first that makes more cross, or else waits, with what crosses."""
    for codes in (_OF_CROSSINGS, _OF_WAITS):
        first = next((each for each in problems if codes.intersection(each.codes)), None)
        if first is not None:
            told = replace(first, culprits=(*first.culprits, *crossings(found, lines)))
            return [told if each is first else each for each in problems]
    return list(problems)


def _alone(broken: Sequence[Effect], setting: Setting) -> tuple[Problem, ...]:
    return tuple(alone(effect, setting.lines.largest.get(effect.device)) for effect in broken)


def _notes(found: Difference, setting: Setting, *, has_failed: bool) -> list[str]:
    """Return what a reader should know; a problem says itself what moved."""
    before, after = found.before, found.after
    notes = []
    if found.renamed:
        notes.append(_renamed("renamed", found.renamed))
    if found.moves and not has_failed:
        moved = list(said_moves(found.moves, setting.lines))[:MAX_CULPRITS]
        notes.append(f"moved: {'; '.join(moved)}")
    return [*notes, *improvements(before, after, setting.limits, setting.freedom)]


def _renamed(what: str, new_names: Mapping[str, str]) -> str:
    few = [f"{called(old)} is {called(new)} now" for old, new in new_names.items()][:MAX_CULPRITS]
    return f"{what}, which is no change: {', '.join(few)}"


def _not_locked() -> Problem:
    return Problem(
        code=Code.NOT_LOCKED,
        what="the lock file does not have this model",
        action="advisor check --update, and commit what it writes",
    )


def _not_comparable(before: Record, after: Record) -> str:
    ours, theirs = before.versions, after.versions
    pairs = [
        ("hardware", ours.hardware, theirs.hardware),
        ("TensorFlow", ours.tensorflow, theirs.tensorflow),
        ("advisor", ours.advisor, theirs.advisor),
    ]
    changed = [f"{what} {old}, now {new}" for what, old, new in pairs if old != new]
    if not changed:
        changed = ["other figures of the hardware"]
    return (
        f"predicted times are not comparable: locked with {'; '.join(changed)}. All else is "
        "enforced; `advisor check --update` locks times anew"
    )
