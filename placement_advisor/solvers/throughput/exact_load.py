"""The least largest load, and a proof that none is smaller: integer programming with CP-SAT.

Model: one 0-1 variable says whether a group is in a *slot*: a device, or, for contiguous
placements, a stage of the pipeline, whose pool is chosen along with it. No group is in a stage
before one that it follows. A copy loads the sender if some reader is elsewhere, the receiver if the
producer is.
Devices of a pool are alike, so that groups of much work may be pinned: the first to the first
device, the second to the first two, and so on. Work is rounded down to whole units, so that the
solver's bound holds for the true problem; whoever takes its placement adds the loads up anew.

Source: the integer programs of Tarnawski et al. (2020), see `problem`; CP-SAT of OR-Tools,
https://developers.google.com/optimization/cp/cp_solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from placement_advisor.graph.digraph import topological_order
from placement_advisor.solvers.cp_sat import new_solver
from placement_advisor.solvers.effort import PROOF_TOLERANCE, Stop
from placement_advisor.solvers.throughput.loads import bundles, group_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.problem import Pool, Problem

# What rounding down may take from a load, of what counts as equal: the rest is for the solver's own
# and for the sums of floats.
_LOST = 0.25
# Several searches that take turns, which is the same on any number of cores. Judgement: one alone
# has four times the time, but one way to go.
_SEARCHES = 4
# A second of the solver's own deterministic clock takes about four of a core, on the graphs of
# tests/benchmarks/max_load.py. It varies; so units are no seconds, but the same everywhere.
UNITS_PER_SOLVER_SECOND = 4.0
# Models of more 0-1 variables take minutes to build and find nothing in time. Judgement: trades a
# proof for an answer.
MAX_LITERALS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBelow:
    """What was found below a limit: the device of each group, and a bound on any largest load.

    ``device_of`` is None where nothing was found, ``lower_bound`` the limit itself where nothing is
    there to be found.
    """

    device_of: tuple[str, ...] | None
    lower_bound: float
    stopped_by: Stop
    units: float


def literals(problem: Problem) -> int:
    """Return about how many 0-1 variables the model has."""
    return len(problem.devices) * (len(problem.groups) + 2 * len(bundles(problem)))


def load_below(
    problem: Problem,
    limit: float,
    effort: Effort,
    *,
    least: float = 0.0,
    follows: Sequence[tuple[int, int]] | None = None,
    hint: Sequence[str] | None = None,
) -> LoadBelow:
    """Look for a placement whose largest load is at most ``limit``, the smaller the better.

    ``least`` is known to bound it. With ``follows``, pairs of groups of which the second is in no
    stage before the first, it is contiguous. A ``hint`` is a placement within the limit.

    If the solver denies that there is what the hint says, it is not believed.

    Raises:
        RuntimeError: the solver refuses the model.
    """
    found = _LoadModel(problem, limit, least, follows, hint).solve(effort)
    if hint is not None and found.device_of is None and found.stopped_by is Stop.PROOF:
        return replace(found, lower_bound=least, stopped_by=Stop.SOLVER)
    return found


class _LoadModel:
    def __init__(
        self,
        problem: Problem,
        limit: float,
        least: float,
        follows: Sequence[tuple[int, int]] | None,
        hint: Sequence[str] | None,
    ) -> None:
        self._problem, self._limit = problem, limit
        # A load has a term for each group, and two for each bundle.
        terms = len(problem.groups) + 2 * len(bundles(problem))
        self._most = math.ceil(terms / (_LOST * PROOF_TOLERANCE))
        self._unit = limit / self._most or 1.0
        self._model = cp_model.CpModel()
        self._slots = range(len(problem.devices))
        self._in = [[self._bool() for _ in self._slots] for _ in problem.groups]
        for row in self._in:
            self._model.add_exactly_one(row)
        # The pools that a slot can be of, with the variable that says so.
        self._pools: list[list[tuple[Pool, cp_model.IntVar]]]
        if follows is None:
            sure = self._model.new_constant(1)
            self._pools = [[(pool, sure)] for pool in problem.pools for _ in pool.devices]
            hint = self._pin_heaviest(hint)
        else:
            self._pools = [[(pool, self._bool()) for pool in problem.pools] for _ in self._slots]
            self._choose_pools()
            self._order_stages(follows)
        self._largest = self._model.new_int_var(self._units(least), self._most, "")
        self._limit_slots()
        self._model.minimize(self._largest)
        if hint is not None:
            in_order = problem.devices if follows is None else _stages(problem, follows, hint)
            self._hint(hint, in_order)

    def solve(self, effort: Effort) -> LoadBelow:
        solver = new_solver()
        solver.parameters.random_seed = effort.seed
        solver.parameters.num_workers = _SEARCHES
        solver.parameters.interleave_search = True
        solver.parameters.max_deterministic_time = effort.units / UNITS_PER_SOLVER_SECOND
        if effort.time_limit_s is not None:
            solver.parameters.max_time_in_seconds = effort.time_limit_s
        status = solver.solve(self._model)
        if status == cp_model.MODEL_INVALID:
            raise RuntimeError(f"CP-SAT refuses the model: {self._model.validate()}")
        spent = solver.response_proto.deterministic_time * UNITS_PER_SOLVER_SECOND
        stopped_by = Stop.PROOF
        bound = max(0.0, solver.best_objective_bound) * self._unit
        device_of = None
        if status == cp_model.INFEASIBLE:
            bound = self._limit
        elif status != cp_model.OPTIMAL:
            # By the clock the solver may end some seconds before its limit.
            is_cut = effort.time_limit_s is not None and spent < effort.units
            stopped_by = Stop.CLOCK if is_cut else Stop.EFFORT
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            names = self._slot_names(solver)
            device_of = tuple(
                next(name for slot, name in zip(row, names, strict=True) if solver.value(slot))
                for row in self._in
            )
        return LoadBelow(
            device_of=device_of,
            lower_bound=bound,
            stopped_by=stopped_by,
            units=spent,
        )

    def _bool(self) -> cp_model.IntVar:
        return self._model.new_bool_var("")

    def _pin_heaviest(self, hint: Sequence[str] | None) -> Sequence[str] | None:
        """Pin groups of much work, which excludes mirror images; return the hint in that form."""
        least = [
            min((time for time in column if time is not None), default=0.0)
            for column in zip(*group_work(self._problem), strict=True)
        ]
        heaviest = sorted(range(len(least)), key=lambda group: -least[group])
        slots = iter(self._slots)
        for pool in self._problem.pools:
            for place, slot in enumerate(islice(slots, len(pool.devices))):
                for group in heaviest[:place]:
                    self._model.add(self._in[group][slot] == 0)
        if hint is None:
            return None
        free = {id(pool): iter(pool.devices) for pool in self._problem.pools}
        renamed: dict[str, str] = {}
        for group in heaviest:
            if hint[group] not in renamed:
                renamed[hint[group]] = next(free[id(self._problem.pool_of[hint[group]])])
        return [renamed[name] for name in hint]

    def _choose_pools(self) -> None:
        for choices in self._pools:
            self._model.add_exactly_one(chosen for _, chosen in choices)
        for column in zip(*self._pools, strict=True):
            devices = column[0][0].devices
            self._model.add(sum(chosen for _, chosen in column) == len(devices))

    def _order_stages(self, follows: Sequence[tuple[int, int]]) -> None:
        """Say by which stage each group has been, and that none is before one that it follows."""
        by = [[self._bool() for _ in self._slots] for _ in self._problem.groups]
        for inside, reached in zip(self._in, by, strict=True):
            self._model.add(inside[0] == reached[0])
            self._model.add(reached[-1] == 1)
            for stage, (before, now) in enumerate(pairwise(reached), start=1):
                self._model.add(inside[stage] == now - before)
        for first, second in follows:
            for earlier, later in zip(by[first], by[second], strict=True):
                self._model.add_implication(later, earlier)

    def _limit_slots(self) -> None:
        copies = self._copies()
        problem = self._problem
        size_bytes = [sum(problem.size_bytes[op] for op in group) for group in problem.groups]
        work = {id(pool): row for pool, row in zip(problem.pools, group_work(problem), strict=True)}
        for slot in self._slots:
            inside = [row[slot] for row in self._in]
            for pool, chosen in self._pools[slot]:
                load = []
                for time, here in zip(work[id(pool)], inside, strict=True):
                    if time is None or self._units(time) > self._most:
                        self._model.add_implication(chosen, here.Not())
                    else:
                        load.append(self._units(time) * here)
                if pool.pays_for_copies:
                    load += [units * copied for units, copied in copies[slot]]
                self._model.add(sum(load) <= self._largest).only_enforce_if(chosen)
                if pool.capacity_bytes is not None:
                    held = sum(each * here for each, here in zip(size_bytes, inside, strict=True))
                    self._model.add(held <= pool.capacity_bytes).only_enforce_if(chosen)

    def _copies(self) -> list[list[tuple[int, cp_model.IntVar]]]:
        """Return by slot what copies load it with, and the variables that say whether they do."""
        copies: list[list[tuple[int, cp_model.IntVar]]] = [[] for _ in self._slots]
        for bundle in bundles(self._problem):
            units = self._units(bundle.copy_time)
            home = self._in[bundle.home]
            for slot, choices in enumerate(self._pools):
                if not units or not any(pool.pays_for_copies for pool, _ in choices):
                    continue
                sends, receives = self._bool(), self._bool()
                for reader in bundle.readers:
                    there = self._in[reader][slot]
                    self._model.add_bool_or(home[slot].Not(), there, sends)
                    self._model.add_bool_or(home[slot], there.Not(), receives)
                copies[slot] += [(units, sends), (units, receives)]
        return copies

    def _units(self, time: float) -> int:
        """Return a time in whole units; what is longer than the limit just says so."""
        return math.floor(min(time / self._unit, self._most + 1))

    def _hint(self, device_of: Sequence[str], device_at: Sequence[str]) -> None:
        """Suggest a placement, given the device of each slot."""
        for row, device in zip(self._in, device_of, strict=True):
            for here, name in zip(row, device_at, strict=True):
                self._model.add_hint(here, name == device)
        for choices, name in zip(self._pools, device_at, strict=True):
            for pool, chosen in choices:
                if len(choices) > 1:
                    self._model.add_hint(chosen, name in pool.devices)

    def _slot_names(self, solver: cp_model.CpSolver) -> list[str]:
        """Return the device of each slot; stages take those of their pool in order."""
        left = {id(pool): iter(pool.devices) for pool in self._problem.pools}
        return [
            next(left[id(pool)])
            for choices in self._pools
            for pool, chosen in choices
            if solver.value(chosen)
        ]


def _stages(
    problem: Problem, follows: Sequence[tuple[int, int]], device_of: Sequence[str]
) -> list[str]:
    """Return the devices in the order of their stages, given that of each group."""
    number = {name: i for i, name in enumerate(problem.devices)}
    ends = {(number[device_of[first]], number[device_of[second]]) for first, second in follows}
    pairs = sorted(pair for pair in ends if pair[0] != pair[1])
    order = topological_order(len(number), [a for a, _ in pairs], [b for _, b in pairs])
    if order is None:
        raise ValueError("the hint is no pipeline")
    return [problem.devices[i] for i in order]
