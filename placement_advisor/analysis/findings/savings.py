"""What acting on a finding saves of a step, and how far that may be off.

Model: a saving by another placement is a ratio of two placements as any other, and known no better
than that: copies, launches and ops as wrong as costs of the analysis may be (`Sensitivity`). One by
other ops on the same device is off by the factor that the time of these ops is within. One that was
measured is known as far as its repeats agree, in one run and in the next.

It is known as a share of the step. What a machine does otherwise in another run, or costs that are
all too low, make both steps longer, and leave their ratio.

What may save nothing, or cost something, is no saving.
"""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Saving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.simulator.sensitivity import PredictedRatio

# Less than this share of a saving is zero at the three digits that are shown.
_NOTHING = 0.01
# In another run another share of the step is saved, nine in ten times by no more than this more or
# less: what the ratio of two steps is off there (`again`, before 0.2).
_AGAIN = 0.04


def sure_saving(
    step_ns: float, saving_ns: float, others_ns: Sequence[float], basis: str = "simulated"
) -> Saving | None:
    """Return a saving of a step that may as well be any of the others; None if one is none.

    No step saves more than it takes.
    """
    low_ns, high_ns = min(saving_ns, *others_ns), max(saving_ns, *others_ns)
    if low_ns < max(1, _NOTHING * saving_ns):
        return None
    return Saving(
        step_ns=round(step_ns),
        saving_ns=round(saving_ns),
        low_ns=round(low_ns),
        high_ns=round(min(high_ns, step_ns)),
        basis=basis,
    )


def by_run(step_ns: float, saving_ns: float, ends_ns: Sequence[float]) -> Saving | None:
    """Return what a step has saved beside another one; ``ends_ns`` is what its run leaves in doubt.

    Whoever acts on it has another run, of which the turns of this one show nothing.
    """
    again_ns = _AGAIN * step_ns
    below_ns, above_ns = saving_ns - min(ends_ns), max(ends_ns) - saving_ns
    others_ns = (saving_ns - hypot(below_ns, again_ns), saving_ns + hypot(above_ns, again_ns))
    return sure_saving(step_ns, saving_ns, others_ns, "measured")


def by_ratio(step_ns: int, ratio: PredictedRatio, basis: str = "simulated") -> Saving | None:
    """Return what a step saves beside another one that takes ``ratio`` of it."""
    saving_ns, *ends_ns = (step_ns * (1 - each) for each in (ratio.ratio, ratio.low, ratio.high))
    return sure_saving(step_ns, saving_ns, ends_ns, basis)


def by_ops(step_ns: int, other_ns: int, within: float) -> Saving | None:
    """Return what a step saves by other ops, whose times are ``within`` a factor."""
    saving_ns = step_ns - other_ns
    return sure_saving(step_ns, saving_ns, [saving_ns / within, saving_ns * within])
