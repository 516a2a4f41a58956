"""What the profile of a worker shows of each step: its ops, sends and arrivals, and collectives.

Ops are the events of their kernels, wherever they ran: a thread that receives a tensor may run
the ops that waited for it inline. Sends and receives are copies, not compute.

A collective lasts on a device from when the executor starts it until it goes on; it counts as a
copy from the device before it in the ring, the wait for slower devices included. Its hops leave no
event.

Left out: loops and calls, which complete asynchronously, have no event of their own, only the ops
that they run.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.step_profile import Copy, Work
from placement_advisor.profile.timeline.step_windows import OP_EVENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.profile.timeline.step_windows import StepWindows
    from placement_advisor.profile.xspace.xplane import Event, Line

    # With the name and the kind of its op.
    _OpEvent = tuple[Event, str, str]

COLLECTIVE_ROW = "[gRPC ring collective]"

ARRIVAL = "ExecutorState::ProcessAsync::Done"
JOIN = "ExecutorState::ProcessAsync::Start"
SEND_KINDS = frozenset({"_Send", "_HostSend"})
RECEIVE_KINDS = frozenset({"_Recv", "_HostRecv"})
COLLECTIVE_KINDS = frozenset(
    {
        "CollectiveGather",
        "CollectiveGatherV2",
        "CollectiveReduce",
        "CollectiveReduceV2",
        "CollectiveReduceV3",
    }
)


def gather_events(
    device: str,
    lines: Sequence[Line],
    windows: StepWindows,
    devices: Sequence[str],
    exchanged_bytes: Mapping[str, int | None],
    *,
    on_core: bool,
) -> None:
    """Put what a device sent, received and exchanged into the steps in which it did.

    So is what it computed, if it is a core.
    """
    threads = [_ops_of(line) for line in lines]
    for thread in threads:
        _gather_sends(device, thread, windows)
    if on_core:
        _gather_work(device, threads, windows)
    for line in lines:
        _gather_arrivals(device, line, windows)
    _gather_exchanges(device, lines, windows, devices, exchanged_bytes)


def _ops_of(line: Line) -> list[_OpEvent]:
    return [
        (event, match.group(1), match.group(2))
        for event in line.events
        if (match := OP_EVENT.fullmatch(event.name)) and match.group(2) not in COLLECTIVE_KINDS
    ]


def _gather_work(device: str, threads: Sequence[Sequence[_OpEvent]], windows: StepWindows) -> None:
    own = shared_core_ns([[event for event, _, _ in thread] for thread in threads])
    for thread, thread_own in zip(threads, own, strict=True):
        for (event, name, kind), own_ns in zip(thread, thread_own, strict=True):
            step = windows.at(event.start_ns)
            if step is None or kind in RECEIVE_KINDS | SEND_KINDS:
                continue
            step.work.append(
                Work(
                    device=device,
                    op=name,
                    row=kind,
                    start_ns=event.start_ns,
                    end_ns=event.end_ns,
                    own_ns=own_ns,
                )
            )


def shared_core_ns(threads: Sequence[Sequence[Event]]) -> list[list[int]]:
    """Return the core time of each event of a worker whose threads share one core.

    Within a thread the innermost event runs; events that run in several threads at the same moment
    have equal parts of it. So core times add up to the time in which anything ran.
    """
    own = [[0.0] * len(events) for events in threads]
    changes = []
    for thread, events in enumerate(threads):
        for place, event in enumerate(events):
            if event.duration_ns:
                # At one moment ends come before starts, and of starts the outermost comes first.
                changes.append((event.end_ns, 0, 0, thread, place))
                changes.append((event.start_ns, 1, -event.end_ns, thread, place))
    changes.sort()
    running: dict[int, list[int]] = {}
    before_ns = 0
    for now_ns, is_start, _, thread, place in changes:
        for other, stack in running.items():
            own[other][stack[-1]] += (now_ns - before_ns) / len(running)
        before_ns = now_ns
        if is_start:
            running.setdefault(thread, []).append(place)
            continue
        running[thread].remove(place)
        if not running[thread]:
            del running[thread]
    return [[round(time_ns) for time_ns in of_thread] for of_thread in own]


def _gather_sends(device: str, thread: Iterable[_OpEvent], windows: StepWindows) -> None:
    for event, name, kind in thread:
        step = windows.at(event.start_ns) if kind in SEND_KINDS else None
        if step is not None:
            step.sends[device, name].append(event.start_ns)


def _gather_arrivals(device: str, line: Line, windows: StepWindows) -> None:
    for event in line.events:
        if event.name != ARRIVAL or event.stats.get("kernel_type") not in RECEIVE_KINDS:
            continue
        step = windows.at(event.start_ns)
        if step is not None:
            step.arrivals[device, str(event.stats.get("name"))].append(event.start_ns)


def _gather_exchanges(
    device: str,
    lines: Iterable[Line],
    windows: StepWindows,
    devices: Sequence[str],
    exchanged_bytes: Mapping[str, int | None],
) -> None:
    """Put the collectives of a device into their steps: the first join ends first, and so on.

    The op's own event lasts longer: its thread goes on to run the ops that waited for it.
    """
    joined_ns: defaultdict[str, list[int]] = defaultdict(list)
    done_ns: defaultdict[str, list[int]] = defaultdict(list)
    for line in lines:
        for event in line.events:
            if event.stats.get("kernel_type") in COLLECTIVE_KINDS:
                moments = {JOIN: joined_ns, ARRIVAL: done_ns}.get(event.name)
                if moments is not None:
                    moments[str(event.stats.get("name"))].append(event.start_ns)
    for name, starts in joined_ns.items():
        done = sorted(done_ns[name])
        for start_ns in sorted(starts):
            step = windows.at(start_ns)
            # One that was under way when profiling began has ended, but not joined.
            while done and done[0] < start_ns:
                done.pop(0)
            if step is None or not done:
                continue
            step.copies.append(
                Copy(
                    source=devices[devices.index(device) - 1],
                    target=device,
                    waiting=device,
                    tensor=name,
                    row=COLLECTIVE_ROW,
                    size_bytes=exchanged_bytes.get(name),
                    size_basis=SizeBasis.SHAPES,
                    start_ns=start_ns,
                    end_ns=done.pop(0),
                )
            )
