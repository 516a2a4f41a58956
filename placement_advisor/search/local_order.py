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
from numba import njit

from placement_advisor.search.delay_arrays import DelayArrays
from placement_advisor.search.delays import Flow, Timetable, in_order, start_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from placement_advisor.search.problem import Problem

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

# Ops that are decoded per unit of effort, a second of one core: measured on graphs of 30 ops.
_OPS_PER_UNIT = 25_000_000
# Restarts: half as many as there are seeds more than once finds what one long run misses.
_ROUNDS = 6
# How much worse than the best a step may be at first and at last, in proportion, to be taken one
# time in three.
_HOT, _COLD = 0.04, 0.0005
# Which steps are tried how often: a device and a place in the order, a device alone, that of a
# connected part, two devices against each other; the rest shifts an op in the order.
_BOTH, _DEVICE, _PART, _SWAP = 0.2, 0.35, 0.6, 0.7
# Steps that begin on the critical chain, and moves that go along an edge.
_FROM_CRITICAL, _ALONG_EDGE = 0.5, 0.6


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
        order = np.array(start_order(start, flow), np.int64)
        _anneal(
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


@njit(cache=True, nogil=True)
def _anneal(
    device_of: Ints,
    order: Ints,
    work: Floats,
    copy_time: Floats,
    pool_of_device: Ints,
    pays: NDArray[np.bool_],
    capacity_bytes: Ints,
    group_of: Ints,
    group_bytes: Ints,
    member_start: Ints,
    members: Ints,
    feeder_start: Ints,
    feeders: Ints,
    consumer_start: Ints,
    consumers: Ints,
    seed: int,
    steps: int,
    hot: float,
    cold: float,
) -> None:
    """Better a solution in place.

    One function on purpose, see `simulate.kernel`.
    """
    np.random.seed(seed)
    ops, groups, devices = order.size, device_of.size, pool_of_device.size
    held = np.zeros(devices, np.int64)
    for group in range(groups):
        held[device_of[group]] += group_bytes[group]
    best_device_of, best_order = device_of.copy(), order.copy()
    # The step that is tried, and what it would change.
    tried = device_of.copy()
    moved = np.zeros(groups, np.int64)
    is_moved = np.zeros(groups, np.bool_)
    place = np.zeros(ops, np.int64)
    start, end = np.zeros(ops), np.zeros(ops)
    free = np.zeros(devices)
    last_on = np.zeros(devices, np.int64)
    before = np.full(ops, -1, np.int64)
    critical = np.zeros(ops, np.int64)
    criticals = 0
    current = np.inf
    best = np.inf
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    heat = hot
    for step in range(steps + 1):
        heat *= cooling
        count = 0
        shifted_from = shifted_to = 0
        if step:
            if criticals and np.random.random() < _FROM_CRITICAL:
                op = critical[np.random.randint(criticals)]
            else:
                op = np.random.randint(ops)
            group = group_of[op]
            kind = np.random.random()
            shift = kind > _SWAP or kind < _BOTH
            if kind <= _SWAP:
                # Where to: along an edge, or anywhere.
                target = np.random.randint(devices)
                feeds = feeder_start[op + 1] - feeder_start[op]
                reads = consumer_start[op + 1] - consumer_start[op]
                if feeds + reads and np.random.random() < _ALONG_EDGE:
                    pick = np.random.randint(feeds + reads)
                    if pick < feeds:
                        neighbour = feeders[feeder_start[op] + pick]
                    else:
                        neighbour = consumers[consumer_start[op] + pick - feeds]
                    target = device_of[group_of[neighbour]]
                source = device_of[group]
                if target == source:
                    continue
                moved[0] = group
                is_moved[group] = True
                count = 1
                if kind > _PART:
                    # Against another group of the target.
                    other = group_of[order[np.random.randint(ops)]]
                    if device_of[other] == target:
                        moved[1] = other
                        is_moved[other] = True
                        tried[other] = source
                        count = 2
                    tried[group] = target
                else:
                    tried[group] = target
                    if kind > _DEVICE:
                        # With what is connected to it there, each edge with a probability.
                        share = np.random.random()
                        at = 0
                        while at < count:
                            for k in range(member_start[moved[at]], member_start[moved[at] + 1]):
                                member = members[k]
                                for j in range(feeder_start[member], feeder_start[member + 1]):
                                    near = group_of[feeders[j]]
                                    if (
                                        device_of[near] == source
                                        and not is_moved[near]
                                        and np.random.random() < share
                                    ):
                                        is_moved[near] = True
                                        tried[near] = target
                                        moved[count] = near
                                        count += 1
                                for j in range(consumer_start[member], consumer_start[member + 1]):
                                    near = group_of[consumers[j]]
                                    if (
                                        device_of[near] == source
                                        and not is_moved[near]
                                        and np.random.random() < share
                                    ):
                                        is_moved[near] = True
                                        tried[near] = target
                                        moved[count] = near
                                        count += 1
                            at += 1
                allowed = True
                for at in range(count):
                    group = moved[at]
                    held[device_of[group]] -= group_bytes[group]
                    held[tried[group]] += group_bytes[group]
                    for k in range(member_start[group], member_start[group + 1]):
                        if work[pool_of_device[tried[group]], members[k]] == np.inf:
                            allowed = False
                allowed = (
                    allowed
                    and held[source] <= capacity_bytes[source]
                    and held[target] <= capacity_bytes[target]
                )
                if not allowed:
                    for at in range(count):
                        group = moved[at]
                        held[tried[group]] -= group_bytes[group]
                        held[device_of[group]] += group_bytes[group]
                        tried[group] = device_of[group]
                        is_moved[group] = False
                    continue
            if shift:
                low, high = 0, ops - 1
                for j in range(feeder_start[op], feeder_start[op + 1]):
                    low = max(low, place[feeders[j]] + 1)
                for j in range(consumer_start[op], consumer_start[op + 1]):
                    high = min(high, place[consumers[j]] - 1)
                shifted_from = place[op]
                shifted_to = low + np.random.randint(high - low + 1)
                if shifted_to == shifted_from and count == 0:
                    continue
                way = 1 if shifted_to > shifted_from else -1
                for at in range(shifted_from, shifted_to, way):
                    order[at] = order[at + way]
                order[shifted_to] = op
        # What is worse than this is not taken, and need not be known to the end.
        limit = current - heat * np.log(1.0 - np.random.random()) if step else np.inf
        free[:] = 0.0
        last_on[:] = -1
        makespan = 0.0
        final = -1
        for at in range(ops):
            op = order[at]
            device = tried[group_of[op]]
            earliest = free[device]
            cause = last_on[device]
            for j in range(feeder_start[op], feeder_start[op + 1]):
                feeder = feeders[j]
                source = tried[group_of[feeder]]
                arrival = end[feeder]
                if source != device and (pays[source] or pays[device]):
                    arrival += copy_time[feeder]
                if arrival > earliest:
                    earliest = arrival
                    cause = feeder
            start[op] = earliest
            end[op] = free[device] = earliest + work[pool_of_device[device], op]
            before[op] = cause
            last_on[device] = op
            if end[op] > makespan:
                makespan = end[op]
                final = op
                if makespan > limit:
                    break
        if makespan > limit:
            for at in range(count):
                group = moved[at]
                held[tried[group]] -= group_bytes[group]
                held[device_of[group]] += group_bytes[group]
                tried[group] = device_of[group]
                is_moved[group] = False
            if shifted_from != shifted_to:
                op = order[shifted_to]
                way = 1 if shifted_from > shifted_to else -1
                for at in range(shifted_to, shifted_from, way):
                    order[at] = order[at + way]
                order[shifted_from] = op
            continue
        current = makespan
        for at in range(count):
            device_of[moved[at]] = tried[moved[at]]
            is_moved[moved[at]] = False
        criticals = 0
        op = final
        while op >= 0:
            critical[criticals] = op
            criticals += 1
            op = before[op]
        # Into the order of the starts; it is nearly so already, and inputs stay first.
        for at in range(ops):
            op = order[at]
            to = at
            while to > 0 and start[order[to - 1]] > start[op]:
                order[to] = order[to - 1]
                to -= 1
            order[to] = op
        for at in range(ops):
            place[order[at]] = at
        if current < best:
            best = current
            best_device_of[:] = device_of
            best_order[:] = order
    device_of[:] = best_device_of
    order[:] = best_order
