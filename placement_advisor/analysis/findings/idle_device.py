"""PA203: a device of a split does next to nothing, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.moves import best_layer_move
from placement_advisor.simulator.idle import device_times
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.idle import DeviceTime

CODE = "PA203"
NAME = "idle-device"
# A device with a tenth of the busiest one's work shortens the step by less than a tenth, before
# what its copies cost.
IDLE_SHARE = 0.1


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each idle device of each split."""
    return tuple(
        _finding(evidence, split, time, busiest.device)
        for split in evidence.splits
        for times in [_times(evidence, split)]
        for busiest in [max(times, key=lambda time: time.compute_ns)]
        for time in times
        if time.compute_ns < IDLE_SHARE * busiest.compute_ns
    )


def _times(evidence: Evidence, split: Split) -> list[DeviceTime]:
    names = evidence.cluster.device_names()
    return [time for time in device_times(split.schedule) if time.device in names]


def _finding(evidence: Evidence, split: Split, time: DeviceTime, busiest: str) -> Finding:
    step_ns = split.schedule.step_ns
    move = best_layer_move(evidence, split, busiest, time.device)
    action = f"no single layer of {busiest} is better off there: use one device less"
    if move is not None:
        action = f"put {move.what} with its gradients and variables on {move.device}"
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{split.name}: {time.device} computes {format_ns(time.compute_ns)} of the "
        f"{format_ns(step_ns)} of a step (simulated); {_why(time, step_ns)}",
        action=action,
        where={"device": time.device},
        saving_ns=None if move is None else move.saving_ns,
        is_hypothetical=split.is_hypothetical,
    )


def _why(time: DeviceTime, step_ns: int) -> str:
    """Return the largest part of its idle time in words."""
    if time.compute_ns + time.copy_work_ns == 0:
        return "no op that takes time is placed there"
    reasons = {
        "waits for its first tensor": time.before_first_ns,
        "waits for tensors on their way": time.waits_for_copy_ns,
        "waits for its host to launch ops": time.waits_for_launch_ns,
        "waits for other devices to make a tensor": time.waits_for_device_ns,
        "has nothing left to do": time.after_last_ns,
    }
    reason = max(reasons, key=reasons.__getitem__)
    return f"it {reason} for {format_share(reasons[reason] / step_ns)} of the step"
