"""What no placement can beat in the delay model, without any search, and why.

Each bound holds for every timetable. An op counts with its least time on any device; only the work
over uneven pools weighs them against each other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from ortools.linear_solver.python import model_builder

from placement_advisor.solvers.makespan.delays import Flow, can_copy_freely, whole_unit
from placement_advisor.solvers.makespan.op_windows import surely_together, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.solvers.problem import Problem

    Floats = NDArray[np.float64]

# What is known of pairs of ops takes memory and time with the square of their number. Judgement:
# tens of MB; without it the bound is weaker, never wrong.
_MAX_OPS_IN_PAIRS = 1_000
# Intervals end at times where some op has to start or to be over; so many of these, evenly taken.
# Judgement: trades a weaker bound for time, which grows with their square.
_MAX_INTERVAL_ENDS = 64

# What sums of floating point numbers may be off by, in proportion, before they are rounded up.
_ROUNDING = 1e-12


def delay_bounds(problem: Problem) -> tuple[float, ...]:
    """Return makespans that no placement can beat, the best bound first."""
    flow = Flow.of(problem)
    work = _least_work(problem)
    bounds = [
        _critical_path(work, flow),
        _work_over_devices(problem),
        _interval_bound(work, flow, len(problem.devices)),
    ]
    if 0 < len(work) <= _MAX_OPS_IN_PAIRS:
        copy_time = np.array(problem.copy_time) * (not can_copy_freely(problem))
        found = windows(work, copy_time, flow, surely_together(problem))
        # The longest chain, whose inputs either cross devices or are made one after the other.
        bounds.append(float((found.head + work + found.tail).max()))
    unit = whole_unit(problem)
    if unit is not None:
        bounds = [_rounded_up(bound, unit) for bound in bounds]
    return tuple(sorted(bounds, reverse=True))


def _rounded_up(value: float, unit: float) -> float:
    """Return the next whole multiple, as every makespan is one."""
    return math.ceil(value / unit * (1 - _ROUNDING)) * unit if math.isfinite(value) else value


def _least_work(problem: Problem) -> Floats:
    """Return by op the time on the device that is fastest for it, infinite if none can run it."""
    times = [[np.inf if time is None else time for time in pool.work] for pool in problem.pools]
    return np.asarray(np.array(times, np.float64).min(axis=0))


def _critical_path(work: Floats, flow: Flow) -> float:
    return float(max(_heads(work, flow) + work, default=0.0))


def _heads(work: Floats, flow: Flow) -> Floats:
    head = np.zeros(len(work))
    for op in flow.order:
        head[op] = max((head[feeder] + work[feeder] for feeder in flow.feeders[op]), default=0.0)
    return head


def _tails(work: Floats, flow: Flow) -> Floats:
    tail = np.zeros(len(work))
    for op in reversed(flow.order):
        tail[op] = max((tail[reader] + work[reader] for reader in flow.consumers[op]), default=0.0)
    return tail


def _work_over_devices(problem: Problem) -> float:
    """Return the time that all devices need together, groups being divided at will.

    The linear program's dual has a price for each pool. Whatever the prices, no time is less than
    the sum over the groups of the least price of their work: so this holds even if the solver errs.
    """
    work = np.array(
        [
            [
                sum(np.inf if (t := pool.work[op]) is None else t for op in group)
                for pool in problem.pools
            ]
            for group in problem.groups
        ],
        np.float64,
    ).reshape(len(problem.groups), len(problem.pools))
    counts = np.array([len(pool.devices) for pool in problem.pools], np.float64)
    if not np.isfinite(work).any(axis=1).all():
        return float("inf")
    prices = np.ones(1) if len(counts) == 1 else _prices(work, counts)
    total = (prices * counts).sum()
    if total <= 0:
        return 0.0
    # An infinite time at no price is still impossible.
    priced = np.where(np.isfinite(work), np.where(np.isfinite(work), work, 0) * prices, np.inf)
    return float(priced.min(axis=1).sum() / total)


def _prices(work: Floats, counts: Floats) -> Floats:
    """Return the dual prices of the pools: how dear a unit of their time is.

    They do not hang on the unit of time; the solver's tolerances do.
    """
    unit = work[np.isfinite(work)].max() or 1.0
    model = model_builder.Model()
    time = model.new_num_var(0.0, float("inf"), "")
    loads: list[list[model_builder.LinearExpr]] = [[] for _ in counts]
    for row in work:
        shares = []
        for pool, units in enumerate(row):
            if np.isfinite(units):
                share = model.new_num_var(0.0, 1.0, "")
                shares.append(share)
                loads[pool].append(float(units / unit) * share)
        model.add(model_builder.LinearExpr.sum(shares) == 1.0)
    rows = [
        model.add(model_builder.LinearExpr.sum([*load, -float(count) * time]) <= 0.0)
        for load, count in zip(loads, counts, strict=True)
    ]
    model.minimize(time)
    solver = model_builder.Solver("glop")
    if solver.solve(model) != model_builder.SolveStatus.OPTIMAL:
        return np.ones(len(counts))
    return np.array([max(0.0, -solver.dual_value(row)) for row in rows])


def _interval_bound(work: Floats, flow: Flow, devices: int) -> float:
    """Return the critical path, lengthened by what does not fit into some interval of it.

    Source: Fernandez and Bussell, Bounds on the number of processors and time for multiprocessor
    optimal schedules (1973), https://doi.org/10.1109/TC.1973.5009153
    """
    if not len(work) or not np.isfinite(work).all():
        return 0.0
    head, tail = _heads(work, flow), _tails(work, flow)
    length = float((head + work + tail).max())
    latest = length - tail - work
    ends = np.unique(np.concatenate([head, latest, head + work, latest + work]))
    if len(ends) > _MAX_INTERVAL_ENDS:
        ends = ends[np.linspace(0, len(ends) - 1, _MAX_INTERVAL_ENDS).astype(int)]
    excess = 0.0
    for first in range(len(ends) - 1):
        since, until = ends[first], ends[first + 1 :, None]
        # Of an op as early, and as late, as it can be: what lies within, the lesser of both.
        early = np.minimum(head + work, until) - np.maximum(head, since)
        late = np.minimum(latest + work, until) - np.maximum(latest, since)
        inside = np.clip(np.minimum(early, late), 0.0, None).sum(axis=1)
        excess = max(excess, float((inside / devices - (until[:, 0] - since)).max()))
    return length + excess
