"""PA203: a device of a split does next to nothing, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.findings.moves import InSplit, layer_moves
from placement_advisor.simulator.schedule import device_times
from placement_advisor.units import format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.schedule import DeviceTime

CODE = "PA203"
NAME = "idle-device"
# A device with a tenth of the busiest one's work shortens the step by less than a tenth, before
# what its copies cost.
IDLE_SHARE = 0.1


def find(evidence: Evidence) -> tuple[InSplit, ...]:
    """Return what was found for each idle device of each split, with what may be moved there."""
    return tuple(
        _found(evidence, split, time, busiest.device)
        for split in evidence.splits
        for times in [_times(evidence, split)]
        for busiest in [max(times, key=lambda time: time.compute_ns)]
        for time in times
        if time.compute_ns < IDLE_SHARE * busiest.compute_ns
    )


def _times(evidence: Evidence, split: Split) -> list[DeviceTime]:
    names = evidence.cluster.device_names()
    return [time for time in device_times(split.schedule) if time.device in names]


def _found(evidence: Evidence, split: Split, time: DeviceTime, busiest: str) -> InSplit:
    step_ns, where = split.schedule.step_ns, {"device": time.device}
    return InSplit(
        code=CODE,
        name=NAME,
        split=split,
        finding=f"{split.name}: {time.device} computes {format_ns(time.compute_ns)} of the "
        f"{format_ns(step_ns)} of a step (simulated); {_why(time, step_ns)}",
        moves=tuple(
            move._replace(where=where)
            for move in layer_moves(evidence, split, busiest, time.device)
        ),
        otherwise=f"try several layers of {busiest} on {time.device}: no single one is surely "
        "better off there",
        where=where,
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
