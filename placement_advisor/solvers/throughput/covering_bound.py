"""A bound on the largest load: what a device can hold under a limit, however the rest is placed.

A device's load follows from its own groups alone, also what it sends and gets. So give each group a
*price*, and ask for the dearest set of groups that loads a device by no more than a limit. If those
sets, one for each device, are worth less than all groups together, no placement keeps to the limit.
The prices that show it are sought as in column generation: a linear program prices the groups
against the sets met so far, then integer programming looks for a set that is worth more. Unlike in
a program for all devices at once, in which a third of each group on each of three devices needs no
copies, every device pays for its own.

Work and copies are rounded down and prices are whole, so that what is shown holds.

Source: Dantzig and Wolfe, Decomposition principle for linear programs (1960),
doi:10.1287/opre.8.1.101.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ortools.linear_solver.python import model_builder
from ortools.sat.python import cp_model

from placement_advisor.solvers.cp_sat import new_solver
from placement_advisor.solvers.throughput.exact_load import UNITS_PER_SOLVER_SECOND
from placement_advisor.solvers.throughput.loads import bundles, group_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.solvers.problem import Pool, Problem
    from placement_advisor.solvers.throughput.loads import Bundle

# None of what follows makes a bound wrong, only weak or late: rounding is towards the safe side.
# Set by hand, measured as a whole by tests/benchmarks/load_effort.py.

# Of the limit, and of what all groups are worth. Judgement: far finer than ``_FINEST``.
_LOAD_UNITS = 10**8
_PRICE_UNITS = 10**7
# Of the solver's deterministic clock, for one set; a bound on its worth will do. Judgement: trades
# the dearest set for more rounds of prices.
_SECONDS_PER_SET = 0.5
_MOST_ROUNDS = 200
# Prices change by half, as the newest are often far off. Judgement, as is customary in column
# generation (smoothing).
_STEP = 0.5
# In proportion: limits closer to each other are not told apart. Judgement: what is left is better
# spent on placements.
_FINEST = 1e-3
_JUST_BELOW = 1 - 1e-7
# In proportion to the load: where the second limit lies, and how much further each next one, until
# one is excluded. Judgement: what is known is mostly near the best, so the bound is near it too.
_FIRST_BELOW, _FURTHER = 0.01, 4.0
MAX_GROUPS = 2_000


@dataclass(slots=True)
class _Spending:
    """What is left of the units, and of the time."""

    units: float
    is_over: Callable[[], bool]
    spent: float = field(default=0.0)

    def is_used_up(self) -> bool:
        return self.spent >= self.units or self.is_over()


def covering_bound(
    problem: Problem, low: float, high: float, *, units: float, is_over: Callable[[], bool]
) -> tuple[float, float]:
    """Return a bound from ``low``, which is one, to ``high``, a load that is known; and the units.

    The search ends with the units or when ``is_over`` says so.
    """
    prices = _first_prices(problem)
    limit = high * _JUST_BELOW
    below = _FIRST_BELOW
    spent = 0.0
    while limit > low and spent < units and not is_over():
        spending = _Spending(units=(units - spent) / 2, is_over=is_over)
        shown, prices = _excludes(problem, limit, prices, spending)
        spent += spending.spent
        if shown:
            low = limit
        else:
            high = limit
        if high - low < _FINEST * high:
            break
        limit = max((low + high) / 2, high * (1 - below))
        below *= _FURTHER
    return low, spent


def _first_prices(problem: Problem) -> list[float]:
    """Return the least work of each group, as a share of all."""
    least = [
        min((time for time in column if time is not None), default=0.0)
        for column in zip(*group_work(problem), strict=True)
    ]
    total = math.fsum(least) or 1.0
    return [time / total for time in least]


def _excludes(
    problem: Problem, limit: float, prices: list[float], spending: _Spending
) -> tuple[bool, list[float]]:
    """Return whether prices are found that exclude the limit, and the best that were met."""
    finders = [_Finder(problem, pool, work, limit) for pool, work in _pools(problem)]
    sets: list[list[tuple[int, ...]]] = [[] for _ in problem.pools]
    best, best_share = prices, math.inf
    for _ in range(_MOST_ROUNDS):
        if spending.is_used_up():
            break
        whole = [round(price * _PRICE_UNITS) for price in prices]
        worth = 0
        for finder, met, pool in zip(finders, sets, problem.pools, strict=True):
            most, found = finder.dearest(whole, spending)
            worth += most * len(pool.devices)
            if found:
                met.append(found)
        if worth < sum(whole):
            return True, prices
        share = worth / max(1, sum(whole))
        if share < best_share:
            best, best_share = prices, share
        newest = _priced_against(problem, sets)
        if newest is None:
            break
        prices = [old + _STEP * (new - old) for old, new in zip(best, newest, strict=True)]
    return False, best


def _pools(problem: Problem) -> list[tuple[Pool, list[float | None]]]:
    return list(zip(problem.pools, group_work(problem), strict=True))


def _priced_against(
    problem: Problem, sets: Sequence[Sequence[tuple[int, ...]]]
) -> list[float] | None:
    """Return the prices at which the sets are worth least; None if that is not less than all."""
    model = model_builder.Model()
    price = [model.new_num_var(0.0, 1.0, "") for _ in problem.groups]
    dearest = [model.new_num_var(0.0, 1.0, "") for _ in problem.pools]
    model.add(sum(price) == 1.0)
    for met, most in zip(sets, dearest, strict=True):
        for groups in met:
            model.add(sum(price[group] for group in groups) <= most)
    devices = [len(pool.devices) for pool in problem.pools]
    model.minimize(sum(n * most for n, most in zip(devices, dearest, strict=True)))
    solver = model_builder.Solver("GLOP")
    if solver.solve(model) != model_builder.SolveStatus.OPTIMAL or solver.objective_value >= 1.0:
        return None
    return [max(0.0, solver.value(each)) for each in price]


class _Finder:
    """Finds the dearest set of groups that keeps a device of a pool within the limit."""

    def __init__(
        self, problem: Problem, pool: Pool, work: Sequence[float | None], limit: float
    ) -> None:
        self._unit = limit / _LOAD_UNITS
        self._model = cp_model.CpModel()
        self._in = [self._model.new_bool_var("") for _ in problem.groups]
        load: list[cp_model.LinearExprT] = []
        for time, here in zip(work, self._in, strict=True):
            if time is None or self._units(time) > _LOAD_UNITS:
                self._model.add(here == 0)
            else:
                load.append(self._units(time) * here)
        if pool.pays_for_copies:
            for bundle in bundles(problem):
                load += self._copies(bundle)
        self._model.add(sum(load) <= _LOAD_UNITS)
        if pool.capacity_bytes is not None:
            sizes = [sum(problem.size_bytes[op] for op in group) for group in problem.groups]
            held = sum(size * here for size, here in zip(sizes, self._in, strict=True))
            self._model.add(held <= pool.capacity_bytes)

    def dearest(self, prices: Sequence[int], spending: _Spending) -> tuple[int, tuple[int, ...]]:
        """Return what no set is worth more than, and the dearest that was found."""
        self._model.maximize(sum(p * here for p, here in zip(prices, self._in, strict=True)))
        solver = new_solver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = _SECONDS_PER_SET
        status = solver.solve(self._model)
        spending.spent += solver.response_proto.deterministic_time * UNITS_PER_SOLVER_SECOND
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            # Nothing was found in time; or the solver denies the empty set, and is not believed.
            return sum(prices), ()
        found = tuple(group for group, here in enumerate(self._in) if solver.value(here))
        return math.floor(solver.best_objective_bound + 0.5), found

    def _copies(self, bundle: Bundle) -> list[cp_model.LinearExprT]:
        """Return what a bundle loads the device with if it is sent, and if it is received."""
        units = self._units(bundle.copy_time)
        home = self._in[bundle.home]
        sends, receives = self._model.new_bool_var(""), self._model.new_bool_var("")
        for reader in bundle.readers:
            self._model.add_bool_or(home.Not(), self._in[reader], sends)
            self._model.add_bool_or(home, self._in[reader].Not(), receives)
        return [units * sends, units * receives]

    def _units(self, time: float) -> int:
        """Return a time in whole units; what is longer than the limit just says so."""
        return math.floor(min(time / self._unit, _LOAD_UNITS + 1))
