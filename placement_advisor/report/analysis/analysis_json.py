"""An analysis as the public contract ``analysis.json``, and the schemas of the public contracts.

Integer nanoseconds and bytes, per step. Null means: not measured, not known, or does not apply.
Left out: what is only in text for people (all reasons in one, the headline) and the timelines.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING, Any

from placement_advisor.analysis.analysis_result import TO_SPLIT
from placement_advisor.analysis.durations import Stage
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import Interval, bootstrap_median
from placement_advisor.report.analysis.break_even_json import break_even_as_json
from placement_advisor.report.analysis.expected_errors_json import errors_as_json
from placement_advisor.report.analysis.record import SCHEMA_VERSION
from placement_advisor.report.analysis.scaling import row_as_json, scaling
from placement_advisor.report.analysis.tables import (
    CERTIFICATE,
    GRAPH,
    failure_file,
    how_in_short,
)
from placement_advisor.solvers.bounds.bound_in_words import argument_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.analysis_result import (
        Analysis,
        Bound,
        Candidate,
        Finding,
        NextRun,
    )
    from placement_advisor.analysis.analysis_result import TestbedSummary as Testbed
    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.measurement.input_timing import InputTiming
    from placement_advisor.measurement.measurement import SizeBasis, StepProfile
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio

SCHEMA_NAMES = (
    "analysis",
    "difference",
    "placement",
    "trace",
    "simulation",
    "search",
    "verification",
    "balance",
    "scaling",
    "profile",
    "calibration",
    "doctor",
    "acceptance",
    "hosts",
    "hardware",
    "check",
)
# What of a measurement the profile has; null without one.
_OF_PROFILE = (
    "compute_ns",
    "transfer_ns",
    "transfer_count",
    "transfer_bytes",
    "bytes_basis",
    "exposed_ns",
    "exposed_by_device_ns",
    "unseen_copies",
    "transfers",
    "step_memory_bytes",
    "clock_uncertainty_ns",
)


def analysis_as_json(analysis: Analysis) -> dict[str, Any]:
    """Return the content of ``analysis.json``, valid against ``load_schema("analysis")``."""
    model = analysis.model
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": analysis.advisor_version,
        "tensorflow_version": analysis.tensorflow_version,
        "options": _options(analysis.options),
        "model": {
            "path": model.path,
            "mode": model.mode,
            "chosen": model.chosen,
            "captured": None if model.captured is None else asdict(model.captured),
            "batch_size": model.batch_size,
            "batch_is_made_up": model.is_made_up,
            "ops": model.ops,
            "edges": model.edges,
            "parameter_bytes": model.parameter_bytes,
            "edge_bytes_known_share": model.edge_bytes_known_share,
            "graph_fingerprint": model.fingerprint,
            "left_out": list(model.left_out),
        },
        "testbed": _testbed(analysis.testbed),
        "sessions": analysis.sessions,
        "as_is": {"step_ns": _steps(analysis.as_is)} if analysis.as_is else None,
        "candidates": [_candidate(candidate) for candidate in analysis.candidates],
        "recommendation": _recommendation(analysis),
        "bound": _bound(analysis.bound) if analysis.bound else None,
        "break_even": break_even_as_json(analysis.break_even) if analysis.break_even else None,
        "input": _input(analysis.input_timing, analysis.model.batch_size)
        if analysis.input_timing
        else None,
        "scaling": [row_as_json(row) for row in scaling(analysis.candidates)],
        "expected_errors": errors_as_json(analysis.assumed_times)
        if analysis.assumed_times
        else None,
        "findings": [_finding(finding, analysis.options) for finding in analysis.findings],
        "warnings": list(analysis.warnings),
        "timings_ns": _timings(analysis.timings_ns),
        "training": None,  # `advisor run` adds it.
    }


def _timings(timings_ns: Mapping[str, int]) -> dict[str, int | None]:
    """Return the time of each stage, null for one that did not happen, and of all together."""
    return {
        **{stage.value: timings_ns.get(stage) for stage in Stage},
        "total": sum(timings_ns.values()),
    }


def _options(options: AnalyzeOptions) -> dict[str, Any]:
    source = options.source
    return {
        "name": source.name,
        "mode": source.mode,
        "batch_size": source.batch_size,
        "outputs": list(source.outputs),
        "devices": options.devices,
        "hardware": options.hardware,
        "costs": None if options.costs is None else str(options.costs),
        "testbed": None if options.testbed is None else options.testbed.value,
        "hosts": None if options.hosts is None else options.hosts.words,
        "candidates": None if options.candidates is None else list(options.candidates),
        "ratios": None if options.ratios is None else list(options.ratios),
        "effort": options.effort.units,
        "seed": options.effort.seed,
        "steps": options.steps,
        "rounds": options.rounds,
        "refine": options.refine,
        "run": options.run,
        "quick": options.quick,
    }


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a public contract, one of `SCHEMA_NAMES`.

    Raises:
        ValueError: no such schema.
    """
    if name not in SCHEMA_NAMES:
        raise ValueError(f"no schema {name!r}; there are {', '.join(SCHEMA_NAMES)}")
    file = resources.files("placement_advisor.report") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def _bound(bound: Bound) -> dict[str, Any]:
    return {
        "step_ns": bound.lower.step_ns,
        "split_ns": bound.lower.split_ns,
        "alone_ns": dict(bound.lower.alone_ns),
        "single_ns": bound.single_ns,
        "most_to_gain": bound.most_to_gain,
        "proves_single": bound.proves_single,
        "most_to_gain_if_wrong": bound.most_to_gain_if_wrong,
        "proves_single_if_wrong": bound.proves_single_if_wrong,
        "costs_from": bound.source.value,
        "reason": argument_text(bound.lower.arguments[0]),
        "certificate_file": CERTIFICATE,
        "graph_file": GRAPH,
    }


