"""What each device does with the step's time, and why it is idle.

Model: a device computes (ops with their launch overhead), works on copies, or is idle. Between its
first and its last work it waits for a copy while a tensor is on its way to it, from when that sets
out; else, where it launches ahead, for its next launch while its host is busy with one; else it
waits for other devices to make a tensor. Before its first work lies what starts it.

Left out: why the other device was not done.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.simulator.intervals import by_key, length, length_outside, merged

if TYPE_CHECKING:
    from placement_advisor.simulator.intervals import Interval
    from placement_advisor.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """The parts of one device's step; they add up to the step time.

    A device that does nothing is idle before its first work all the time.
    """

    device: str
    compute_ns: int
    copy_work_ns: int
    before_first_ns: int
    waits_for_copy_ns: int
    waits_for_launch_ns: int
    waits_for_device_ns: int
    after_last_ns: int


def device_times(schedule: Schedule) -> tuple[DeviceTime, ...]:
    """Return the parts of every device and host, in the schedule's order."""
    runs = by_key((run.device, (run.start_ns, run.end_ns)) for run in schedule.runs)
    copy_work: defaultdict[str, list[Interval]] = defaultdict(list)
    coming: defaultdict[str, list[Interval]] = defaultdict(list)
    launches = by_key((run.device, run.launch) for run in schedule.runs if run.launch)
    for copy in schedule.transfers:
        if copy.send_work_ns:
            copy_work[copy.source].append(copy.send_work)
        if copy.receive_work_ns:
            copy_work[copy.target].append(copy.receive_work)
        coming[copy.target].append((copy.set_out_ns, copy.end_ns))
    return tuple(
        _device_time(
            device,
            runs[device],
            copy_work[device],
            coming[device],
            launches[device],
            schedule.step_ns,
        )
        for device in schedule.compute_ns
    )


def _device_time(
    device: str,
    runs: list[Interval],
    copy_work: list[Interval],
    coming: list[Interval],
    launches: list[Interval],
    step_ns: int,
) -> DeviceTime:
    busy = merged([*runs, *copy_work])
    first_ns, last_ns = (busy[0][0], busy[-1][1]) if busy else (step_ns, step_ns)

    def between(intervals: list[Interval]) -> list[Interval]:
        return [
            (max(start, first_ns), min(end, last_ns))
            for start, end in intervals
            if start < last_ns and end > first_ns
        ]

    waits_for_copy_ns = length_outside(between(coming), busy)
    waits_for_launch_ns = length_outside(between(launches), merged([*busy, *between(coming)]))
    return DeviceTime(
        device=device,
        compute_ns=length(runs),
        copy_work_ns=length_outside(copy_work, merged(runs)),
        before_first_ns=first_ns,
        waits_for_copy_ns=waits_for_copy_ns,
        waits_for_launch_ns=waits_for_launch_ns,
        waits_for_device_ns=last_ns
        - first_ns
        - length(busy)
        - waits_for_copy_ns
        - waits_for_launch_ns,
        after_last_ns=step_ns - last_ns,
    )
