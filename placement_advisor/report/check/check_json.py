"""A check as the public contract of ``advisor check --format json``.

The same check gives the same bytes: no times of day, nothing that was timed. Times are integer
nanoseconds, sizes integer bytes, per step, all simulated; null means not known, or does not apply.
Left out: where each layer runs, which the lock file has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.check.check_result import CheckResult, ModelResult
    from placement_advisor.check.difference import Difference
    from placement_advisor.check.problem import Place, Problem
    from placement_advisor.check.record import Cut, Record

SCHEMA_VERSION = 1


def check_as_json(result: CheckResult) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("check")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "lock_file": result.lock_file,
        "strict": result.strict,
        "exit_code": result.exit_code,
        "results": [_model(model) for model in result.results],
    }


def _model(model: ModelResult) -> dict[str, Any]:
    return {
        "model": model.model,
        "placement": model.placement,
        "place": _place(model.place),
        "status": model.status.value,
        "error": model.error,
        "hint": model.hint,
        "problems": [_problem(problem) for problem in model.problems],
        "notes": list(model.notes),
        "before": None if model.before is None else _record(model.before),
        "after": None if model.after is None else _record(model.after),
        "difference": None if model.difference is None else _difference(model.difference),
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code.value,
        "what": problem.what,
        "culprits": list(problem.culprits),
        "effects": [{"code": effect.code.value, "what": effect.what} for effect in problem.effects],
        "action": problem.action,
        "place": None if problem.place is None else _place(problem.place),
        "source": problem.source,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line}


def _record(record: Record) -> dict[str, Any]:
    versions = record.versions
    return {
        "hardware": versions.hardware,
        "devices_fingerprint": versions.devices,
        "tensorflow_version": versions.tensorflow,
        "advisor_version": versions.advisor,
        "placement": record.placement,
        "graph_fingerprint": record.graph,
        "placed_fingerprint": record.placed,
        "step_ns": record.step_us * NS_PER_US,
        "single_step_ns": record.single_step_us * NS_PER_US,
        "transfer_count": record.copies,
        "transfer_bytes": record.bytes_across,
        "peak_memory_bytes": {
            device: record.peak_bytes(device) for device in sorted(record.memory_bytes)
        },
        "verdict": record.standing.value,
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "renamed": dict(sorted(found.renamed.items())),
        "gone": list(found.gone),
        "new": list(found.new),
        "moves": [
            {
                "layer": move.layer,
                "part": move.part.value,
                "before": list(move.before),
                "after": list(move.after),
            }
            for move in found.moves
        ],
        "growths": [
            {
                "layer": growth.layer,
                "before_ns": growth.before_us * NS_PER_US,
                "after_ns": growth.after_us * NS_PER_US,
            }
            for growth in found.growths
        ],
        "cuts_added": _cuts(found.cuts_added),
        "cuts_removed": _cuts(found.cuts_removed),
        "on_host_added": [{"layer": layer, "kind": kind} for layer, kind in found.on_host_added],
    }


def _cuts(cuts: Iterable[Cut]) -> list[dict[str, Any]]:
    return [
        {
            "tensor": cut.tensor,
            "source": cut.source,
            "target": cut.target,
            "size_bytes": cut.size_bytes,
        }
        for cut in cuts
    ]