def _testbed(testbed: Testbed) -> dict[str, Any]:
    return {
        "kind": testbed.kind,
        "stand_in": testbed.stand_in,
        "description": testbed.description,
        "not_run": testbed.not_run,
        "host_link": None if testbed.link is None else testbed.link.value,
        "devices": [
            {"name": device.name, "host": testbed.host_of.get(device.name)}
            for device in testbed.cluster.devices
        ],
        "links": [
            {
                "source": link.source,
                "target": link.target,
                "latency_ns": link.latency_ns,
                "bandwidth_bytes_per_s": round(link.bandwidth_bytes_per_s),
            }
            for link in testbed.cluster.links
        ],
        "fingerprint": testbed.fingerprint,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    failure = candidate.failure
    return {
        "name": candidate.name,
        "family": candidate.family,
        "placement_file": f"placements/{candidate.name}.json" if candidate.by_layer else None,
        "samples": None if candidate.samples is None else list(candidate.samples),
        "predicted": predicted_as_json(candidate.predicted, candidate.predicted_ratio)
        if candidate.predicted
        else None,
        "predicted_after_runs": after_runs_as_json(candidate.ratio_after_runs)
        if candidate.ratio_after_runs
        else None,
        "measured": _measured(candidate),
        "failure": {
            "kind": failure.kind.value,
            "message": failure.message,
            "in_full": failure_file(candidate),
        }
        if failure
        else None,
        "broken_laws": [
            {"law": broken.law.value, "what": broken.what} for broken in candidate.broken_laws
        ],
    }


def predicted_as_json(schedule: Schedule, ratio: PredictedRatio | None) -> dict[str, Any]:
    """Return a prediction as the public contract has it."""
    return {
        "step_ns": schedule.step_ns,
        "ratio_to_single": {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}
        if ratio
        else None,
        "compute_ns": dict(schedule.compute_ns),
        "transfer_ns": schedule.transfer_ns,
        "transfer_count": schedule.transfer_count,
        "transfer_bytes": schedule.carried.amount,
        "exposed_ns": schedule.exposed_ns,
        "exposed_by_device_ns": dict(schedule.exposed_by_device),
        "peak_memory_bytes": dict(schedule.peak_memory_bytes),
    }


def after_runs_as_json(ratio: PredictedRatio) -> dict[str, float]:
    """Return a ratio that was predicted after others had run as the public contract has it."""
    return {"runs": ratio.runs, "ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}


def _measured(candidate: Candidate) -> dict[str, Any] | None:
    measurement = candidate.measured
    if measurement is None or not measurement.step_ns:
        return None
    return {
        "step_ns": _steps(measurement.step_ns),
        "warmup_ns": list(measurement.warmup_ns),
        "ratio_to_single": _ratio_to_single(candidate),
        **_profiled(measurement.profile),
        "profiler_overhead": measurement.profiler_overhead,
        "moved_ops": list(measurement.moved_ops),
        "verification": _verification(measurement.verification),
        "profile": measurement.profile_run,
    }


def _verification(found: Verification | None) -> Mapping[str, Any] | None:
    if found is None:
        return None
    return {
        "steps": found.steps,
        "variables": found.variables,
        "unverified": list(found.unverified),
        "largest_difference": found.relative_difference,
        "held_equal": found.held_equal,
    }


def _profiled(profile: StepProfile | None) -> Mapping[str, Any]:
    if profile is None:
        return dict.fromkeys(_OF_PROFILE)
    return {
        "compute_ns": dict(profile.compute_ns),
        "transfer_ns": profile.transfer_ns,
        "transfer_count": profile.transfer_count,
        "transfer_bytes": profile.transfer_bytes,
        "bytes_basis": _basis(profile.size_basis),
        "exposed_ns": profile.exposed_ns,
        "exposed_by_device_ns": dict(profile.exposed_by_device),
        "unseen_copies": list(profile.unseen_copies),
        "transfers": [
            {
                "source": total.source,
                "target": total.target,
                "count": total.count,
                "bytes": total.size_bytes,
                "bytes_basis": _basis(total.size_basis),
                "time_ns": total.time_ns,
                "exposed_ns": total.exposed_ns,
            }
            for total in profile.transfers
        ],
        "step_memory_bytes": dict(profile.step_memory_bytes),
        "clock_uncertainty_ns": profile.clock_uncertainty_ns,
    }


def _basis(basis: SizeBasis | None) -> str | None:
    return basis.value if basis else None


def _ratio_to_single(candidate: Candidate) -> dict[str, Any] | None:
    if candidate.name == BASELINE:
        return {"median": 1.0, "ci95": [1.0, 1.0]}
    if candidate.comparison is None:
        return None
    ratio = candidate.comparison.ratio
    return {"median": ratio.median, "ci95": [ratio.low, ratio.high]}


def _steps(samples: Sequence[int]) -> dict[str, Any]:
    interval = bootstrap_median(samples)
    return {
        "median": round(interval.median),
        "ci95": [round(interval.low), round(interval.high)],
        "samples": list(samples),
    }


def _recommendation(analysis: Analysis) -> dict[str, Any]:
    recommendation, how = analysis.recommendation, analysis.how
    is_acted_on = recommendation.verdict in TO_SPLIT
    return {
        "verdict": recommendation.verdict.value,
        "candidate": recommendation.candidate,
        "speedup": _speedup(recommendation.speedup),
        "basis": recommendation.basis,
        "applies_to": recommendation.applies_to,
        "answer": recommendation.answer,
        "caveat": recommendation.caveat,
        "how": how_in_short(how) if how is not None and is_acted_on else None,
        "deciding": list(recommendation.deciding),
        "reasons": list(recommendation.reasons),
        "others": list(recommendation.others),
        "next_run": _next_run(recommendation.next_run) if recommendation.next_run else None,
    }


def _next_run(run: NextRun) -> dict[str, Any]:
    return {"change": run.change, "takes_ns": run.takes_ns}


def _speedup(speedup: Interval | None) -> dict[str, Any] | None:
    if speedup is None:
        return None
    return {"estimate": speedup.median, "ci95": [speedup.low, speedup.high]}


def _input(timing: InputTiming, batch_size: int | None) -> dict[str, Any]:
    return {
        "batch_ns": list(timing.batch_ns),
        "samples_per_s": None if batch_size is None else timing.samples_per_s(batch_size),
        "transformations": list(timing.transformations),
    }


def _finding(finding: Finding, options: AnalyzeOptions) -> dict[str, Any]:
    content: dict[str, Any] = {
        "code": finding.code,
        "name": finding.name,
        "finding": finding.finding,
        "action": finding.action,
        "where": dict(finding.where),
        "hypothetical": finding.is_hypothetical,
    }
    if (saving := finding.saving) is not None:
        content["saving_ns"] = saving.saving_ns
        content["saving_step_ns"] = saving.step_ns
        content["saving_low_ns"] = saving.low_ns
        content["saving_high_ns"] = saving.high_ns
        content["saving_basis"] = saving.basis
    if finding.batch_size is not None:
        content["command"] = options.command(batch_size=finding.batch_size)
    return content
