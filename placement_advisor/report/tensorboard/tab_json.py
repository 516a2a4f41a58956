"""What the Placement tab of TensorBoard shows, as JSON: an overview, and details by candidate.

Integer nanoseconds and bytes, per step. The overview is small, since it is written anew while the
analysis runs; the details are what grows with the step. Spans refer to lanes and names by number.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.analysis.advice.reasons import speedup_of
from placement_advisor.analysis.findings.explanations import page
from placement_advisor.report.analysis.break_even_text import (
    BREAK_EVEN_NOTE,
    break_even_lines,
    break_even_title,
    value_text,
)
from placement_advisor.report.analysis.scaling import WHICH, row_as_json, scaling
from placement_advisor.report.analysis.tables import (
    NOT_RECOMMENDED,
    candidate_figures,
    how_title,
    verdict_is_split,
    where_text,
)
from placement_advisor.report.pictures.bars import simulated_spans
from placement_advisor.report.pictures.layer_map import BOX_HEIGHT, BOX_WIDTH
from placement_advisor.simulator.events import carried
from placement_advisor.simulator.intervals import length, merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import (
        Candidate,
        Finding,
        HowToSplit,
        Recommendation,
    )
    from placement_advisor.analysis.recorder import Review
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.measurement.measurement import Span, TransferTotal
    from placement_advisor.report.analysis.scaling import ScalingRow
    from placement_advisor.report.analysis.tables import StepFigures
    from placement_advisor.report.pictures.layer_map import LayerMap
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.exposure import SeenCopy
    from placement_advisor.simulator.schedule import Schedule

SCHEMA_VERSION = 1


def overview_as_json(review: Review, layers: LayerMap) -> dict[str, Any]:
    """Return what the tab shows first."""
    model, testbed = review.model, review.testbed
    return {
        "schema_version": SCHEMA_VERSION,
        "doing": review.doing,
        "model": {
            "path": model.path,
            "name": model.name,
            "mode": model.mode,
            "batch_size": model.batch_size,
            "ops": model.ops,
            "parameter_bytes": model.parameter_bytes,
        },
        "testbed": None if testbed is None else testbed.description,
        "not_run": None if testbed is None else testbed.not_run,
        "devices": [] if testbed is None else list(testbed.cluster.place_names()),
        "verdict": None if review.recommendation is None else _verdict(review.recommendation),
        "candidates": [_candidate(candidate) for candidate in review.candidates],
        "graph": _graph(layers),
        "findings": [_finding(finding) for finding in review.findings],
        "warnings": list(review.warnings),
        "how": None if review.how is None else _how(review, review.how),
        "break_even": None if review.break_even is None else _break_even(review.break_even),
        "scaling": _scaling(scaling(review.candidates)),
    }


def details_as_json(
    candidate: Candidate, graph: OpGraph, layers: LayerMap, devices: tuple[str, ...]
) -> dict[str, Any]:
    """Return what the tab shows of one candidate.

    ``layers`` has the device of each layer by its number, ``cuts`` the number of a flow and the
    bytes that cross; both are null for a split of the batch, whose ops are not the model's.
    """
    device_numbers: list[int | None] | None = None
    cuts: list[tuple[int, int | None]] | None = None
    if candidate.placement is not None and candidate.samples is None:
        number = {name: i for i, name in enumerate(devices)}
        device_numbers = [number.get(device) for device in layers.devices(candidate.placement)]
        cuts = list(layers.cut_bytes(graph, candidate.placement).items())
    profile = candidate.measured.profile if candidate.measured else None
    predicted = candidate.predicted
    spans = {
        "simulated": simulated_spans(predicted) if predicted else (),
        "measured": profile.timeline if profile else (),
    }
    steps_ns = {
        "simulated": predicted.step_ns if predicted else None,
        "measured": round(median(profile.step_ns)) if profile and profile.step_ns else None,
    }
    others = sorted({span.lane for some in spans.values() for span in some})
    lanes = list(dict.fromkeys([*devices, *others]))
    return {
        "layers": device_numbers,
        "cuts": cuts,
        "tensors": _tensors(predicted) if predicted else [],
        "copies": {
            "simulated": _simulated_copies(predicted) if predicted else None,
            "measured": [_copies(total) for total in profile.transfers] if profile else None,
        },
        "lanes": lanes,
        "timelines": {
            which: _timeline(some, lanes, steps_ns[which]) if some else None
            for which, some in spans.items()
        },
    }


def _verdict(recommendation: Recommendation) -> dict[str, Any]:
    return {
        "verdict": recommendation.verdict.value,
        "headline": recommendation.headline,
        "candidate": recommendation.candidate,
        "basis": recommendation.basis,
        "reasons": list(recommendation.reasons),
        "others": list(recommendation.others),
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    predicted, measured = candidate_figures(candidate)
    ratio, comparison = candidate.predicted_ratio, candidate.comparison
    profile = candidate.measured.profile if candidate.measured else None
    return {
        "name": candidate.name,
        "rationale": candidate.rationale,
        "failure": candidate.failure.message if candidate.failure else None,
        "failure_kind": candidate.failure.kind.value if candidate.failure else None,
        "samples": None if candidate.samples is None else list(candidate.samples),
        "predicted": _figures(predicted),
        "measured": _figures(measured),
        # Single over candidate: above 1 is faster.
        "predicted_speedup": 1 / ratio.ratio if ratio and ratio.ratio else None,
        "measured_speedup": {
            "median": comparison.speedup.median,
            "low": comparison.speedup.low,
            "high": comparison.speedup.high,
        }
        if comparison
        else None,
        # Grows with what there is to show of it.
        "details": int(candidate.predicted is not None) + 2 * int(profile is not None),
    }


def _figures(figures: StepFigures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {
        "step_ns": figures.step_ns,
        "copies": figures.transfer_count,
        "bytes": figures.transfer_bytes,
        "bytes_are_a_floor": figures.bytes_are_a_floor,
        "exposed_ns": figures.exposed_ns,
    }


def _graph(layers: LayerMap) -> dict[str, Any]:
    return {
        "box": [BOX_WIDTH, BOX_HEIGHT],
        "layers": [
            {
                "name": layer.name,
                "at": [round(place, 3) for place in layer.middle],
                "ops": layer.ops,
                "flops": layer.flops.amount,
            }
            for layer in layers.layers
        ],
        "flows": [
            {
                "source": flow.source,
                "target": flow.target,
                "bytes": flow.size_bytes,
                "route": [[round(place, 3) for place in point] for point in flow.route],
            }
            for flow in layers.flows
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "finding": finding.finding,
        "action": finding.action,
        "where": where_text(finding),
        "hypothetical": finding.is_hypothetical,
        "saving_ns": finding.saving_ns,
        "saving_basis": finding.saving_basis,
        "page": page(finding.code),
    }


def _how(review: Review, how: HowToSplit) -> dict[str, Any]:
    return {
        "title": how_title(review),
        "note": None if verdict_is_split(review) else NOT_RECOMMENDED,
        "candidate": how.candidate,
        "words": how.words,
        "call": how.call,
        "listing": how.listing,
    }


def _break_even(found: BreakEven) -> dict[str, Any]:
    return {
        "title": break_even_title(found),
        "lines": list(break_even_lines(found)),
        "note": BREAK_EVEN_NOTE,
        "sweeps": [
            {
                "axis": sweep.axis.value,
                "points": [
                    {
                        "value": value_text(sweep.axis, point.value),
                        "candidate": point.best.split,
                        "speedup": speedup_of(point.best.ratio),
                        "wins": point.best.ratio < found.worthwhile_ratio,
                        "here": point.value == sweep.here.value,
                    }
                    for point in sweep.points
                ],
            }
            for sweep in found.sweeps()
        ],
    }


def _scaling(rows: Sequence[ScalingRow]) -> dict[str, Any] | None:
    return {"note": WHICH, "rows": list(map(row_as_json, rows))} if rows else None


def _tensors(schedule: Schedule) -> list[dict[str, Any]]:
    """Return what crosses, largest first."""
    ordered = sorted(schedule.transfers, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))
    return [
        {
            "tensor": copy.tensor,
            "source": copy.source,
            "target": copy.target,
            "bytes": copy.size_bytes,
            "time_ns": copy.end_ns - copy.start_ns,
        }
        for copy in ordered
    ]


def _simulated_copies(schedule: Schedule) -> list[dict[str, Any]]:
    pairs: dict[tuple[str, str], list[SeenCopy]] = {}
    for copy in schedule.copies:
        pairs.setdefault((copy.source, copy.target), []).append(copy)
    shown = []
    for (source, target), copies in sorted(pairs.items()):
        size = carried(each for copy in copies for each in copy.transfers)
        shown.append(
            {
                "source": source,
                "target": target,
                "count": len(copies),
                "bytes": size.amount,
                "bytes_are_a_floor": size.is_floor,
                "time_ns": length(merged((copy.start_ns, copy.end_ns) for copy in copies)),
            }
        )
    return shown


def _copies(total: TransferTotal) -> dict[str, Any]:
    return {
        "source": total.source,
        "target": total.target,
        "count": total.count,
        "bytes": total.size_bytes,
        "bytes_are_a_floor": False,
        "basis": total.size_basis.value if total.size_basis else None,
        "time_ns": total.time_ns,
    }


def _timeline(spans: Sequence[Span], lanes: list[str], step_ns: int | None) -> dict[str, Any]:
    lane = {name: i for i, name in enumerate(lanes)}
    names = {name: i for i, name in enumerate(dict.fromkeys(span.name for span in spans))}
    ordered = sorted(spans, key=lambda span: (lane[span.lane], span.start_ns, span.end_ns))
    return {
        "step_ns": step_ns,
        "names": list(names),
        # Lane, name, start, end; a lane has either ops or copies.
        "spans": [
            [lane[span.lane], names[span.name], span.start_ns, span.end_ns] for span in ordered
        ],
        "copies": sorted({lane[span.lane] for span in spans if span.is_copy}),
    }
