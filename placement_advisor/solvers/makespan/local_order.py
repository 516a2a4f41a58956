"""Local search on a placement and an order of the ops: simulated annealing in the delay model.

Model: a solution is a device for each group and an order of all ops, inputs first; each op starts
as soon as its inputs and its device allow, so that orders and placements between them give every
timetable worth having. A step changes one or two of

- the device of a group: to that of a neighbour along an edge, or to any;
- the device of a connected part of what is on one device, since a single op of it cannot leave
  without paying for copies;
- the devices of two groups, against each other;
- the place of an op in the order.

Half of the steps begin at an op of the critical chain, because no other can shorten the makespan at
once. A worse solution is taken with a probability that falls from round to round. After each step
that is taken, the order is that of the starts. A placement that exceeds a memory is never taken.

Source: Kirkpatrick, Gelatt and Vecchi, Optimization by simulated annealing (1983),
https://doi.org/10.1126/science.220.4598.671; parts that move as in Swendsen and Wang (1987),
https://doi.org/10.1103/PhysRevLett.58.86
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.solvers.makespan.annealing import anneal
from placement_advisor.solvers.makespan.delay_arrays import DelayArrays
from placement_advisor.solvers.makespan.delays import Flow, Timetable, by_start, in_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.solvers.problem import Problem

# Ops that are decoded per unit of effort, a second of one core: measured on graphs of 30 ops, see
# "lists and local search" of tests/benchmarks/makespan.py.
_OPS_PER_UNIT = 25_000_000
# Restarts: half as many as there are seeds more than once finds what one long run misses. This and
# the heats were set by hand; what they reach is measured by tests/benchmarks/makespan.py.
_ROUNDS = 6
# How much worse than the best a step may be at first and at last, in proportion, to be taken one
# time in three. Judgement: hotter forgets the start, colder stays at the first dead end.
_HOT, _COLD = 0.04, 0.0005


def local_order(
    problem: Problem, starts: Sequence[Timetable], *, units: float, seed: int
) -> Timetable:
    """Return the best timetable found from the given ones, the best of which is not beaten by it.

    ``units`` is how much work to do, about a second of one core each.
    """
    flow = Flow.of(problem)
    ranked = sorted(starts, key=lambda timetable: timetable.makespan)
    best = ranked[0]
    steps = int(units * _OPS_PER_UNIT / max(1, len(problem.ops)) / _ROUNDS)
    if not steps or len(problem.devices) < 2 or best.makespan == 0:  # noqa: PLR2004 - one has no choice
        return best
    number = {device: at for at, device in enumerate(problem.devices)}
    arrays = DelayArrays.of(problem, flow)
    for turn in range(_ROUNDS):
        start = ranked[turn % len(ranked)] if turn < len(ranked) else best
        device_of = np.array(
            [number[start.device_of[group[0]]] for group in problem.groups], np.int64
        )
        order = np.array(by_start(start.start, start.end, flow), np.int64)
        anneal(
            device_of,
            order,
            arrays.work,
            arrays.copy_time,
            arrays.pool_of_device,
            arrays.pays,
            arrays.capacity_bytes,
            arrays.group_of,
            arrays.group_bytes,
            arrays.member_start,
            arrays.members,
            arrays.feeder_start,
            arrays.feeders,
            arrays.consumer_start,
            arrays.consumers,
            seed * _ROUNDS + turn,
            steps,
            _HOT * best.makespan,
            _COLD * best.makespan,
        )
        names = [problem.devices[device_of[group]] for group in problem.group_of]
        found = in_order(problem, names, order.tolist())
        if found.makespan < best.makespan:
            best = found
    return best
