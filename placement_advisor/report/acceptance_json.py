"""What `advisor doctor --run` found as the public contract of ``advisor doctor --run --json``.

Times are integer nanoseconds, sizes integer bytes. Null means not known, or does not apply.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.analysis.acceptance.judge import findings_of, is_trusted
from placement_advisor.analysis.acceptance.judge_copies import seen_copies
from placement_advisor.tf.acceptance.known_step import End, copies_from

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.acceptance.observed import Acceptance, PairRun
    from placement_advisor.measurement.measurement import StepProfile

SCHEMA_VERSION = 1


def acceptance_as_json(acceptance: Acceptance, bundle: Path) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("acceptance")``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "tensorflow_version": acceptance.tensorflow_version,
        "trusted": is_trusted(acceptance),
        "untried_on_gpus": acceptance.has_gpus,
        "testbed": acceptance.testbed,
        "description": acceptance.description,
        "bundle": str(bundle),
        "pairs": [_pair(pair) for pair in acceptance.pairs],
    }


def _pair(pair: PairRun) -> dict[str, Any]:
    profile = pair.profile
    return {
        "near": pair.device_at[End.NEAR],
        "far": pair.device_at[End.FAR],
        "findings": [
            {"name": each.name, "outcome": each.outcome.value, "finding": each.finding}
            for each in findings_of(pair)
        ],
        "step_ns": pair.step_ns,
        "profiled_steps": pair.profiled_steps,
        "profiled_step_ns": None if profile is None else round(median(profile.step_ns)),
        "copies": [_copies(pair, profile, source) for source in End],
        "op_ns": None if profile is None else dict(profile.op_ns),
        "expected_times": [
            {
                "device": each.device,
                "products": list(each.products),
                "time_ns": each.time_ns,
                "within": each.within,
                "source": each.source,
            }
            for each in pair.expected
        ],
    }


def _copies(pair: PairRun, profile: StepProfile | None, source: End) -> dict[str, Any]:
    planned = copies_from(source)
    seen = None if profile is None else seen_copies(pair, profile, source)
    return {
        "source": pair.device_at[source],
        "planned_count": len(planned),
        "planned_bytes": sum(copy.size_bytes for copy in planned),
        "count": None if seen is None else seen.count,
        "bytes": None if seen is None else seen.size_bytes,
        "bytes_basis": None if seen is None or seen.size_basis is None else seen.size_basis.value,
        "over_host": None if seen is None else seen.over_host,
    }
