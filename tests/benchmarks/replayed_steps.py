"""Profiled steps of workers, run through again in TensorFlow's order: what each device held.

An op has the moments of its kernel. One without an event, because TensorFlow found it cheap or no
op is called so, runs at once when what it reads is there. What was received is held until the
thread that hands it over goes on, too. Where ops have the same name but for numbers, the first is
the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op_graph import CONTROL_PORT, Edge, Op, OpGraph, Role
from placement_advisor.graph.roles import COMPUTING_ROLES
from placement_advisor.profile.timeline.allocator_memory import measured_memory
from placement_advisor.profile.timeline.step_windows import host_lines, step_windows
from placement_advisor.profile.timeline.worker_events import ARRIVAL, RECEIVE_KINDS, gather_events
from placement_advisor.profile.xspace.xplane import read_planes
from placement_advisor.simulator.events import OpRun, Transfer
from placement_advisor.simulator.memory import peak_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.profile.timeline.step_windows import OpenStep, StepWindows
    from placement_advisor.profile.timeline.worker_steps import Crossing
    from placement_advisor.profile.xspace.xplane import Line
    from placement_advisor.simulator.peak import PeakMemory
    from placement_advisor.testbed.testbed import ProfileFiles

    # From when to when, in ns.
    Span = tuple[int, int]

_NUMBER = re.compile(r"_(\d+)(?=/|$)")


class Replayed(NamedTuple):
    """What a device holds at most in a step, replayed, and what the step asked for above that."""

    peak: PeakMemory
    asked_bytes: int

    @property
    def error(self) -> float:
        """How far the replayed peak is off, in proportion."""
        return self.peak.size_bytes / (self.peak.resident_bytes + self.asked_bytes) - 1


def replayed(
    graph: OpGraph,
    placement: Placement,
    files: ProfileFiles,
    crossings: Sequence[Crossing],
) -> Iterator[dict[str, Replayed]]:
    """Yield what each device held in each profiled step that all of them reported."""
    steps = step_windows(read_planes(files.client), files.client)
    lines, windows = {}, {}
    covered = steps
    for device, path in files.devices.items():
        planes = read_planes(path)
        windows[device] = steps.marked_by(planes, path).covered_by(planes)
        covered = covered.shared_with(windows[device])
        lines[device] = tuple(host_lines(planes))
        gather_events(
            device, lines[device], windows[device], tuple(files.devices), {}, on_core=True
        )
    asked = {
        device: measured_memory(lines[device], windows[device].shared_with(covered))
        for device in files.devices
    }
    if any(len(peaks) != len(covered.steps) for peaks in asked.values()):
        return
    for number, step in enumerate(covered.steps):
        handed_over = {
            (device, node): span
            for device in files.devices
            for node, span in _handed_over(lines[device], windows[device], step)
        }
        there = {
            (each.producer, each.port, each.target): handed_over[each.target, each.recv_node]
            for each in crossings
            if (each.target, each.recv_node) in handed_over
        }
        replay = _Replay(graph, placement.device_of, step, there)
        runs, transfers = replay.events()
        handing_over, more = replay.handing_over(transfers)
        peaks = peak_memory(handing_over, [*runs, *more], transfers, list(files.devices))
        yield {device: Replayed(peaks[device], asked[device][number]) for device in files.devices}


def _handed_over(
    lines: Iterable[Line], windows: StepWindows, step: OpenStep
) -> Iterator[tuple[str, Span]]:
    """Yield from when to when what was received is handed over to the executor, by node."""
    for line in lines:
        for event in line.events:
            is_received = event.stats.get("kernel_type") in RECEIVE_KINDS
            if event.name == ARRIVAL and is_received and windows.at(event.start_ns) is step:
                yield str(event.stats.get("name")), (event.start_ns, event.end_ns)


class _Replay:
    """One step; ``there`` has from when to when tensors were handed over where they went to."""

    def __init__(
        self,
        graph: OpGraph,
        device_of: Mapping[str, str],
        step: OpenStep,
        there: Mapping[tuple[str, int, str], Span],
    ) -> None:
        self._graph, self._device_of, self._there = graph, device_of, there
        self._start_ns = step.start_ns
        self._seen = _seen(graph, device_of, step)

    def events(self) -> tuple[list[OpRun], list[Transfer]]:
        """Return the runs and transfers of the step, as a schedule has them."""
        runs: dict[str, OpRun] = {}
        transfers: dict[tuple[str, int, str], Transfer] = {}
        for op in self._graph.ops:
            device = self._device_of.get(op.name)
            if device is None:
                continue
            ready_ns = self._start_ns
            for edge in self._graph.inputs_of(op.name):
                if edge.producer not in runs:
                    continue
                made = runs[edge.producer]
                there_ns = made.end_ns
                if made.device != device and edge.port != CONTROL_PORT:
                    key = edge.producer, edge.port, device
                    if key not in transfers:
                        transfers[key] = self._transfer(key, made, edge.size_bytes)
                    there_ns = transfers[key].end_ns
                ready_ns = max(ready_ns, there_ns)
            start_ns, end_ns = self._seen.get(op.name, (ready_ns, ready_ns))
            start_ns = max(start_ns, ready_ns)
            runs[op.name] = OpRun(
                op=op.name,
                device=device,
                ready_ns=ready_ns,
                start_ns=start_ns,
                end_ns=max(start_ns, end_ns),
            )
        return list(runs.values()), list(transfers.values())

    def _transfer(self, key: tuple[str, int, str], made: OpRun, size_bytes: int | None) -> Transfer:
        producer, port, target = key
        there_ns, _ = self._there.get(key, (0, 0))
        return Transfer(
            producer=producer,
            port=port,
            source=made.device,
            target=target,
            size_bytes=size_bytes,
            start_ns=made.end_ns,
            end_ns=max(there_ns, made.end_ns + 1),
            receive_work_ns=1,
        )

    def handing_over(self, transfers: Iterable[Transfer]) -> tuple[OpGraph, list[OpRun]]:
        """Return the graph with an op for each thread that holds what it received, and its run."""
        ops, edges, runs = list(self._graph.ops), list(self._graph.edges), []
        for each in transfers:
            key = each.producer, each.port, each.target
            if key not in self._there:
                continue
            name = f"{each.tensor} to {each.target}"
            ops.append(Op(name=name, kind="NoOp", role=Role.FORWARD, output_bytes=()))
            edges.append(Edge(each.producer, name, each.port, each.size_bytes))
            runs.append(
                OpRun(
                    op=name,
                    device=each.target,
                    ready_ns=each.end_ns,
                    start_ns=each.end_ns,
                    end_ns=max(each.end_ns, self._there[key][1]),
                )
            )
        return OpGraph(ops, edges), runs


def _seen(graph: OpGraph, device_of: Mapping[str, str], step: OpenStep) -> dict[str, Span]:
    """Return when each op ran that has an event."""
    spans: dict[tuple[str, str], Span] = {}
    for work in step.work:
        if work.op is not None:
            spans.setdefault((work.device, work.op), (work.start_ns, work.end_ns))
    found: dict[str, Span] = {}
    ops_left: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.name not in device_of or op.role not in COMPUTING_ROLES:
            continue
        device = device_of[op.name]
        if (device, op.name) in spans:
            found[op.name] = spans.pop((device, op.name))
        else:
            ops_left[device, _plain(op.name)].append(op.name)
    events_left: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for device, name in spans:
        events_left[device, _plain(name)].append(name)
    for (device, plain), names in ops_left.items():
        events = events_left[device, plain]
        if len(events) == len(names):
            for name, event in zip(
                sorted(names, key=_place), sorted(events, key=_place), strict=True
            ):
                found[name] = spans[device, event]
    return found


def _plain(name: str) -> str:
    return _NUMBER.sub("", name)


def _place(name: str) -> list[int]:
    return list(map(int, _NUMBER.findall(name)))
