"""PA308: Keras' loop calls the device for each step, and the call is a good part of the step.

Model: none. A step in `fit` is measured with one step for each call and with several, on the user's
machine. What GPUs that are not here would wait for their host is not told.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.savings import by_run
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA308"
NAME = "one-step-per-call"
# Step times on a busy machine wander by a tenth. All rounds have to agree besides. Judgement.
MIN_SHARE = 0.1


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if several steps for each call are surely faster."""
    timing = evidence.loop_timing
    if timing is None or min(timing.saved_shares) <= 0:
        return ()
    one_ns, several_ns = median(timing.one_ns), median(timing.several_ns)
    shares = timing.saved_shares
    saved, *ends = (one_ns * share for share in (median(shares), min(shares), max(shares)))
    if saved < MIN_SHARE * one_ns:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"in Keras' fit a step takes {format_ns(one_ns)}, and {format_ns(several_ns)} "
            f"where a call runs {timing.steps_per_call} of them (measured, your model on all of "
            "this machine, one batch over and over): the rest is Python between steps",
            action=f"model.compile(..., steps_per_execution={timing.steps_per_call}), if nothing "
            "has to look at each step: callbacks then see every "
            f"{timing.steps_per_call}th",
            where={},
            saving=by_run(one_ns, saved, ends),
        ),
    )
