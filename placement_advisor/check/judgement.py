"""Checks one step: places and simulates it, and judges it against the locked record.

A graph that is the same except for names and order, placed the same, is not compared, nor is a
searched one. A rule or a search may move layers as it likes: only what that costs counts. Where
layers moved, the step is simulated with them put back, cause by cause: an effect belongs to the
cause without which most of it is gone. What is left comes from the layers themselves. Left out:
the share that each of several causes has in an effect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.analysis.target_costs import assumed_uncertainty
from placement_advisor.candidates import references
from placement_advisor.candidates.by_layer import alike
from placement_advisor.check import causes, code_lines, placements
from placement_advisor.check import problem_codes as check_problems
from placement_advisor.check.lock_record import (
    Difference,
    Versions,
    devices_fingerprint,
    difference,
    record,
    renamed_devices,
    with_devices,
)
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.files.source_files import SourceFiles
from placement_advisor.simulator.schedule import Schedule, shortages
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.check.lock_file import ModelConfig
    from placement_advisor.check.lock_record import Move, Record
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A step under a placement; ``shortages`` say of devices what memory is missing there."""

    record: Record
    shortages: Mapping[str, str]


_OF_CROSSINGS = frozenset({check_problems.ProblemCode.COPIES, check_problems.ProblemCode.BYTES})
_OF_WAITS = frozenset({check_problems.ProblemCode.SLOWER, check_problems.ProblemCode.STANDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeContext:
    """What a step is judged by, and what explains it.

    ``devices`` are those of today, ``alike`` groups of them, and of hosts, that may trade places;
    ``freedom`` is that of what laid the placement out, ``scopes`` what today's `tf.device` scopes
    ask for, if they did. ``put_back`` simulates the step with some moves undone. ``configured_at``
    is the line of the settings, ``placed_at`` that of a layer in a placement file, if there is one.
    """

    limits: causes.Limits
    devices: Sequence[str]
    alike: Sequence[Sequence[str]]
    freedom: placements.PlacementFreedom
    scopes: causes.Scopes | None
    lines: code_lines.CodeLines
    put_back: Callable[[Sequence[Move]], Predicted]
    configured_at: check_problems.Place
    placed_at: Callable[[str], check_problems.Place | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What fails, what is only told, and what differs, if anything was compared."""

    problems: tuple[check_problems.Problem, ...]
    notes: tuple[str, ...]
    difference: Difference | None


def judge(before: Record | None, today: Predicted, setting: JudgeContext) -> Judgement:
    """Judge the step of today by the locked one, if there is one."""
    after, freedom = today.record, setting.freedom
    broken = causes.broken_limits(after, setting.limits, today.shortages)
    if before is None:
        return Judgement(
            problems=(*_as_problems(broken, setting), _not_locked()), notes=(), difference=None
        )
    same_versions = before.versions == after.versions
    notes = [] if same_versions else [_not_comparable(before, after)]
    new_names = renamed_devices(before, after, setting.devices)
    if new_names:
        notes.append(_renamed("devices of other names", new_names))
        before = with_devices(before, new_names)
    is_same = before.placed == after.placed or (
        freedom is placements.PlacementFreedom.SEARCH
        and same_versions
        and before.graph == after.graph
    )
    if is_same and before.placement == after.placement:
        return Judgement(
            problems=_as_problems(broken, setting), notes=tuple(notes), difference=None
        )
    found = difference(before, after, setting.alike)
    grown = [effect for effect in broken if causes.has_grown(effect, found.before, after)]
    problems = (
        *_problems(found, grown, setting),
        *_as_problems([effect for effect in broken if effect not in grown], setting),
    )
    notes += _notes(found, setting, has_failed=bool(problems))
    return Judgement(problems=problems, notes=tuple(notes), difference=found)


def _problems(
    found: Difference, grown: Sequence[check_problems.Effect], setting: JudgeContext
) -> list[check_problems.Problem]:
    """Return each cause with its effects, those first that move layers."""
    lines = setting.lines
    left = [*causes.effects(found.before, found.after, setting.limits, setting.freedom), *grown]
    is_free = _may_move(found, setting)
    problems: list[check_problems.Problem] = []
    undone: list[Move] = []
    for cause in _causes(found, bool(left), setting):
        undone += cause.moves
        own = left
        if left and cause.problem.code is not check_problems.ProblemCode.PLACEMENT_CHANGED:
            own = _effects_undone(left, found.before, setting.put_back(undone), setting)
        left = [effect for effect in left if effect not in own]
        if own or not is_free:
            problems.append(replace(cause.problem, effects=tuple(own)))
    is_slower = any(effect.code in _OF_WAITS for effect in left)
    in_layers = causes.cause_in_layers(found, setting.freedom, lines, is_slower=is_slower)
    if in_layers is not None and (left or in_layers.code is check_problems.ProblemCode.NO_KERNEL):
        problems.append(replace(in_layers, effects=tuple(left)))
    elif left and problems:
        problems[0] = replace(problems[0], effects=(*problems[0].effects, *left))
    elif left:
        place = lines.of_cuts(found.cuts_added) or lines.largest.get(left[0].device)
        problems.append(
            replace(check_problems.effect_as_problem(left[0], place), effects=tuple(left[1:]))
        )
    return _with_crossings(problems, found, lines)


def _may_move(found: Difference, setting: JudgeContext) -> bool:
    """Whether layers may run elsewhere: by a rule, or for the better."""
    return setting.freedom is not placements.PlacementFreedom.NONE or causes.is_better(
        found.before, found.after
    )


def _causes(found: Difference, is_worse: bool, setting: JudgeContext) -> list[causes.Cause]:
    """Return why layers moved, as far as that may be to blame."""
    if found.before.placement != found.after.placement:
        if is_worse or (found.moves and not _may_move(found, setting)):
            return [causes.cause_in_settings(found, setting.lines, setting.configured_at)]
        return []
    if setting.freedom is not placements.PlacementFreedom.NONE:
        return []
    return causes.causes_of_moves(found, setting.scopes, setting.lines, setting.placed_at)


def _effects_undone(
    effects_today: Sequence[check_problems.Effect],
    before: Record,
    without: Predicted,
    setting: JudgeContext,
) -> list[check_problems.Effect]:
    """Return the effects of which less than half is left ``without`` some moves."""
    still = {
        (effect.code, effect.device): effect.size
        for effect in (
            *causes.effects(before, without.record, setting.limits, setting.freedom),
            *causes.broken_limits(without.record, setting.limits, without.shortages),
        )
    }
    return [
        effect
        for effect in effects_today
        if still.get((effect.code, effect.device), 0) < effect.size / 2
    ]


def _with_crossings(
    problems: Sequence[check_problems.Problem], found: Difference, lines: code_lines.CodeLines
) -> list[check_problems.Problem]:
    """Return the problems, the first that makes more cross, or else waits, with what crosses."""
    for codes in (_OF_CROSSINGS, _OF_WAITS):
        first = next((each for each in problems if codes.intersection(each.codes)), None)
        if first is not None:
            told = replace(first, culprits=(*first.culprits, *causes.crossings(found, lines)))
            return [told if each is first else each for each in problems]
    return list(problems)


def _as_problems(
    broken: Sequence[check_problems.Effect], setting: JudgeContext
) -> tuple[check_problems.Problem, ...]:
    return tuple(
        check_problems.effect_as_problem(effect, setting.lines.largest.get(effect.device))
        for effect in broken
    )


def _notes(found: Difference, setting: JudgeContext, *, has_failed: bool) -> list[str]:
    """Return what a reader should know; a problem says itself what moved."""
    before, after = found.before, found.after
    notes = []
    if found.renamed:
        notes.append(_renamed("renamed", found.renamed))
    if found.moves and not has_failed:
        moved = list(causes.move_texts(found.moves, setting.lines))[: check_problems.MAX_CULPRITS]
        notes.append(f"moved: {'; '.join(moved)}")
    return [*notes, *causes.improvements(before, after, setting.limits, setting.freedom)]


def _renamed(what: str, new_names: Mapping[str, str]) -> str:
    few = [
        f"{check_problems.layer_text(old)} is {check_problems.layer_text(new)} now"
        for old, new in new_names.items()
    ][: check_problems.MAX_CULPRITS]
    return f"{what}, which changes nothing: {', '.join(few)}"


def _not_locked() -> check_problems.Problem:
    return check_problems.Problem(
        code=check_problems.ProblemCode.NOT_LOCKED,
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
        f"predicted times are not comparable: locked with {'; '.join(changed)}. The check "
        "enforces all else; `advisor check --update` locks new times"
    )


def check_step(
    found: check_problems.ModelResult,
    model: ModelConfig,
    graph: OpGraph,
    requested_device_of: Mapping[str, str] | None,
    lines: code_lines.CodeLines,
    *,
    split: placements.BatchSplit | None,
    root: Path,
    hardware: str,
    cluster: Cluster,
    update: bool,
) -> tuple[check_problems.ModelResult, Placement | None]:
    """Return what the check of a step comes to, and its placement if there is one.

    ``split`` is the step with its batch split, if that is what is to be checked.
    ``found`` has what is known of the model so far. With ``update`` only what a new lock file does
    not accept stays a problem.

    Raises:
        AdvisorError: there is no such placement, or a graph file does not tell it.
    """
    files, groups = SourceFiles(root), _equal_devices(cluster)
    costs = roofline_by_place(graph, cluster)
    locked = {} if found.before is None else found.before.layers
    try:
        if split is None:
            layout = placements.lay_out(
                model.placement, root, graph, requested_device_of, costs, cluster, locked
            )
        else:
            lines = placements.lines_of_split(lines, graph, split.step)
            layout = placements.lay_out_split(model.placement, graph, split, costs, cluster, locked)
    except placements.DoesNotFitError as error:
        return _with_problems(found, [_does_not_fit(error, model, lines)], files), None
    step, placement = graph if split is None else split.step.graph, layout.placement
    simulator = unsplit = Simulator(graph, costs, cluster)
    if split is not None:
        split_costs, together = roofline_by_place(step, cluster), split.step.collective_of
        simulator = Simulator(step, split_costs, cluster, collective_of=together)
    alone = references.on_device(graph, cluster.device_names()[0])
    versions = _versions(hardware, cluster)

    def predicted(placement: Placement, schedule: Schedule) -> Predicted:
        """Return what is to be known of a step, held against the graph on one device."""
        ratio = None
        if placement.device_of != alone.device_of:
            sensitivity = Sensitivity(unsplit, alone, assumed_uncertainty(costs, cluster))
            ratio = sensitivity.ratio(placement, None if split is None else simulator)
        found = record(
            step,
            placement,
            schedule,
            unsplit.step_ns(alone),
            ratio,
            versions=versions,
            configured=model.placement,
            alike=groups,
        )
        missing = shortages(schedule.peak_memory, cluster.devices)
        return Predicted(record=found, shortages={each.device.name: str(each) for each in missing})

    schedule = simulator.schedule(placement)
    today = predicted(placement, schedule)

    def put_back(moves: Sequence[Move]) -> Predicted:
        back = placements.moved_back(step, placement, moves, cluster.place_names())
        return predicted(back, simulator.schedule(back))

    scopes = None
    if model.placement == AS_WRITTEN and requested_device_of is not None:
        scopes = causes.read_scopes(graph, requested_device_of, cluster)
    setting = JudgeContext(
        limits=model.limits,
        devices=cluster.device_names(),
        # Where all runs on one device as written, none can have traded places with another.
        alike=() if scopes is not None and not scopes.is_split else groups,
        freedom=layout.freedom,
        scopes=scopes,
        lines=code_lines.with_placement(lines, step, placement.device_of, schedule),
        put_back=put_back,
        configured_at=model.place,
        placed_at=partial(_placed_at, files, model.placement),
    )
    judgement = judge(found.before, today, setting)
    problems, notes = judgement.problems, judgement.notes
    if update:
        left = [check_problems.after_update(problem) for problem in problems]
        notes += tuple(accepted for _, accepted in left if accepted is not None)
        problems = tuple(problem for lasting, _ in left for problem in lasting)
    found = replace(found, notes=notes, after=today.record, difference=judgement.difference)
    return _with_problems(found, problems, files), placement


def _versions(hardware: str, cluster: Cluster) -> Versions:
    return Versions(
        hardware=hardware,
        devices=devices_fingerprint(cluster),
        tensorflow=version("tensorflow"),
        advisor=__version__,
    )


def _does_not_fit(
    error: placements.DoesNotFitError, model: ModelConfig, lines: code_lines.CodeLines
) -> check_problems.Problem:
    places = (lines.of_op.get(op) for op in error.ops)
    return check_problems.Problem(
        code=check_problems.ProblemCode.DOES_NOT_FIT,
        what=error.message,
        action=error.hint or "ask advisor analyze for a placement that fits",
        place=next((place for place in places if place is not None), model.place),
    )


def _placed_at(files: SourceFiles, placement: str, layer: str) -> check_problems.Place | None:
    """Return the line of a placement file at which it names a layer."""
    return check_problems.Place(placement, files.find(placement, f"{json.dumps(layer)}:"))


def _with_problems(
    found: check_problems.ModelResult,
    problems: Sequence[check_problems.Problem],
    files: SourceFiles,
) -> check_problems.ModelResult:
    """Return the result with problems, each with what stands at its line, or its scope's line."""
    shown = []
    for problem in problems:
        place = problem.place
        if place is not None and problem.code in (
            check_problems.ProblemCode.SCOPE_CHANGED,
            check_problems.ProblemCode.BACKWARD_LEFT,
        ):
            place = replace(place, line=files.scope(place.file, place.line) or place.line)
        source = None if place is None else files.text(place.file, place.line)
        shown.append(replace(problem, place=place, source=source))
    return replace(
        found,
        status=check_problems.Status.FAILED if problems else check_problems.Status.PASSED,
        problems=tuple(shown),
    )


def _equal_devices(cluster: Cluster) -> list[list[str]]:
    """Return the groups of devices, and of hosts, that have the same figures."""
    groups: list[list[Device]] = []
    for device in cluster.places():
        group = next((group for group in groups if alike(group[0], device)), [])
        if not group:
            groups.append(group)
        group.append(device)
    return [[device.name for device in group] for group in groups]
