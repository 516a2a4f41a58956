"""PA302: the batch is so small that the fixed part of a step keeps the device from its best rate.

Model: a step takes t(n) = a + b·n, so n samples go at n / t(n), at best 1/b; nine tenths of that
are reached at n = 9·a/b. The line is fitted to the user's own step as measured at several batch
sizes. Where it was not measured so, b is what forward and backward ops take in the simulated step,
as if all of that went with the batch, and a is the rest: at least so large, so that the batch is
then a lower bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.cost.batch import BatchTime, fit_batch_time
from placement_advisor.graph.roles import PASS_ROLES
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.cost.batch import Throughput

CODE = "PA302"
NAME = "batch-too-small"
# Judgement: at 90 % of the best rate no larger batch gains more than a ninth; 95 % would ask for
# twice that batch (19·a/b in place of 9·a/b), which trains less well per sample.
GOOD_SHARE = 0.9
# A line says nothing so far from where it was fitted, so no batch is named and no saving.
# How far is judgement: as far as break-even goes.
MAX_FACTOR = 64
# Step times on a busy machine wander by a tenth; what is further off is no line, and 9·a/b would
# make nonsense of it. Judgement: less would refuse true lines, more would let a curve pass for one.
MAX_MISFIT = 0.15
# A line has two unknowns.
_LEAST_SIZES = 2
_TOLD_BY = {"measured": "measured, your step as it is on this machine", "simulated": "simulated"}


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if the batch is too small by the line that is known best."""
    batch = evidence.batch_size
    line, basis = _line(evidence)
    if not batch or line is None or not line.per_sample_ns:
        return ()
    best_ns = line.per_sample_ns * batch
    share = best_ns / (line.fixed_ns + best_ns)
    if share >= GOOD_SHARE:
        return ()
    good_batch = math.ceil(
        GOOD_SHARE / (1 - GOOD_SHARE) * line.fixed_ns / line.per_sample_ns - 1e-9
    )
    at_least = "" if basis == "measured" else "at least "
    wanted = f"of {at_least}{good_batch}"
    is_far = good_batch > MAX_FACTOR * batch
    if is_far:
        wanted = f"that is much larger (it takes more than {MAX_FACTOR} times this one)"
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"at batch {batch} a step reaches {format_share(share)} of the best rate: "
            f"{format_ns(line.fixed_ns)} of it do not depend on the batch, "
            f"{format_ns(line.per_sample_ns)} go to each sample ({_TOLD_BY[basis]})",
            action=f"take a batch {wanted} for {format_share(GOOD_SHARE)} of the "
            "best rate, if it fits and training allows it, before splitting",
            where={},
            saving_ns=None if is_far else round(line.fixed_ns + best_ns - best_ns / GOOD_SHARE),
            saving_basis=basis,
        ),
    )


def _line(evidence: Evidence) -> tuple[BatchTime | None, str]:
    measured = _measured_line(evidence.batch_points)
    if measured is not None:
        return measured, "measured"
    return _simulated_line(evidence), "simulated"


def _measured_line(points: Sequence[Throughput]) -> BatchTime | None:
    """Return the line through the measurements, None if they are too few or lie on none."""
    if len({point.batch for point in points}) < _LEAST_SIZES:
        return None
    line = fit_batch_time(points)
    off = max(abs(line.step_ns(point.batch) / point.step_ns - 1) for point in points)
    return line if off <= MAX_MISFIT else None


def _simulated_line(evidence: Evidence) -> BatchTime | None:
    alone, batch = evidence.alone, evidence.batch_size
    if alone is None or alone.predicted is None or not batch:
        return None
    device = evidence.cluster.devices[0]
    launch_ns = 0 if device.launches_ahead else device.launch_overhead_ns
    with_batch_ns = sum(
        run.end_ns - run.start_ns - launch_ns
        for run in alone.predicted.runs
        if evidence.graph.op(run.op).role in PASS_ROLES
    )
    return BatchTime(
        fixed_ns=alone.predicted.step_ns - with_batch_ns, per_sample_ns=with_batch_ns / batch
    )
