"""PA303: the input pipeline does not overlap with the step, and its time matters.

Told from the kinds of the transformations and the pipeline timed alone. A pipeline that ends in a
prefetch overlaps, whatever else it lacks: if it is slower than the step, that is PA301. One that
takes next to no time is left alone. What the change would save is not known without trying it:
tf.data adds a prefetch of its own where it may, and what a map costs on several cores depends on
the map.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA303"
NAME = "input-without-overlap"
# Below a tenth of the step, even input that is not overlapped at all costs less than PA301's tenth.
MIN_INPUT_SHARE = 0.1
# What stands behind a prefetch and hands its batches on as they are.
_NO_WORK = frozenset({"Options"})


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what the pipeline lacks, if it takes a noticeable part of a step's time."""
    timing, step = evidence.input_timing, evidence.step_alone()
    if timing is None or not timing.batch_ns or not timing.transformations or step is None:
        return ()
    step_ns, basis = step
    batch_ns = mean(timing.batch_ns)
    missing = _missing(timing.transformations)
    if not missing or batch_ns < MIN_INPUT_SHARE * step_ns:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"the input pipeline has no {' and no '.join(missing)}, and a batch takes "
            f"{format_ns(batch_ns)} (measured, alone), {format_share(batch_ns / step_ns)} of a "
            f"step's {format_ns(step_ns)} ({basis})",
            action=f"add {', '.join(missing.values())}",
            where={},
            saving_ns=None,
        ),
    )


def _missing(transformations: tuple[str, ...]) -> dict[str, str]:
    """Return what is missing, with the call that adds it; nothing if the pipeline overlaps."""
    kinds = [kind.removesuffix("Dataset") for kind in transformations]
    if [kind for kind in kinds if kind not in _NO_WORK][-1:] == ["Prefetch"]:
        return {}
    missing = {"prefetch": ".prefetch(tf.data.AUTOTUNE) at the end"}
    if "Map" in kinds:
        missing["parallel map"] = "num_parallel_calls=tf.data.AUTOTUNE to map"
    if any(kind in ("Map", "ParallelMap") for kind in kinds) and "Cache" not in kinds:
        missing["cache"] = ".cache() after what is the same in every epoch, if it fits in memory"
    return missing
