"""The placement and timetable of least makespan, with a bound for any, in the delay model.

First what takes milliseconds: one device, three list placements, a local search from the best of
them. Then constraint programming looks for better ones, and proves how good any can be. Of equally
good placements, one device comes first: that it is best is an answer of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.solvers.effort import PROOF_TOLERANCE, Stop
from placement_advisor.solvers.makespan.delay_bounds import delay_bounds
from placement_advisor.solvers.makespan.delays import Flow, Timetable, in_order
from placement_advisor.solvers.makespan.etf import etf
from placement_advisor.solvers.makespan.exact_makespan import makespan_below
from placement_advisor.solvers.makespan.heft import heft
from placement_advisor.solvers.makespan.local_order import local_order
from placement_advisor.solvers.makespan.msct import msct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.solvers.effort import Effort
    from placement_advisor.solvers.problem import Problem

# Of the effort, if something exact follows. What the local search gains, it gains early: per pair
# of ops, about as many units as bring graphs of 30 ops to within 0.1 % of the best known
# (tests/benchmarks/makespan.py).
_LOCAL_SHARE = 0.1
_LOCAL_UNITS_PER_PAIR = 1e-4
# Ops times devices, above which the exact search's model alone takes seconds and proves nothing.
# Judgement: trades a proof in rare easy cases for an answer in time.
_MAX_CHOICES = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespan:
    """The device and the start of each op, the makespan, and a bound on that of any placement.

    ``device_of``, ``start`` and ``objective_value`` are None where nothing was found; then
    ``lower_bound`` is infinite if nothing is possible.
    """

    device_of: tuple[str, ...] | None
    start: tuple[float, ...] | None
    objective_value: float | None
    lower_bound: float
    stopped_by: Stop

    @property
    def is_proven(self) -> bool:
        """Whether no placement is better by a millionth, or none is possible."""
        return self.stopped_by is Stop.PROOF


def least_makespan(problem: Problem, effort: Effort) -> Makespan:
    """Return the best timetable that was found within the effort."""
    if not problem.ops:
        return _result(Timetable(device_of=(), start=(), end=()), 0.0, Stop.PROOF)
    bound = delay_bounds(problem)[0]
    if math.isinf(bound):
        return _result(None, bound, Stop.PROOF)
    best = min(list_timetables(problem), key=lambda found: found.makespan, default=None)
    if _is_optimal(best, bound):
        return _result(best, bound, Stop.PROOF)
    is_small = len(problem.ops) * len(problem.devices) <= _MAX_CHOICES
    units = effort.units if effort.time_limit_s is None else min(effort.units, effort.time_limit_s)
    if is_small:
        units = min(_LOCAL_SHARE * units, _LOCAL_UNITS_PER_PAIR * len(problem.ops) ** 2)
    if best is not None:
        best = fast_timetable(problem, units=units, seed=effort.seed)
    if _is_optimal(best, bound):
        return _result(best, bound, Stop.PROOF)
    if not is_small:
        return _result(best, bound, Stop.SIZE)
    limit = _longest(problem) if best is None else best.makespan
    left = replace(
        effort,
        units=effort.units - units,
        time_limit_s=None if effort.time_limit_s is None else effort.time_limit_s - units,
    )
    found = makespan_below(problem, limit, left, hint=None if best is None else best.device_of)
    known, bound = bound, max(bound, found.lower_bound)
    if found.device_of is not None and found.order is not None:
        better = in_order(problem, found.device_of, found.order)
        if best is None or better.makespan < best.makespan:
            best = better
    if best is None and found.is_finished:
        return _result(None, math.inf, Stop.PROOF)
    if _is_optimal(best, bound):
        return _result(best, bound, Stop.PROOF)
    if found.is_finished:
        # Its timetable takes longer than it says.
        return _result(best, known, Stop.SOLVER)
    return _result(best, bound, Stop.CLOCK if found.is_out_of_time else Stop.EFFORT)


def fast_timetable(problem: Problem, *, units: float, seed: int) -> Timetable | None:
    """Return the best of one device, the list placements and a local search from them.

    None if no list placement fits into memory.
    """
    starts = list(list_timetables(problem))
    return local_order(problem, starts, units=units, seed=seed) if starts else None


def list_timetables(problem: Problem) -> Iterable[Timetable]:
    """Yield one device of each pool, then the list placements, as far as they fit into memory."""
    order = Flow.of(problem).order
    total_bytes = sum(problem.size_bytes)
    for pool in problem.pools:
        fits = pool.capacity_bytes is None or total_bytes <= pool.capacity_bytes
        if fits and pool.devices and None not in pool.work:
            yield in_order(problem, pool.devices[:1] * len(problem.ops), order)
    for place in (heft, etf, msct):
        found = place(problem)
        if found is not None:
            yield found


def _longest(problem: Problem) -> float:
    """Return what ends after any timetable that has no idle time to spare."""
    work = sum(max(filter(None, times), default=0.0) for times in _times(problem))
    return 2 * (work + sum(problem.copy_time)) or 1.0


def _times(problem: Problem) -> Iterable[tuple[float | None, ...]]:
    return zip(*(pool.work for pool in problem.pools), strict=True)


def _is_optimal(found: Timetable | None, bound: float) -> bool:
    return found is not None and found.makespan <= bound * (1 + PROOF_TOLERANCE)


def _result(found: Timetable | None, bound: float, stopped_by: Stop) -> Makespan:
    return Makespan(
        device_of=None if found is None else found.device_of,
        start=None if found is None else found.start,
        objective_value=None if found is None else found.makespan,
        lower_bound=bound if found is None else min(bound, found.makespan),
        stopped_by=stopped_by,
    )
