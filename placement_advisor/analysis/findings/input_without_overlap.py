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
_NO_WORK = frozenset({"Options", "Repeat", "Take", "Skip"})


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what the pipeline lacks, if it takes a noticeable part of a step's time."""
    timing, step = evidence.input_timing, evidence.step_alone()
    if timing is None or not timing.batch_ns or not timing.transformations or step is None:
        return ()
    step_ns, basis = step
    batch_ns = mean(timing.batch_ns)
    kinds = _kinds(timing.transformations)
    missing = _missing(kinds)
    if overlaps(timing.transformations) or not missing or batch_ns < MIN_INPUT_SHARE * step_ns:
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
        ),
    )


def lacking(transformations: tuple[str, ...]) -> tuple[str, ...]:
    """Return what would make a pipeline faster and is not in it, as far as it tells how it is made.

    >>> lacking(("TensorSliceDataset", "MapDataset", "PrefetchDataset"))
    ('parallel map', 'cache')
    """
    kinds = _kinds(transformations)
    lacks = {
        "parallel map": "Map" in kinds or not kinds,
        "prefetch": "Prefetch" not in kinds,
        "cache": "Cache" not in kinds,
    }
    return tuple(what for what, is_lacking in lacks.items() if is_lacking)


def overlaps(transformations: tuple[str, ...]) -> bool:
    """Return whether the next batch is made while a step runs: the pipeline ends in a prefetch."""
    kinds = [kind for kind in _kinds(transformations) if kind not in _NO_WORK]
    return kinds[-1:] == ["Prefetch"]


def _kinds(transformations: tuple[str, ...]) -> list[str]:
    return [kind.removesuffix("Dataset") for kind in transformations]


def _missing(kinds: list[str]) -> dict[str, str]:
    """Return what a pipeline that does not end in a prefetch lacks, with the call that adds it."""
    where = "prefetch at its end" if "Prefetch" in kinds else "prefetch"
    missing = {where: ".prefetch(tf.data.AUTOTUNE) at the end"}
    if "Map" in kinds:
        missing["parallel map"] = "num_parallel_calls=tf.data.AUTOTUNE to map"
    if any(kind in ("Map", "ParallelMap") for kind in kinds) and "Cache" not in kinds:
        missing["cache"] = ".cache() after what is the same in every epoch, if it fits in memory"
    return missing
