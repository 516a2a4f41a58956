"""What ran in each profiled step of worker processes on one machine.

The profiles share the machine's clock, so that the steps of the client cut all of them; copies of a
model under `tf.distribute` mark steps of their own, which cut each one's profile.
Ops are the events of their kernels, wherever they ran: a thread that receives a tensor may run
the ops that waited for it inline. Sends and receives are copies, not compute.

A collective lasts on a device from when the executor starts it until it goes on; it counts as a
copy from the device before it in the ring, the wait for slower devices included. Its hops leave no
event, and no copy's bytes are in a profile of a CPU: those come from the shapes in the graph.

Left out: loops and calls, which complete asynchronously, have no event of their own, only the ops
that they run; clocks of several hosts are not aligned.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import CONTROL_PORT
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.step_profile import Copy, Work, summarise, tensor_name
from placement_advisor.profile.timeline.allocator_memory import measured_memory
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.step_windows import OP_EVENT, host_lines, step_windows
from placement_advisor.profile.xspace.xplane import read_planes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.profile.step_profile import RecordedStep
    from placement_advisor.profile.timeline.step_windows import OpenStep, StepWindows
    from placement_advisor.profile.xspace.xplane import Event, Line

COPY_ROW = CopyKind.WORKER
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One planned copy, from the partition graphs that were executed.

    ``send_node`` and ``recv_node`` are the nodes that TensorFlow put in. Port -1 is a control edge,
    which carries no bytes.
    """

    send_node: str
    recv_node: str
    producer: str
    port: int
    source: str
    target: str
    size_bytes: int | None


def read_worker_steps(
    worker_files: Mapping[str, Path],
    client_file: Path,
    crossings: Sequence[Crossing],
    exchanged_bytes: Mapping[str, int | None] = MappingProxyType({}),
) -> StepProfile:
    """Read the profiles of the workers, one per device; the steps are those of the client.

    ``exchanged_bytes`` has the collective ops that each device runs in every step, with what one
    sends on from a device, None where that is not known. More may be seen, in conditionals.

    A copy lasts from the start of its ``_Send`` to the moment at which the receiving executor
    goes on: the way through both processes and the wait for a busy core are part of it.
    It counts as soon as it is seen to arrive. Steps in
    which no op ran, or which a worker's profile covers only in part, are skipped.

    Raises:
        AdvisorError: a file is missing or corrupt, no complete step is left, or none of the
            planned copies was seen.
    """
    asked = covered = step_windows(read_planes(client_file), client_file)
    threads: dict[str, tuple[Line, ...]] = {}
    windows: dict[str, StepWindows] = {}
    for device, path in worker_files.items():
        planes = read_planes(path)
        own = windows[device] = asked.marked_by(planes, path).covered_by(planes)
        covered = covered.shared_with(own)
        threads[device] = tuple(host_lines(planes))
        _gather_ops(device, threads[device], own)
        for line in threads[device]:
            _gather_arrivals(device, line, own)
        _gather_exchanges(device, threads[device], own, tuple(worker_files), exchanged_bytes)
    steps = covered.with_work(client_file)
    for step in steps:
        step.copies.extend(_copies(step, crossings))
    if crossings and not any(step.copies for step in steps):
        paths = ", ".join(str(path) for path in worker_files.values())
        raise AdvisorError(
            f"none of the {len(crossings)} planned copies is in the profiles {paths}"
        )
    closed = [step.closed() for step in steps]
    summary = replace(
        summarise(closed, tuple(worker_files)),
        unseen_copies=_unseen(closed, tuple(worker_files), crossings, exchanged_bytes),
    )
    memory = {
        device: measured_memory(lines, windows[device].shared_with(covered))
        for device, lines in threads.items()
    }
    held_bytes = {device: round(median(steps)) for device, steps in memory.items() if steps}
    return replace(summary, step_memory_bytes=held_bytes)


def _gather_ops(device: str, lines: Sequence[Line], windows: StepWindows) -> None:
    threads = [
        [
            (event, match.group(1), match.group(2))
            for event in line.events
            if (match := OP_EVENT.fullmatch(event.name)) and match.group(2) not in COLLECTIVE_KINDS
        ]
        for line in lines
    ]
    own = shared_core_ns([[event for event, _, _ in thread] for thread in threads])
    for thread, thread_own in zip(threads, own, strict=True):
        for (event, name, kind), own_ns in zip(thread, thread_own, strict=True):
            step = windows.at(event.start_ns)
            if step is None or kind in RECEIVE_KINDS:
                continue
            if kind in SEND_KINDS:
                step.sends[device, name].append(event.start_ns)
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


def _copies(step: OpenStep, crossings: Iterable[Crossing]) -> Iterator[Copy]:
    """Pair the sends of each crossing with its arrivals, in order of time.

    TensorFlow records no event of an op that it has found to be cheap, and sending a few bytes is:
    such a copy starts when the op ended that made the tensor, or, where that was cheap as well, is
    counted with no time of its own.
    """
    ends: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for work in step.work:
        ends[work.device, work.op].append(work.end_ns)
    for crossing in crossings:
        sends = sorted(step.sends.get((crossing.source, crossing.send_node), ()))
        arrivals = sorted(step.arrivals.get((crossing.target, crossing.recv_node), ()))
        made = sorted(ends.get((crossing.source, crossing.producer), ()))
        for i, arrival_ns in enumerate(arrivals):
            start_ns = next((seen[i] for seen in (sends, made) if i < len(seen)), arrival_ns)
            yield Copy(
                source=crossing.source,
                target=crossing.target,
                waiting=crossing.target,
                tensor=tensor_name(crossing.producer, crossing.port),
                row=COPY_ROW,
                size_bytes=0 if crossing.port == CONTROL_PORT else crossing.size_bytes,
                size_basis=SizeBasis.SHAPES,
                start_ns=start_ns,
                # Both processes read the machine's clock, which may be set back in between; a
                # copy cannot arrive before it was sent.
                end_ns=max(start_ns, arrival_ns),
            )


def _unseen(
    steps: Iterable[RecordedStep],
    devices: Sequence[str],
    crossings: Iterable[Crossing],
    exchanges: Iterable[str],
) -> tuple[str, ...]:
    """Return the copies that every step makes and no step shows, each with where it goes."""
    planned = [
        *((tensor_name(each.producer, each.port), each.target) for each in crossings),
        *((name, device) for name in exchanges for device in devices),
    ]
    seen = {(copy.tensor, copy.target) for step in steps for copy in step.copies}
    missing = (each for each in dict.fromkeys(planned) if each not in seen)
    return tuple(f"{tensor} to {target}" for tensor, target in missing)
