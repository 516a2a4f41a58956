"""The loop of `local_order`, compiled by numba; what it models stands there.

Times, devices and orders are arrays, see `delay_arrays`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

# Which steps are tried how often: a device and a place in the order, a device alone, that of a
# connected part, two devices against each other; the rest shifts an op in the order. Judgement, as
# are the next two: each kind finds what the others cannot, and none is dear. Measured as a whole,
# by tests/benchmarks/makespan.py.
_BOTH, _DEVICE, _PART, _SWAP = 0.2, 0.35, 0.6, 0.7
# Steps that begin on the critical chain, and moves that go along an edge.
_FROM_CRITICAL, _ALONG_EDGE = 0.5, 0.6


@compiled(nogil=True)
def anneal(
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
    """Better ``device_of`` each group and the ``order`` of the ops in place.

    ``hot`` and ``cold`` are how much worse a step may be at first and at last, in the unit of the
    times, to be taken one time in three. One function on purpose, see `simulator.event_loop`.
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
