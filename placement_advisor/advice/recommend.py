"""The verdict: split, stay single, or cannot tell, with its ground.

Measured: *split* if the best candidate's interval lies below the worthwhile ratio; *stay single*
if every candidate that ran lies above it; else *cannot tell*, with what would settle it. Where the
devices are no stand-ins a split must also beat the step as it is. Simulated: only ratios outside a
margin decide, because the simulator's error is known to be large.

*Stay single* always rests on at least one split that was tried. Where none was (no family applies,
or all failed) the answer is *cannot tell*: that the advisor found no split does not show that none
would help. A candidate that failed is not covered by the verdict, and a reason says so.
"""

from __future__ import annotations

from math import ceil
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.advice.reasons import (
    as_is_reason,
    failure_reason,
    measured_reasons,
    simulated_reasons,
    speedup_text,
)
from placement_advisor.analysis import AdviceVerdict, FailureKind, Recommendation
from placement_advisor.candidates import single as single_family
from placement_advisor.compare import MIN_ROUNDS, WORTHWHILE_RATIO, Verdict
from placement_advisor.measure import Interval, bootstrap_median
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis import Candidate, TestbedSummary
    from placement_advisor.compare import Comparison

# Op times of the single run plus latency and bandwidth came out 30 % and 48 % below what workers
# really took: a predicted gain must survive a third of error, and a predicted loss, which reality
# only makes worse, needs no margin.
SIMULATED_SPLIT_RATIO = 0.7
SIMULATED_STAY_RATIO = 1.0
# Past this, more rounds buy little: the interval shrinks with the square root of their number.
MAX_ROUNDS_TO_ADVISE = 500


def recommend(
    candidates: Sequence[Candidate], testbed: TestbedSummary, as_is: Sequence[int] | None
) -> Recommendation:
    """Return the answer for these candidates.

    ``as_is`` holds the step times of the unmodified step in ns. ``candidate`` of the answer is
    the split that the verdict is about: the one to use, or the best that was tried. ``speedup``
    is None where nothing was measured.
    """
    single = next((c for c in candidates if c.family == single_family.FAMILY), None)
    splits = [c for c in candidates if c.family != single_family.FAMILY]
    failures = [reason for c in candidates if (reason := failure_reason(c)) is not None]
    judge = _measured if testbed.not_run is None else _simulated
    answer = judge(single, splits, testbed, as_is or ())
    limits = [_only_bad_on_purpose(splits)] if answer.verdict is AdviceVerdict.STAY_SINGLE else []
    return answer
