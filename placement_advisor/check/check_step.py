"""Checks one step: placed as configured, simulated, judged; with what stands at lines to blame."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.candidates.by_layer import alike
from placement_advisor.check.batch_splits import lay_out_split, lines_of_split
from placement_advisor.check.causes import read_scopes
from placement_advisor.check.check_result import ModelResult, Status
from placement_advisor.check.code_lines import with_placement
from placement_advisor.check.judge import Setting, judge
from placement_advisor.check.placements import DoesNotFitError, lay_out, moved_back
from placement_advisor.check.predicted import Predictor
from placement_advisor.check.problem import Code, Place, Problem, after_update
from placement_advisor.check.record import Versions, devices_fingerprint
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.files.source_files import SourceFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from placement_advisor.check.batch_splits import BatchSplit
    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.config import ModelConfig
    from placement_advisor.check.difference import Move
    from placement_advisor.check.predicted import Predicted
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device


def check_step(
    found: ModelResult,
    model: ModelConfig,
    graph: OpGraph,
    requested_device_of: Mapping[str, str] | None,
    lines: CodeLines,
    *,
    split: BatchSplit | None,
    root: Path,
    hardware: str,
    cluster: Cluster,
    update: bool,
) -> tuple[ModelResult, Placement | None]:
    """Return what the check of a step comes to, and its placement if there is one.

    ``split`` is the step with its batch split, if that is what is to be checked.
    ``found`` has what is known of the model so far. With ``update`` only what a new lock file does
    not accept stays a problem.

    Raises:
        AdvisorError: there is no such placement, or a graph file does not tell it.
    """
    files, groups = SourceFiles(root), _alike(cluster)
    costs = roofline_by_place(graph, cluster)
    locked = {} if found.before is None else found.before.layers
    try:
        if split is None:
            layout = lay_out(
                model.placement, root, graph, requested_device_of, costs, cluster, locked
            )
        else:
            lines = lines_of_split(lines, graph, split.step)
            layout = lay_out_split(model.placement, graph, split, costs, cluster, locked)
    except DoesNotFitError as error:
        return _with_problems(found, [_does_not_fit(error, model, lines)], files), None
    predictor = Predictor(
        graph,
        costs,
        cluster,
        versions=_versions(hardware, cluster),
        configured=model.placement,
        alike=groups,
        split=None if split is None else split.step,
    )
    step = graph if split is None else split.step.graph
    placement = layout.placement
    schedule = predictor.schedule(placement)
    today = predictor.predict(placement, schedule)

    def put_back(moves: Sequence[Move]) -> Predicted:
        back = moved_back(step, placement, moves, cluster.place_names())
        return predictor.predict(back, predictor.schedule(back))

    scopes = None
    if model.placement == AS_WRITTEN and requested_device_of is not None:
        scopes = read_scopes(graph, requested_device_of, cluster)
    setting = Setting(
        limits=model.limits,
        devices=cluster.device_names(),
        # Where all runs on one device as written, none can have traded places with another.
        alike=() if scopes is not None and not scopes.is_split else groups,
        freedom=layout.freedom,
        scopes=scopes,
        lines=with_placement(lines, step, placement.device_of, schedule),
        put_back=put_back,
        configured_at=model.place,
        placed_at=partial(_placed_at, files, model.placement),
    )
    judgement = judge(found.before, today, setting)
    problems, notes = judgement.problems, judgement.notes
    if update:
        left = [after_update(problem) for problem in problems]
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


def _does_not_fit(error: DoesNotFitError, model: ModelConfig, lines: CodeLines) -> Problem:
    places = (lines.of_op.get(op) for op in error.ops)
    return Problem(
        code=Code.DOES_NOT_FIT,
        what=error.message,
        action=error.hint or "ask advisor analyze for a placement that fits",
        place=next((place for place in places if place is not None), model.place),
    )


def _placed_at(files: SourceFiles, placement: str, layer: str) -> Place | None:
    """Return the line of a placement file at which it names a layer."""
    return Place(placement, files.find(placement, f"{json.dumps(layer)}:"))


def _with_problems(
    found: ModelResult, problems: Sequence[Problem], files: SourceFiles
) -> ModelResult:
    """Return the result with problems, each with what stands at its line, or its scope's line."""
    shown = []
    for problem in problems:
        place = problem.place
        if place is not None and problem.code in (Code.SCOPE_CHANGED, Code.BACKWARD_LEFT):
            place = place._replace(line=files.scope(*place) or place.line)
        source = None if place is None else files.text(*place)
        shown.append(replace(problem, place=place, source=source))
    return replace(
        found, status=Status.FAILED if problems else Status.PASSED, problems=tuple(shown)
    )


def _alike(cluster: Cluster) -> list[list[str]]:
    """Return the groups of devices, and of hosts, that have the same figures."""
    groups: list[list[Device]] = []
    for device in cluster.places():
        group = next((group for group in groups if alike(group[0], device)), None)
        if group is None:
            groups.append([device])
        else:
            group.append(device)
    return [[device.name for device in group] for group in groups]
