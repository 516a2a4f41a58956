"""What differs between two analyses, as the public contract of `advisor diff --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement_advisor.report.analysis.difference import (
        AnalysisDifference,
        CandidateDifference,
    )
    from placement_advisor.results.analysis import Analysis
    from placement_advisor.results.candidate import Step

SCHEMA_VERSION = 1


def difference_as_json(found: AnalysisDifference) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("difference")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "before": _answer(found.before),
        "after": _answer(found.after),
        "why": list(found.why),
        "changes": [
            {
                "area": change.area,
                "name": change.name,
                "before": change.before,
                "after": change.after,
            }
            for change in found.changes
        ],
        "layers": None if found.layers is None else list(found.layers),
        "basis": found.basis,
        "candidates": [_candidate(each) for each in found.candidates],
    }


def _answer(analysis: Analysis) -> dict[str, Any]:
    answer = analysis.recommendation
    return {
        "verdict": answer.verdict.value,
        "candidate": answer.candidate,
        "basis": answer.basis,
        "answer": answer.answer,
    }


def _candidate(each: CandidateDifference) -> dict[str, Any]:
    return {
        "name": each.name,
        "moved": each.has_moved,
        "moved_most": each.moved_most,
        "before": _step(each.before),
        "after": _step(each.after),
    }


def _step(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    speedup, parts = step.ratio and step.ratio.inverted, step.parts
    return {
        "step_ns": step.step_ns,
        "speedup": speedup and {"estimate": speedup.median, "range": [speedup.low, speedup.high]},
        "parts": parts
        and {
            "device": parts.device,
            "compute_ns": parts.compute_ns,
            "copies_ns": parts.copies_ns,
            "idle_ns": parts.idle_ns,
        },
    }
