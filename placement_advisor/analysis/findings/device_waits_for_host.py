"""PA301: the device computes for less than 90 % of a step, so a split starts at the wrong end.

Two things keep a device waiting: input that comes more slowly than the steps could go, and what
ops and steps cost beside their computing (launches, the call). The first is told from the input
pipeline timed alone, with the same step as the verdict; the second from the simulated step on one
device, whose costs are measured where the model ran.

What the first costs is known: at least what a batch takes beyond a step, at most all of a batch
where nothing says that the two overlap. Of the second only a part can be saved, and nobody knows
which: no saving is given.

Left out: input that slows the step down by taking cores from it; the launches of a step that XLA
compiles, which are others than those of the ops that are simulated.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.input_without_overlap import lacking, overlaps
from placement_advisor.analysis.findings.savings import sure_saving
from placement_advisor.measurement.measurement import median_interval
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Saving
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.measurement.measurement import InputTiming

CODE = "PA301"
NAME = "device-waits-for-host"
# Above this, what the host costs is of the order of what a verdict tolerates. Judgement.
BUSY_SHARE = 0.9
# A pipeline that prefetches hands batches out in bursts: what it takes in parts of its time says
# how steady it is. As few as tell, by judgement.
_PARTS = 4


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the input's finding if it is slower than the step, else that of the host."""
    found = _slow_input(evidence) or _slow_host(evidence)
    return () if found is None else (found,)


def _slow_input(evidence: Evidence) -> Finding | None:
    timing, step = evidence.input_timing, evidence.step_alone()
    if timing is None or not timing.batch_ns or step is None:
        return None
    step_ns, basis = step
    batch_ns = mean(timing.batch_ns)
    if step_ns >= BUSY_SHARE * batch_ns:
        return None
    rate = ""
    if evidence.batch_size is not None:
        rate = f" ({evidence.batch_size * 1e9 / batch_ns:,.0f} samples/s)"
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"the input delivers a batch in {format_ns(batch_ns)}{rate} (measured, alone), a "
        f"step takes {format_ns(step_ns)} ({basis}): a device is busy for at most "
        f"{format_share(step_ns / batch_ns)} of the time, and no split changes that",
        action="make the input faster first: "
        + ", ".join((*lacking(timing.transformations), "larger reads", "less work per sample")),
        where={},
        saving=_saving(evidence, timing, step_ns, basis),
    )


def _saving(evidence: Evidence, timing: InputTiming, step_ns: float, basis: str) -> Saving | None:
    """Return what input saves that keeps up with the step."""
    batches_ns = timing.batch_ns
    each = max(1, len(batches_ns) // _PARTS)
    parts = [mean(batches_ns[i : i + each]) for i in range(0, len(batches_ns) - each + 1, each)]
    ends = step_ns / evidence.doubt.ops, step_ns * evidence.doubt.ops
    alone = evidence.alone
    if basis == "measured" and alone is not None and alone.measured is not None:
        interval = median_interval(alone.measured.step_ns)
        ends = (step_ns, step_ns) if interval is None else (interval.low, interval.high)
    hidden_ns = ends[0] if overlaps(timing.transformations) else 0.0
    others = [min(parts) - ends[1], max(parts) - hidden_ns]
    batch_ns = mean(batches_ns)
    return sure_saving(batch_ns, batch_ns - step_ns, others, basis)


def _slow_host(evidence: Evidence) -> Finding | None:
    alone, device = evidence.alone, evidence.cluster.devices[0].name
    left_out = evidence.left_out
    if left_out.has_xla or alone is None or alone.predicted is None:
        return None
    step_ns, compute_ns = alone.predicted.step_ns, alone.predicted.compute_ns.get(device, 0)
    if not compute_ns or compute_ns >= BUSY_SHARE * step_ns:
        return None
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{device} computes for {format_share(compute_ns / step_ns)} of a step "
        f"({format_ns(compute_ns)} of {format_ns(step_ns)}, simulated); the rest goes to launching "
        "ops, to the host and to the call",
        action="have fewer and larger ops first: a larger batch, fused layers and optimizers"
        + (", jit_compile=True on one device" * (not evidence.calls_python))
        + (", several steps per call (steps_per_execution)" * (left_out.steps_per_call == 1)),
        where={"device": device},
    )
