"""The critical path of a schedule: what the end of the step waited for, back to its beginning.

Model: an op that started when it became ready waited for its last input; one that started later
waited for what its device did before, be it an op or copy work. One that was launched ahead waited
for the op before it if it started after its launch; else for the launch, which waited for its last
input's launch or copy, or for what the host's thread did before. A copy waited for its producer,
for a wire that other copies held or its target's request (*queueing*), and for its source and
target to turn to it, so again for what those did before. What is left is overhead: until a device
begins, and from the last end of an op until the caller knows of it. The parts follow each other
without a gap or an overlap.

Where several inputs came last at one moment, or an input came just when the device was free, the
path goes through the first input of these.

Left out: what it would take to shorten the step. Another path may be as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.simulator.events import OpRun, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule


class PathKind(StrEnum):
    """What a part of the path is spent on."""

    COMPUTE = "compute"
    COPY = "copy"
    QUEUEING = "queueing"
    OVERHEAD = "overhead"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """One part of the path.

    ``what`` is an op, the tensor that crosses, or the overhead in words;
    ``where`` the device, or ``source → target`` of a copy.
    """

    kind: PathKind
    what: str
    where: str
    start_ns: int
    end_ns: int

    @property
    def time_ns(self) -> int:
        """How long it takes."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class _Launch:
    run: OpRun
    start_ns: int
    end_ns: int


# What a device does: an op, launching one, sending (True) or receiving (False) a tensor.
_Work = OpRun | _Launch | tuple[Transfer, bool]


def critical_path(graph: OpGraph, schedule: Schedule, cluster: Cluster) -> tuple[PathStep, ...]:
    """Return the parts in order; they add up to the step time."""
    return _Walk(graph, schedule).back(cluster)


def time_by_kind(path: Iterable[PathStep]) -> dict[PathKind, int]:
    """Return the time that the path spends on each kind."""
    total = dict.fromkeys(PathKind, 0)
    for step in path:
        total[step.kind] += step.time_ns
    return total


class _Walk:
    def __init__(self, graph: OpGraph, schedule: Schedule) -> None:
        self._graph, self._schedule = graph, schedule
        self._run_of = {run.op: run for run in schedule.runs}
        self._copy_of = {(t.producer, t.port, t.target): t for t in schedule.transfers}
        # No two of them end at one moment on one device, since they take time.
        self._work_until: dict[tuple[str, int], _Work] = {}
        # Of devices that launch ahead, what runs; the work is that of their host's thread.
        self._kernel_until: dict[tuple[str, int], OpRun] = {}
        for run in schedule.runs:
            launch = _launch_of(run)
            until = self._work_until if launch is None else self._kernel_until
            if run.end_ns > run.start_ns:
                until[run.device, run.end_ns] = run
            if launch is not None and launch.end_ns > launch.start_ns:
                self._work_until[run.device, launch.end_ns] = launch
        for copy in schedule.transfers:
            if copy.send_work_ns:
                self._work_until[copy.source, copy.send_work[1]] = (copy, True)
            if copy.receive_work_ns:
                self._work_until[copy.target, copy.end_ns] = (copy, False)
        self._path: list[PathStep] = []

    def back(self, cluster: Cluster) -> tuple[PathStep, ...]:
        step_ns = self._schedule.step_ns
        late_ns = {device.name: cluster.remote_end_ns(device) for device in cluster.devices[1:]}
        last = max(
            self._schedule.runs,
            key=lambda run: run.end_ns + late_ns.get(run.device, 0),
            default=None,
        )
        if last is None:
            self._add(PathKind.OVERHEAD, "call of the step", "", 0, step_ns)
        else:
            self._add(PathKind.OVERHEAD, "end of the step", last.device, last.end_ns, step_ns)
        work: _Work | None = last
        while work is not None:
            work = self._before(work)
        return tuple(reversed(self._path))

    def _before(self, work: _Work) -> _Work | None:
        """Add what the work takes; return what it waited for, None at the beginning."""
        if isinstance(work, OpRun):
            self._add(PathKind.COMPUTE, work.op, work.device, work.start_ns, work.end_ns)
            launch = _launch_of(work)
            if launch is not None:
                is_kept = work.start_ns > launch.end_ns
                return self._kernel_until[work.device, work.start_ns] if is_kept else launch
            if work.start_ns > work.ready_ns:
                return self._until(work.device, work.start_ns)
            return self._last_input(work) if work.start_ns else None
        if isinstance(work, _Launch):
            run = work.run
            what = f"launch of {run.op}"
            self._add(PathKind.OVERHEAD, what, run.device, work.start_ns, work.end_ns)
            if work.start_ns > run.ready_ns:
                return self._until(run.device, work.start_ns)
            return self._last_input(run) if work.start_ns else None
        copy, is_sending = work
        if is_sending:
            self._add_copy(copy, copy.source, *copy.send_work)
        elif copy.held_ns:
            self._add_copy(copy, copy.target, *copy.receive_work)
            return self._until(copy.target, copy.receive_work[0])
        else:
            way = f"{copy.source} → {copy.target}"
            self._add_copy(copy, way, copy.start_ns, copy.end_ns)
            self._add(PathKind.QUEUEING, copy.tensor, way, copy.set_out_ns, copy.start_ns)
        producer = self._run_of[copy.producer]
        if copy.set_out_ns > producer.end_ns:
            return self._until(copy.source, copy.set_out_ns)
        return producer

    def _until(self, device: str, time_ns: int) -> _Work | None:
        """Return what the device did until then; if it did nothing, it began then."""
        work = self._work_until.get((device, time_ns))
        if work is None:
            self._add(PathKind.OVERHEAD, "start of the device", device, 0, time_ns)
        return work

    def _last_input(self, run: OpRun) -> _Work:
        for edge in self._graph.inputs_of(run.op):
            producer = self._run_of.get(edge.producer)
            if producer is None:
                continue
            if producer.device == run.device:
                told = _launch_of(producer) or producer
                if told.end_ns == run.ready_ns:
                    return told
                continue
            copy = self._copy_of[edge.producer, edge.port, run.device]
            if copy.end_ns == run.ready_ns:
                return copy, False
        raise ValueError(f"nothing made {run.op!r} ready at {run.ready_ns} ns")

    def _add_copy(self, copy: Transfer, where: str, start_ns: int, end_ns: int) -> None:
        self._add(PathKind.COPY, copy.tensor, where, start_ns, end_ns)

    def _add(self, kind: PathKind, what: str, where: str, start_ns: int, end_ns: int) -> None:
        if end_ns > start_ns:
            self._path.append(
                PathStep(kind=kind, what=what, where=where, start_ns=start_ns, end_ns=end_ns)
            )


def _launch_of(run: OpRun) -> _Launch | None:
    return None if run.launch is None else _Launch(run, *run.launch)
