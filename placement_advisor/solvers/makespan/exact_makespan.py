"""A makespan below a limit, or a proof that there is none: constraint programming with CP-SAT.

Model: a start for each op, a device for each cluster of ops that have to share one to keep the
limit (`windows`), and for each two clusters with an edge between them a 0-1 variable that says
whether it costs nothing. Ops of a device do not overlap, and all together run no more at a time
than there are devices. Of devices that are alike, the first has the first cluster, the second the
first that is not on the first, and so on.

Times are rounded down to whole units, so that the solver's bound holds for the true problem; who
takes its placement works out the starts anew. Whole times stay as they are.

Source: CP-SAT of OR-Tools, https://developers.google.com/optimization/cp/cp_solver, which learns
from conflicts as in Ohrimenko, Stuckey and Codish, Propagation via lazy clause generation (2009),
https://doi.org/10.1007/s10601-008-9064-x
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from placement_advisor.solvers.cp_sat import new_solver
from placement_advisor.solvers.makespan.delays import Flow, by_start, can_copy_freely
from placement_advisor.solvers.makespan.op_windows import Windows, surely_together, windows_below
from placement_advisor.solvers.makespan.scale import Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.problem import Pool, Problem

    Floats = NDArray[np.float64]

# CP-SAT's deterministic time per second of one core, measured on graphs of 20 and 30 ops: seconds
# "of its core" of tests/benchmarks/makespan.py.
_DETERMINISTIC_TIME_PER_UNIT = 0.14


@dataclass(frozen=True, slots=True, kw_only=True)
class MakespanBelow:
    """What was found below a limit.

    ``device_of`` and ``order`` of the ops are None where nothing was found; ``lower_bound`` is the
    limit itself, to within the tolerance, where nothing is there to be found. ``is_finished`` says
    whether that, or the best, is proved; ``is_out_of_time`` whether the clock ended the search.
    """

    device_of: tuple[str, ...] | None = None
    order: tuple[int, ...] | None = None
    lower_bound: float
    is_finished: bool = True
    is_out_of_time: bool = False


def makespan_below(
    problem: Problem, limit: float, effort: Effort, *, hint: Sequence[str] | None = None
) -> MakespanBelow:
    """Look for a timetable that ends before ``limit``, the sooner the better.

    ``hint`` is a placement by op that is thought to be good. ``limit`` is above 0.
    """
    flow = Flow.of(problem)
    scale = Scale.of(problem, limit)
    work = np.array([[scale.units(time) for time in pool.work] for pool in problem.pools])
    copy_time = np.array([scale.units(time) for time in problem.copy_time])
    least_copy_time = copy_time * (not can_copy_freely(problem))
    found = windows_below(
        work.min(axis=0), least_copy_time, flow, surely_together(problem), scale.last
    )
    if found is None:
        return MakespanBelow(lower_bound=scale.proof)
    return _MakespanModel(problem, flow, work, copy_time, found, scale, hint).solve(effort)


class _MakespanModel:
    def __init__(
        self,
        problem: Problem,
        flow: Flow,
        work: Floats,
        copy_time: Floats,
        within: Windows,
        scale: Scale,
        hint: Sequence[str] | None,
    ) -> None:
        self._problem, self._flow, self._scale = problem, flow, scale
        self._work, self._within = work, within
        self._copy_time = np.minimum(copy_time, scale.last + 1)
        self._model = cp_model.CpModel()
        first = within.together.argmax(axis=1).tolist()
        clusters: dict[int, list[int]] = defaultdict(list)
        for op in flow.order:
            clusters[first[op]].append(op)
        self._clusters = list(clusters.values())
        number = {op: at for at, cluster in enumerate(self._clusters) for op in cluster}
        self._cluster_of = [number[op] for op in range(len(first))]
        # More devices than clusters are of no use.
        self._slots = [
            (pool, device)
            for pool, alike in enumerate(problem.pools)
            for device in alike.devices[: len(self._clusters)]
        ]
        self._on = [self._choices(cluster) for cluster in self._clusters]
        self._start, self._end = self._times()
        self._keep_apart()
        self._keep_memory()
        self._wait_for_inputs()
        self._break_symmetry()
        self._makespan = self._model.new_int_var(0, scale.last, "")
        for op, tail in enumerate(within.tail):
            self._model.add(self._end[op] + int(tail) <= self._makespan)
        self._model.minimize(self._makespan)
        if hint is not None:
            self._hint(hint)

    def solve(self, effort: Effort) -> MakespanBelow:
        solver = new_solver()
        solver.parameters.random_seed = effort.seed
        # One search that learns from its conflicts proved 15 hard cases in 5 s of CPU time, four
        # that take turns in 45 s. Linear relaxations of orders say little, and cost time.
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 0
        solver.parameters.max_deterministic_time = effort.units * _DETERMINISTIC_TIME_PER_UNIT
        if effort.time_limit_s is not None:
            solver.parameters.max_time_in_seconds = max(0.0, effort.time_limit_s)
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return MakespanBelow(lower_bound=self._scale.proof)
        bound = max(0.0, solver.best_objective_bound) * self._scale.unit
        # What ended before its units were spent was ended by the clock.
        spent = solver.response_proto.deterministic_time
        is_out_of_time = (
            effort.time_limit_s is not None and spent < solver.parameters.max_deterministic_time
        )
        if status == cp_model.UNKNOWN:
            return MakespanBelow(
                lower_bound=bound, is_finished=False, is_out_of_time=is_out_of_time
            )
        device_of = [
            next(self._slots[slot][1] for slot, here in on.items() if solver.value(here))
            for on in self._on
        ]
        start = [float(solver.value(each)) for each in self._start]
        end = [float(solver.value(each)) for each in self._end]
        return MakespanBelow(
            device_of=tuple(device_of[cluster] for cluster in self._cluster_of),
            order=tuple(by_start(start, end, self._flow)),
            lower_bound=bound,
            is_finished=status == cp_model.OPTIMAL,
            is_out_of_time=is_out_of_time,
        )

    def _choices(self, cluster: Sequence[int]) -> dict[int, cp_model.IntVar]:
        """Return by slot the variable that says whether a cluster is there."""
        size_bytes = sum(self._problem.size_bytes[op] for op in cluster)
        on = {}
        for slot, (pool, _) in enumerate(self._slots):
            capacity_bytes = self._problem.pools[pool].capacity_bytes
            fits = capacity_bytes is None or size_bytes <= capacity_bytes
            # What takes longer than any makespan looked for may be too large a number as well.
            if fits and (self._work[pool, cluster] <= self._scale.last).all():
                on[slot] = self._model.new_bool_var("")
        self._model.add_exactly_one(on.values())
        return on

    def _times(self) -> tuple[list[cp_model.IntVar], list[cp_model.LinearExpr]]:
        """Return the start and the end of each op."""
        starts, ends = [], []
        least = self._work.min(axis=0)
        latest = self._scale.last - self._within.tail - least
        for op, (head, last) in enumerate(zip(self._within.head, latest, strict=True)):
            start = self._model.new_int_var(int(head), int(last), "")
            more = [
                (int(self._work[self._slots[slot][0], op] - least[op]), here)
                for slot, here in self._on[self._cluster_of[op]].items()
            ]
            starts.append(start)
            ends.append(start + int(least[op]) + sum(time * here for time, here in more if time))
        return starts, ends

    def _keep_apart(self) -> None:
        """Let no device run two ops at a time, nor all together more than they are."""
        inside: dict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        for cluster, on in zip(self._clusters, self._on, strict=True):
            for slot, here in on.items():
                inside[slot] += [self._interval(op, slot, here) for op in cluster]
        for intervals in inside.values():
            self._model.add_no_overlap(intervals)
        least = [
            self._model.new_fixed_size_interval_var(start, int(time), "")
            for start, time in zip(self._start, self._work.min(axis=0), strict=True)
        ]
        for cluster in self._clusters:
            self._model.add_no_overlap([least[op] for op in cluster])
        self._model.add_cumulative(least, [1] * len(least), len(self._slots))

    def _interval(self, op: int, slot: int, here: cp_model.IntVar) -> cp_model.IntervalVar:
        time = int(self._work[self._slots[slot][0], op])
        return self._model.new_optional_fixed_size_interval_var(self._start[op], time, here, "")

    def _keep_memory(self) -> None:
        sizes = [sum(self._problem.size_bytes[op] for op in cluster) for cluster in self._clusters]
        for slot, (pool, _) in enumerate(self._slots):
            capacity_bytes = self._problem.pools[pool].capacity_bytes
            if capacity_bytes is not None:
                inside = [
                    size * on[slot] for size, on in zip(sizes, self._on, strict=True) if slot in on
                ]
                self._model.add(sum(inside) <= capacity_bytes)

    def _wait_for_inputs(self) -> None:
        """Let ops start when their inputs are there, later if these cross devices."""
        near: dict[tuple[int, int], cp_model.IntVar] = {}
        for op, consumers in enumerate(self._flow.consumers):
            for consumer in consumers:
                self._model.add(self._start[consumer] >= self._end[op])
                pair = self._cluster_of[op], self._cluster_of[consumer]
                if pair[0] == pair[1] or not self._copy_time[op]:
                    continue
                pair = min(pair), max(pair)
                if pair not in near:
                    near[pair] = self._near(*pair)
                arrival = self._end[op] + int(self._copy_time[op])
                self._model.add(self._start[consumer] >= arrival).only_enforce_if(near[pair].Not())

    def _near(self, one: int, other: int) -> cp_model.IntVar:
        """Return the variable that says whether two clusters pay for no copies between them."""
        near = self._model.new_bool_var("")
        for this, that in ((self._on[one], self._on[other]), (self._on[other], self._on[one])):
            for slot, here in this.items():
                free = [that[place] for place in self._near_slots(slot) if place in that]
                self._model.add_bool_or([near.Not(), here.Not(), *free])
                for there in free:
                    self._model.add_bool_or([near, here.Not(), there.Not()])
        return near

    def _near_slots(self, slot: int) -> Iterable[int]:
        """Return the slots that tensors come to from this one for nothing."""
        if self._pool(slot).pays_for_copies:
            return (slot,)
        return [place for place in range(len(self._slots)) if not self._pool(place).pays_for_copies]

    def _pool(self, slot: int) -> Pool:
        return self._problem.pools[self._slots[slot][0]]

    def _break_symmetry(self) -> None:
        """Of devices that are alike, let one have its first cluster after the one before it."""
        for slot in range(1, len(self._slots)):
            if self._slots[slot][0] != self._slots[slot - 1][0]:
                continue
            before: list[cp_model.IntVar] = []
            for on in self._on:
                if slot in on:
                    self._model.add_bool_or([on[slot].Not(), *before])
                    before.append(on[slot - 1])

    def _hint(self, device_of: Sequence[str]) -> None:
        """Suggest a placement, its devices renamed so that they come in order of first use."""
        left = defaultdict(list)
        for slot, (pool, _) in reversed(list(enumerate(self._slots))):
            left[pool].append(slot)
        slot_of: dict[str, int] = {}
        for cluster, on in zip(self._clusters, self._on, strict=True):
            device = device_of[cluster[0]]
            if device not in slot_of:
                pool = self._problem.pools.index(self._problem.pool_of[device])
                slot_of[device] = left[pool].pop()
            for slot, here in on.items():
                self._model.add_hint(here, slot == slot_of[device])
