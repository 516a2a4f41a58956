"""Laws that every step meets, simulated or measured, and which of them one breaks.

A serial device does one thing at a time, so what it computes and what it waits for copies
while it computes nothing fit into the step together. It is *busy* while any op runs on it:
worker processes have several threads for ops, and what those do at the same moment counts
once. A figure that breaks a law describes no step that there can have been: it is named,
shown, and nothing is concluded from it.

Left out: whether a figure that meets all laws is right.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import Comparison, Invariant, Measurement, Violation
from placement_advisor.simulator import schedule as schedules
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping


# How much longer a device may compute in the profiled steps than the timed ones last: the profiler
# slows ops down, and a shared machine may be slower while it runs. Judgement, between what right
# profiles showed on a machine under load (the largest of `compute_ns` over the median of `step_ns`
# in analysis.json: 0.94 at most, in 15 candidates of deepconn, mnist_cnn and deep_mnist) and what
# one of a whole batch on every device did (44.1 ms over 23.7 ms, 1.86).
PROFILED_SLOWER = 1.25
# Floating-point arithmetic; laws about ratios hold exactly otherwise.
_ROUNDING = 1e-9


def step_violations(
    step_ns: int,
    busy_ns: Mapping[str, int],
    exposed_ns: Mapping[str, int],
    under_way_ns: Mapping[tuple[str, str], int],
) -> tuple[Violation, ...]:
    """Return the laws that one step breaks.

    ``exposed_ns`` has the time that a device waits for copies and computes nothing,
    ``under_way_ns`` that in which copies from one device to another were under way.
    """
    found = []
    for device in dict.fromkeys((*busy_ns, *exposed_ns)):
        busy, exposed = busy_ns.get(device, 0), exposed_ns.get(device, 0)
        if busy + exposed > step_ns:
            what = (
                f"{device} computes for {format_ns(busy)} and waits exposed for "
                f"{format_ns(exposed)} in a step of {format_ns(step_ns)}"
            )
            found.append(Violation(law=Invariant.DEVICE_WITHIN_STEP, what=what))
    for (source, target), time_ns in under_way_ns.items():
        if time_ns > step_ns:
            what = (
                f"copies from {source} to {target} are under way for {format_ns(time_ns)} "
                f"in a step of {format_ns(step_ns)}"
            )
            found.append(Violation(law=Invariant.COPIES_WITHIN_STEP, what=what))
    return tuple(found)


def schedule_violations(schedule: schedules.Schedule) -> tuple[Violation, ...]:
    """Return the laws that a simulated step breaks."""
    found = [
        *step_violations(
            schedule.step_ns,
            schedule.compute_ns,
            schedule.exposed_by_device,
            schedule.under_way_ns,
        )
    ]
    seen = schedules.carried(each for copy in schedule.copies for each in copy.transfers)
    if seen != schedule.carried:
        what = f"copies carry {seen.known} bytes, their parts {schedule.carried.known}"
        found.append(Violation(law=Invariant.PARTS_ADD_UP, what=what))
    moments = [
        *((run.start_ns, run.end_ns, run.op) for run in schedule.runs),
        *((copy.set_out_ns, copy.end_ns, copy.tensor) for copy in schedule.transfers),
    ]
    for start_ns, end_ns, name in moments:
        if not 0 <= start_ns <= end_ns <= schedule.step_ns:
            what = f"{name} does not lie within the step, or ends too soon"
            found.append(Violation(law=Invariant.PARTS_ADD_UP, what=what))
            break
    return tuple(found)


def measurement_violations(measurement: Measurement) -> tuple[Violation, ...]:
    """Return the laws that a measured step breaks, and its profile."""
    profile = measurement.profile
    if profile is None:
        return ()
    if not profile.compute_ns or not measurement.step_ns:
        return profile.broken_laws
    compute_ns, device = max((ns, name) for name, ns in profile.compute_ns.items())
    timed_ns = median(measurement.step_ns)
    if compute_ns <= timed_ns * PROFILED_SLOWER:
        return profile.broken_laws
    what = (
        f"{device} computes for {format_ns(compute_ns)} in the profiled steps, "
        f"where the timed ones last {format_ns(timed_ns)}"
    )
    return (
        *profile.broken_laws,
        Violation(law=Invariant.PROFILE_OF_TIMED_STEP, what=what),
    )


def comparison_violations(
    comparison: Comparison, baseline: Measurement, candidate: Measurement
) -> tuple[Violation, ...]:
    """Return the laws that a ratio breaks, given the two runs that it compares.

    A median of paired ratios may differ from the ratio of the medians, but that lies among the
    paired ones.
    """
    pairs = [
        (median(theirs), median(ours))
        for theirs, ours in zip(baseline.rounds, candidate.rounds, strict=False)
        if theirs and ours
    ]
    if not pairs:
        return ()
    ratio = comparison.ratio
    found = []
    if not ratio.low <= ratio.median * (1 + _ROUNDING) or not (
        ratio.median <= ratio.high * (1 + _ROUNDING)
    ):
        found.append(
            f"the ratio {ratio.median:.3g} lies outside of its interval "
            f"{ratio.low:.3g}–{ratio.high:.3g}"
        )
    paired = [ours / theirs for theirs, ours in pairs]
    of_medians = median(ours for _, ours in pairs) / median(theirs for theirs, _ in pairs)
    for name, value in (("ratio", ratio.median), ("ratio of the medians", of_medians)):
        if not min(paired) * (1 - _ROUNDING) <= value <= max(paired) * (1 + _ROUNDING):
            found.append(
                f"the {name}, {value:.3g}, lies outside of what the rounds have, "
                f"{min(paired):.3g}–{max(paired):.3g}"
            )
    return tuple(Violation(law=Invariant.RATIO_AGREES, what=what) for what in found)
