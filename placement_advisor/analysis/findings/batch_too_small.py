"""PA302: the batch is so small that a larger one makes more samples per second.

Model: what a step takes grows with the work of its batch, which traces at several batches tell, so
a rate is known at each, and the best of them (`cost/batch.py`). A line is drawn through the user's
own step as measured at its batch and at smaller ones, and the batch that it leads to is run as
well, if that is quick. Where no step ran, it is simulated at each batch. Nothing is found where
measurements lie on no line, or the step is not known at other batches.

What a batch saves that ran is within what its turns were, and those of the own batch; one that did
not run, within what the lines through each two of the points say; a simulated one, within what
costs may be off.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import exp, hypot, log
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import EXTRAPOLATED, Finding
from placement_advisor.analysis.findings.savings import by_ratio, by_run, sure_saving
from placement_advisor.cost.batch import (
    GOOD_SHARE,
    MAX_FACTOR,
    fit_batch_time,
    larger_batch,
    larger_batch_by,
)
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Saving
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.cost.batch import LargerBatch
    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.step_growth import GrowingStep

CODE = "PA302"
NAME = "batch-too-small"
_LEAST_POINTS = 3
_AS_IS = "measured, your step as it is on this machine"
_IF = "if it fits and training allows it, before splitting"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if a larger batch is known to be faster by more than a ninth."""
    growing = evidence.growing
    if growing is None:
        return ()
    found = _measured(evidence, growing) or _simulated(evidence, growing)
    return () if found is None else (found,)


def _measured(evidence: Evidence, growing: GrowingStep) -> Finding | None:
    points, growth = evidence.batch_points, growing.growth
    found = larger_batch_by(points, growth.batch, growing.worth, is_even=not growth.faster)
    if found is None:
        return None
    now = next(point for point in points if point.batch == growth.batch)
    ran = next((point for point in points if point.batch == found.batch), None)
    if ran is None:
        saving = _extrapolated(evidence, growing, found.batch)
        return _finding(evidence, growing, found, saving, _AS_IS)
    if now.samples_per_s >= GOOD_SHARE * ran.samples_per_s:
        return None
    then_ns = now.batch * ran.step_ns / ran.batch
    doubt = exp(hypot(log(now.within), log(ran.within)))
    saving_ns, *ends_ns = (now.step_ns - then_ns * factor for factor in (1, 1 / doubt, doubt))
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"a step makes {now.samples_per_s:,.0f} samples/s at batch {now.batch} and "
        f"{ran.samples_per_s:,.0f} at batch {ran.batch} ({_AS_IS}){_peak(found, growing)}",
        action=f"take a batch of {ran.batch}, {_IF}{_then(evidence, ran.batch)}",
        where={},
        saving=by_run(now.step_ns, saving_ns, ends_ns),
        batch_size=ran.batch if evidence.takes_batch_size else None,
    )


def _simulated(evidence: Evidence, growing: GrowingStep) -> Finding | None:
    alone, growth = evidence.alone, growing.growth
    if evidence.batch_points or alone is None or alone.placement is None or not alone.predicted:
        return None
    placement = alone.placement
    found = larger_batch(
        lambda samples: growing.step_ns(placement, samples),
        growth.batch,
        is_even=not growth.faster,
    )
    if found is None:
        return None
    saving = _by_simulation(evidence, growing, placement, found.batch)
    return _finding(evidence, growing, found, saving, "simulated")


def _extrapolated(evidence: Evidence, growing: GrowingStep, larger: int | None) -> Saving | None:
    """Return what a batch saves that did not run, by lines through all points, and through two.

    None if there are but two: whether these lie on a line nobody knows.
    """
    batch = growing.growth.batch
    points = [point for point in evidence.batch_points if point.batch <= batch]
    if larger is None or len(points) < _LEAST_POINTS:
        return None
    now_ns = next(point.step_ns for point in points if point.batch == batch)
    saving_ns, *others_ns = [
        now_ns - batch * fit_batch_time(some, growing.worth).step_ns(larger) / larger
        for some in (points, *combinations(points, 2))
    ]
    return sure_saving(now_ns, saving_ns, others_ns, EXTRAPOLATED)


def _by_simulation(
    evidence: Evidence, growing: GrowingStep, placement: Placement, larger: int | None
) -> Saving | None:
    """Return what a batch saves by what both steps may take where costs are wrong."""
    if larger is None:
        return None
    batch = growing.growth.batch
    now, share = growing.simulator(batch), batch / larger
    of_step = Sensitivity(now, placement, evidence.doubt).ratio(
        placement, growing.simulator(larger)
    )
    ratio = replace(
        of_step,
        ratio=of_step.ratio * share,
        low=of_step.low * share,
        high=of_step.high * share,
    )
    # What costs that were measured at this batch come to at another is no simulation of that.
    basis = "simulated" if evidence.costs_are_assumed else EXTRAPOLATED
    return by_ratio(now.step_ns(placement), ratio, basis)


def _finding(
    evidence: Evidence,
    growing: GrowingStep,
    found: LargerBatch,
    saving: Saving | None,
    words: str,
) -> Finding:
    """Return the finding of a batch that did not run; ``words`` say by what it is known."""
    batch, best, larger = growing.growth.batch, found.best_samples_per_s, found.batch
    more = f"that is more than {MAX_FACTOR} times as large"
    wanted = more if larger is None else f"of {larger}"
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"at batch {batch} a step reaches {format_share(found.share)} of the best rate, "
        f"{found.share * best:,.0f} of {best:,.0f} samples/s ({words}){_peak(found, growing)}",
        action=f"take a batch {wanted}, for {format_share(GOOD_SHARE)} of the best rate, {_IF}"
        f"{_then(evidence, larger)}",
        where={},
        saving=saving,
        batch_size=larger if evidence.takes_batch_size else None,
    )


def _peak(found: LargerBatch, growing: GrowingStep) -> str:
    if found.peak is None:
        return ""
    return (
        f"; beyond about {found.peak:,} samples the rate falls again: for "
        f"{growing.growth.faster[0]!r} each is more work the more there are"
    )


def _then(evidence: Evidence, batch: int | None) -> str:
    """Return a sentence if a larger batch changes the verdict, as far as that was simulated."""
    swept = evidence.break_even
    if batch is None or swept is None or swept.batch is None:
        return ""
    best = swept.best_at(batch)
    if best is None:
        return ""
    wins, is_split = best.ratio < swept.worthwhile_ratio, evidence.recommended is not None
    if wins == is_split or evidence.is_of_batch(evidence.recommended):
        return ""
    if is_split:
        return f". At {batch} samples no split would win (simulated)"
    return f". At {batch} samples a split ({best.split}) would win (simulated)"
