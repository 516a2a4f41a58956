"""What the Placement tab of TensorBoard shows first, as JSON; `tab_details` has what it opens.

Integer nanoseconds and bytes, per step. It is small, since it is written anew while the analysis
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.analysis.advice.reasons import speedup_of
from placement_advisor.analysis.findings.explanations import page
from placement_advisor.files.contract import plain
from placement_advisor.report.analysis.break_even_text import (
    BREAK_EVEN_NOTE,
    break_even_lines,
    break_even_title,
    value_text,
)
from placement_advisor.report.analysis.figures import (
    AS_IS,
    as_is_interval,
    predicted_range,
    range_after_runs,
)
from placement_advisor.report.analysis.statements import (
    NOT_RECOMMENDED,
    WHICH,
    analysis_error,
    failure_text,
    how_title,
    input_line,
    left_out_text,
    no_findings_text,
    saving_text,
    speedups,
    verdict_is_split,
    where_text,
)
from placement_advisor.report.pictures.layer_map import BOX_HEIGHT, BOX_WIDTH
from placement_advisor.report.tensorboard.step_figures import candidate_figures
from placement_advisor.results.analysis import scaling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.analysis_result import (
        Candidate,
        Finding,
        HowToSplit,
        Recommendation,
    )
    from placement_advisor.analysis.recorder import Review
    from placement_advisor.report.pictures.layer_map import LayerMap
    from placement_advisor.report.tensorboard.step_figures import StepFigures
    from placement_advisor.simulator.break_even import BreakEven
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
        "hosts": [] if testbed is None else _hosts(testbed.host_of),
        "verdict": None if review.recommendation is None else _verdict(review.recommendation),
        "candidates": [_candidate(candidate) for candidate in review.candidates],
        "as_is": _as_is(review),
        "left_out": left_out_text(model.left_out),
        "input": input_line(review),
        "expected_errors": analysis_error(review),
        "graph": _graph(layers),
        "findings": [_finding(finding) for finding in review.findings],
        "no_findings": no_findings_text(review),
        "warnings": list(review.warnings),
        "how": None if review.how is None else _how(review, review.how),
        "break_even": None if review.break_even is None else _break_even(review.break_even),
        "scaling": _scaling(review.candidates),
    }


def _hosts(host_of: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the devices of each host, none where there is one machine."""
    by_host: dict[str, list[str]] = {}
    for device, host in host_of.items():
        by_host.setdefault(host, []).append(device)
    return [{"name": host, "devices": devices} for host, devices in by_host.items()]


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
    foreseen = predicted_range(candidate)
    profile = candidate.profile
    return {
        "name": candidate.name,
        "rationale": candidate.rationale,
        "failure": failure_text(candidate) if candidate.failure else None,
        "failure_kind": candidate.failure.kind.value if candidate.failure else None,
        "samples": None if candidate.samples is None else list(candidate.samples),
        "predicted": _figures(predicted),
        "measured": _figures(measured),
        "peak_memory": _peak_memory(candidate.predicted) if candidate.predicted else None,
        # Single over candidate: above 1 is faster.
        "predicted_speedup": 1 / ratio.ratio if ratio and ratio.ratio else None,
        "predicted_range": None if foreseen is None else [foreseen.low, foreseen.high],
        "predicted_after_runs": _after_runs(candidate),
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


def _after_runs(candidate: Candidate) -> dict[str, Any] | None:
    """Return the speed-up as predicted when others had run and this one had not."""
    after, found = candidate.ratio_after_runs, range_after_runs(candidate)
    if after is None or found is None:
        return None
    return {"runs": after.runs, "median": found.median, "low": found.low, "high": found.high}


def _as_is(review: Review) -> dict[str, Any] | None:
    """Return the user's own step, which is no candidate."""
    found = as_is_interval(review)
    return None if found is None else {"name": AS_IS, "step_ns": round(found.median)}


def _peak_memory(schedule: Schedule) -> list[dict[str, Any]]:
    peaks = schedule.peak_memory_bytes
    return [{"device": device, "bytes": size} for device, size in peaks.items()]


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
        "saves": None if finding.saving is None else saving_text(finding.saving),
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


def _scaling(candidates: Sequence[Candidate]) -> dict[str, Any] | None:
    rows, within_rounds = scaling(candidates), speedups(candidates)
    if not rows:
        return None
    alone = rows[0].batch
    return {
        "note": WHICH,
        "rows": [
            {
                **plain(row),
                "speedup": within_rounds.get(row.candidate) if row.batch == alone else None,
            }
            for row in rows
        ],
    }
