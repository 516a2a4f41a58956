"""The few reasons that decide, each in about a line: what a split copies and computes, the bound.

What makes an answer odd comes first, then where the step of the split goes, or why there is none,
then what no placement can beat, where that binds all that is shown. Why other candidates have no
result decides nothing, but where there is no split at all. `reasons` has all of them in full.
"""

from __future__ import annotations

from itertools import islice
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.advice.reasons import failure_reason, is_other_side, speedup_of
from placement_advisor.candidates import references
from placement_advisor.measurement.measurement import FailureKind
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Bound, Candidate

# What is read at a glance.
MOST = 3


def deciding_reasons(
    candidates: Sequence[Candidate],
    split: Candidate | None,
    bound: Bound | None,
    because: str | None,
    basis: str,
) -> tuple[str, ...]:
    """Return the most important reasons for an answer that is about ``split``.

    ``bound`` is one that binds all candidates, None if there is none. ``because`` is what only this
    answer has to say for itself, ``basis`` whose figures decide: measured or simulated.
    """
    alone = next((c for c in candidates if c.family == references.SINGLE), None)

    failed = [failure_reason(c) for c in candidates if not _is_not_applicable(c)]
    unfit = [failure_reason(c) for c in candidates if _is_not_applicable(c)]

    def told() -> Iterator[str | None]:
        yield because
        if split is None:
            yield from failed
        elif alone is not None:
            yield from (_measured if basis == "measured" else _simulated)(split, alone)
        if bound is not None:
            yield (
                f"no placement of these ops takes less than {format_ns(bound.lower.step_ns)}; "
                f"single takes {format_ns(bound.single_ns)} (simulated)"
            )
        if split is None:
            yield from unfit

    return tuple(islice(dict.fromkeys(filter(None, told())), MOST))


def _measured(split: Candidate, alone: Candidate) -> Iterator[str | None]:
    """Yield where the steps of a split and of the single device went, as profiled."""
    run, base = split.measured, alone.measured
    if split.broken_laws:
        what = split.broken_laws[0].what
        yield f"{split.name}: {what}, which cannot be: its profile says nothing"
    elif run is not None and run.profile is not None:
        profile = run.profile
        yield _copies(
            split.name,
            profile.transfer_count,
            profile.exposed_by_device,
            median(profile.step_ns),
            "profiled",
        )
        if base is not None and base.profile is not None and not alone.broken_laws:
            yield _compute(split.name, profile.compute_ns, base.profile.compute_ns, "profiled")
    ratio = split.predicted_ratio
    if ratio is not None and is_other_side(split):
        yield (
            f"{split.name} was simulated at {speedup_of(ratio.ratio)}: the answer rests on the "
            "measurement alone"
        )


def _simulated(split: Candidate, alone: Candidate) -> Iterator[str | None]:
    """Yield where the steps of a split and of the single device would go."""
    ours, theirs = split.predicted, alone.predicted
    if ours is None or theirs is None:
        return
    count = ours.transfer_count
    yield _copies(split.name, count, ours.exposed_by_device, ours.step_ns, "simulated")
    yield _compute(split.name, ours.compute_ns, theirs.compute_ns, "simulated")


def _copies(
    name: str,
    count: int | None,
    exposed_by_device: Mapping[str, int],
    step_ns: float,
    basis: str,
) -> str:
    if count is None:
        return f"{name}: its profile does not show all copies, so what it waits for is unknown"
    if not count:
        return f"{name}: no copies ({basis})"
    waiting = max(exposed_by_device, key=exposed_by_device.__getitem__)
    waits_ns = exposed_by_device[waiting]
    share = f", {format_share(waits_ns / step_ns)} of its step" if step_ns else ""
    return f"{name}: {waiting} waits {format_ns(waits_ns)} for copies{share} ({basis})"


def _compute(
    name: str, ours_ns: Mapping[str, int], theirs_ns: Mapping[str, int], basis: str
) -> str:
    busiest = max(ours_ns, key=ours_ns.__getitem__)
    return (
        f"{name}: {busiest} computes for {format_ns(ours_ns[busiest])} a step, "
        f"single for {format_ns(max(theirs_ns.values()))} ({basis})"
    )


def _is_not_applicable(candidate: Candidate) -> bool:
    return candidate.failure is not None and candidate.failure.kind is FailureKind.NOT_APPLICABLE
