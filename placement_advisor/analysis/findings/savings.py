"""What acting on a finding saves, and how far that may be off.

Model: a saving by another placement is a ratio of two placements as any other, and known no better
than that: copies, launches and ops as wrong as costs of the analysis may be (`Sensitivity`). One by
other ops on the same device is off by the factor that the time of these ops is within. Steps that
ran show by how much all simulated times are too short or too long: a range holds the saving by both
scales. One that was measured is known as far as its repeats agree, in one run and in the next.

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
# In another run all steps are faster or slower by so much, and the ratio of two of them by so much:
# nine in ten. The first is what the campaign of followed advice has shown (docs/trust.md), the
# second is of `tests/benchmarks/again.py`.
_PACE, _AGAIN = 1.25, 1.04


def sure_saving(
    saving_ns: float, others_ns: Sequence[float], basis: str = "simulated"
) -> Saving | None:
    """Return a saving that may as well be any of the others; None if one of these is none."""
    low_ns, high_ns = min(saving_ns, *others_ns), max(saving_ns, *others_ns)
    if low_ns < max(1, _NOTHING * saving_ns):
        return None
    return Saving(
        saving_ns=round(saving_ns), low_ns=round(low_ns), high_ns=round(high_ns), basis=basis
    )


def by_run(step_ns: float, saving_ns: float, ends_ns: Sequence[float]) -> Saving | None:
    """Return what a step has saved beside another one; ``ends_ns`` is what its run leaves in doubt.

    Whoever acts on it has another run. There the machine is faster or slower, for both alike, and
    one of them a little more so than the other; the turns of this run show nothing of that.
    """
    again_ns = hypot((_PACE - 1) * saving_ns, (_AGAIN - 1) * (step_ns - saving_ns))
    below_ns, above_ns = saving_ns - min(ends_ns), max(ends_ns) - saving_ns
    others_ns = (saving_ns - hypot(below_ns, again_ns), saving_ns + hypot(above_ns, again_ns))
    return sure_saving(saving_ns, others_ns, "measured")


def by_ratio(
    step_ns: int, ratio: PredictedRatio, scale: float, basis: str = "simulated"
) -> Saving | None:
    """Return what a step saves beside another one that takes ``ratio`` of it.

    ``scale`` is what a step takes as measured over what it does as simulated, 1 if none ran.
    """
    ends_ns = [step_ns * (1 - ratio.low), step_ns * (1 - ratio.high)]
    return sure_saving(
        step_ns * (1 - ratio.ratio), [by * end for by in (1, scale) for end in ends_ns], basis
    )


def by_ops(step_ns: int, other_ns: int, within: float, scale: float) -> Saving | None:
    """Return what a step saves by other ops, whose times are ``within`` a factor; see above.

    A step saves no more than it takes.
    """
    saving_ns = step_ns - other_ns
    ends_ns = [min(saving_ns * factor, step_ns) for factor in (1 / within, within)]
    return sure_saving(saving_ns, [by * end for by in (1, scale) for end in ends_ns])
