"""A local search for a small largest load: regions of groups move from device to device.

A *trial* moves a group, then one after the other groups beside it, all from the same device to the
same other one, mostly one that holds a neighbour; half of the time then others the other way, in
exchange, mostly neighbours of what is there; and takes back all but the best beginning of that. A
region moves where a single group could not, as its tensors would be cut on both sides; where
devices are nearly even, nothing can move without an exchange. What is best is judged by a smooth
stand-in for the largest load, the sum of the loads' 64th powers; a trial may worsen it by up to a
*threshold*, which falls to nothing within a round. Each round is longer than the one before: slow
ones end lowest, and quick ones are what a clock leaves. They start from the placement that is
given and from the best so far, in turns. Memory is a hard limit.

A step changes the loads of two devices, in time proportional to the tensors of the group. Loads are
whole units and powers are products, so that equal seeds give equal answers on any machine.

Source: Dueck and Scheuer, Threshold accepting (1990), doi:10.1016/0021-9991(90)90201-B; trials that
keep their best beginning: Kernighan and Lin (1970), doi:10.1002/j.1538-7305.1970.tb01770.x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.solvers.flat_rows import flat_rows
from placement_advisor.solvers.throughput.loads import bundles, group_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from placement_advisor.solvers.problem import Problem

    Ints = NDArray[np.int64]
    Draws = NDArray[np.uint64]  # of one element: what a random number follows from

# About as many take a second of one core, on the graphs of tests/benchmarks/load_effort.py.
STEPS_PER_UNIT = 6_000_000
# In turns; the last and longest round has the last. The higher one finds ways between placements
# that heavy tensors keep apart, the lower one balances many small ops.
# Judgement: with the power, the best of some that were tried on layer graphs with branches; 0.1 and
# 0.02 with the 32nd power end higher.
_THRESHOLDS = (0.04, 0.01)
# How many of four trials look for neighbours on either side: what moves to where nothing is near
# adds cuts. Judgement: about three end lower than none; all would leave devices out of reach.
_OF_FOUR_AT_BORDERS = 3
_ROUNDS = 24
# How much longer each round is than the one before. Judgement: slow rounds balance better, but
# which way heavy tensors go is luck, and many rounds try more of it; where each was twice as long,
# two seeds of four missed the best for bert_l-6_training.
_GROWTH = 2**0.5
# All loads together: what differs by less counts as equal, and sums stay far from 64 bits.
_LOAD_UNITS = 2**50
# How often a group that fits is looked for at random, before a trial does without. Judgement: where
# there are that few, they are seldom worth the time.
_TRIES = 8
_NO_LIMIT = 2**62
_CANNOT_RUN = -1
# Odd, its bits mixed: neighbouring seeds give states that have nothing in common. From the golden
# ratio, as in Steele, Lea and Flood (2014), doi:10.1145/2714064.2660195.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_OPTIONS = {"nogil": True, "error_model": "numpy"}
# A call would hand over a dozen arrays, which takes longer than most of these functions.
_inlined = compiled(**_OPTIONS, forceinline=True)


class _Arrays(NamedTuple):
    """A problem for the compiled loop; rows of varying length stand one behind the other.

    ``work`` is by device and group, ``sent`` and ``received`` have the bundles by group,
    ``reader`` the groups by bundle.
    """

    work: Ints
    size_bytes: Ints
    capacity_bytes: Ints
    pays: NDArray[np.bool_]
    copy_time: Ints
    home: Ints
    sent_start: Ints
    sent: Ints
    received_start: Ints
    received: Ints
    reader_start: Ints
    reader: Ints


def locally_best(
    problem: Problem, start: Sequence[str], *, units: float, is_over: Callable[[], bool], seed: int
) -> tuple[tuple[str, ...], float]:
    """Return the device of each group, from such a placement, which fits; and the units.

    ``units`` are those of `Effort`. The search ends early when ``is_over`` says so, between rounds.
    """
    arrays = _arrays(problem)
    number = {name: i for i, name in enumerate(problem.devices)}
    given = np.array([number[name] for name in start], np.int64)
    best, best_load = given, _NO_LIMIT
    spent = 0.0
    for turn in range(_ROUNDS if len(problem.devices) > 1 else 0):
        if is_over():
            break
        share = units * (_GROWTH - 1) * _GROWTH**turn / (_GROWTH**_ROUNDS - 1)
        steps = round(share * STEPS_PER_UNIT)
        threshold = _THRESHOLDS[turn % len(_THRESHOLDS)]
        begin = best if turn % 2 else given
        found, load = _round(arrays, begin.copy(), steps, threshold, seed * _ROUNDS + turn)
        if load < best_load:
            best, best_load = found, load
        spent += share
    return tuple(problem.devices[device] for device in best), spent


def _arrays(problem: Problem) -> _Arrays:
    by_pool = group_work(problem)
    crossing = bundles(problem)
    most = sum(
        max((w for w in row if w is not None), default=0.0) for row in zip(*by_pool, strict=True)
    )
    unit = (
        most + sum(each.copy_time * len(problem.devices) for each in crossing)
    ) / _LOAD_UNITS or 1.0
    sent: list[list[int]] = [[] for _ in problem.groups]
    received: list[list[int]] = [[] for _ in problem.groups]
    for i, bundle in enumerate(crossing):
        sent[bundle.home].append(i)
        for group in bundle.readers:
            received[group].append(i)
    pools = [
        (pool, row) for pool, row in zip(problem.pools, by_pool, strict=True) for _ in pool.devices
    ]
    return _Arrays(
        np.array(
            [[_CANNOT_RUN if w is None else round(w / unit) for w in row] for _, row in pools],
            np.int64,
        ),
        np.array(
            [sum(problem.size_bytes[op] for op in group) for group in problem.groups], np.int64
        ),
        np.array(
            [
                _NO_LIMIT if pool.capacity_bytes is None else pool.capacity_bytes
                for pool, _ in pools
            ],
            np.int64,
        ),
        np.array([pool.pays_for_copies for pool, _ in pools]),
        np.array([round(bundle.copy_time / unit) for bundle in crossing], np.int64),
        np.array([bundle.home for bundle in crossing], np.int64),
        *flat_rows(sent),
        *flat_rows(received),
        *flat_rows([bundle.readers for bundle in crossing]),
    )


@_inlined
def _below(draws: Draws, count: int) -> int:
    """Return a random number from 0 to below the count, and go on to the next.

    Source: Marsaglia, Xorshift RNGs (2003), doi:10.18637/jss.v008.i14.
    """
    bits = draws[0]
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    draws[0] = bits
    return int(np.int64(((bits >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)))


@_inlined
def _power(ratio: float) -> float:
    for _ in range(6):
        ratio *= ratio
    return ratio


@compiled(**_OPTIONS)
def _round(
    arrays: _Arrays, device: Ints, steps: int, threshold: float, seed: int
) -> tuple[Ints, int]:
    """Return the best placement that was met, and its largest load; ``device`` changes."""
    draws = np.array([np.uint64(seed) * _SPREAD | np.uint64(1)], np.uint64)
    groups, devices = len(device), len(arrays.work)
    load, held_bytes, readers_on = _state(arrays, device)
    best, best_load = device.copy(), load.max()
    scale = max(1.0, float(best_load))
    path = np.empty(2 * groups, np.int64)
    # Regions of up to all groups, small ones as often as large ones.
    largest_log = math.ceil(math.log2(groups))
    step = 0
    while step < steps:
        allowed = 1.0 + threshold * (1.0 - step / steps) ** 2
        group = _below(draws, groups)
        source = device[group]
        target = _goal(arrays, draws, device, group)
        rest = 0.0
        for other in range(devices):
            if other not in (source, target):
                rest += _power(load[other] / scale)
        before = rest + _power(load[source] / scale) + _power(load[target] / scale)
        least = np.inf
        moved, kept = 0, 0
        # There, and half of the time something in exchange.
        for way in range(1 + _below(draws, 2)):
            begin = moved
            origin, goal = (source, target) if way == 0 else (target, source)
            if way:
                group = _in_exchange(arrays, draws, device, origin, goal)
            length = 1 << _below(draws, largest_log + 1)
            while group >= 0 and moved - begin < length and moved < len(path):
                step += 1
                if (
                    arrays.work[goal, group] == _CANNOT_RUN
                    or held_bytes[goal] + arrays.size_bytes[group] > arrays.capacity_bytes[goal]
                ):
                    break
                _move(arrays, device, load, held_bytes, readers_on, group, goal)
                path[moved] = group
                moved += 1
                now = rest + _power(load[source] / scale) + _power(load[target] / scale)
                if now < least:
                    least, kept = now, moved
                    if max(load[source], load[target]) < best_load:
                        largest = load.max()
                        if largest < best_load:
                            best_load = largest
                            best[:] = device
                group = _beside(arrays, draws, device, path[begin:], moved - begin, origin)
        step += 1
        if least > before * allowed:
            kept = 0
        for i in range(moved - 1, kept - 1, -1):
            back = source if device[path[i]] == target else target
            _move(arrays, device, load, held_bytes, readers_on, path[i], back)
    return best, best_load


@compiled(**_OPTIONS)
def _state(arrays: _Arrays, device: Ints) -> tuple[Ints, Ints, Ints]:
    """Return load and bytes of each device, and how many readers of each bundle it has."""
    devices = len(arrays.work)
    load = np.zeros(devices, np.int64)
    held_bytes = np.zeros(devices, np.int64)
    readers_on = np.zeros((len(arrays.home), devices), np.int64)
    for group in range(len(device)):
        load[device[group]] += arrays.work[device[group], group]
        held_bytes[device[group]] += arrays.size_bytes[group]
        for k in range(arrays.received_start[group], arrays.received_start[group + 1]):
            readers_on[arrays.received[k], device[group]] += 1
    for bundle in range(len(arrays.home)):
        home = device[arrays.home[bundle]]
        is_sent = False
        for other in range(devices):
            if other != home and readers_on[bundle, other]:
                is_sent = True
                load[other] += arrays.copy_time[bundle] * arrays.pays[other]
        load[home] += arrays.copy_time[bundle] * (is_sent and arrays.pays[home])
    return load, held_bytes, readers_on


@_inlined
def _move(
    arrays: _Arrays,
    device: Ints,
    load: Ints,
    held_bytes: Ints,
    readers_on: Ints,
    group: int,
    target: int,
) -> None:
    """Move a group. Only the loads of the two devices change: others send and get what they did."""
    source = device[group]
    less, more = arrays.work[source, group], arrays.work[target, group]
    from_pays, to_pays = arrays.pays[source], arrays.pays[target]
    for k in range(arrays.sent_start[group], arrays.sent_start[group + 1]):
        bundle = arrays.sent[k]
        copy_time = arrays.copy_time[bundle]
        readers = arrays.reader_start[bundle + 1] - arrays.reader_start[bundle]
        here, there = readers_on[bundle, source], readers_on[bundle, target]
        # The source no longer sends, but gets what it reads; the other way about at the target.
        less += from_pays * copy_time * ((readers > here) - (here > 0))
        more += to_pays * copy_time * ((readers > there) - (there > 0))
    for k in range(arrays.received_start[group], arrays.received_start[group + 1]):
        bundle = arrays.received[k]
        copy_time = arrays.copy_time[bundle]
        readers = arrays.reader_start[bundle + 1] - arrays.reader_start[bundle]
        home = device[arrays.home[bundle]]
        if home == source:
            less -= from_pays * copy_time * (readers_on[bundle, source] == readers)
        else:
            less += from_pays * copy_time * (readers_on[bundle, source] == 1)
        if home == target:
            more -= to_pays * copy_time * (readers_on[bundle, target] == readers - 1)
        else:
            more += to_pays * copy_time * (readers_on[bundle, target] == 0)
        readers_on[bundle, source] -= 1
        readers_on[bundle, target] += 1
    load[source] -= less
    load[target] += more
    held_bytes[source] -= arrays.size_bytes[group]
    held_bytes[target] += arrays.size_bytes[group]
    device[group] = target


@_inlined
def _goal(arrays: _Arrays, draws: Draws, device: Ints, group: int) -> int:
    """Return another device than the group's, mostly one that holds a neighbour."""
    if _below(draws, 4) < _OF_FOUR_AT_BORDERS:
        for _ in range(_TRIES):
            near = _neighbour(arrays, draws, group)
            if near >= 0 and device[near] != device[group]:
                return int(device[near])
    other = _below(draws, len(arrays.work) - 1)
    return int(other + (other >= device[group]))


@_inlined
def _in_exchange(arrays: _Arrays, draws: Draws, device: Ints, origin: int, goal: int) -> int:
    """Return a group on the origin, mostly one with a neighbour on the goal; -1 if none is met."""
    if _below(draws, 4) < _OF_FOUR_AT_BORDERS:
        for _ in range(4 * _TRIES):
            group = _below(draws, len(device))
            if device[group] == origin:
                near = _neighbour(arrays, draws, group)
                if near >= 0 and device[near] == goal:
                    return int(group)
    for _ in range(_TRIES):
        group = _below(draws, len(device))
        if device[group] == origin:
            return int(group)
    return -1


@_inlined
def _beside(
    arrays: _Arrays, draws: Draws, device: Ints, path: Ints, moved: int, source: int
) -> int:
    """Return a group on the source beside one that moved lately, -1 if none is met."""
    for _ in range(_TRIES):
        group = path[moved - 1 - _below(draws, min(moved, _TRIES))]
        near = _neighbour(arrays, draws, group)
        if near >= 0 and device[near] == source:
            return int(near)
    return -1


@_inlined
def _neighbour(arrays: _Arrays, draws: Draws, group: int) -> int:
    """Return a group that reads or makes what the group sends or gets, -1 if there is nothing."""
    sent = arrays.sent_start[group + 1] - arrays.sent_start[group]
    received = arrays.received_start[group + 1] - arrays.received_start[group]
    if not sent + received:
        return -1
    pick = _below(draws, sent + received)
    if pick < sent:
        bundle = arrays.sent[arrays.sent_start[group] + pick]
    else:
        bundle = arrays.received[arrays.received_start[group] + pick - sent]
        if _below(draws, 2):
            return int(arrays.home[bundle])
    first = arrays.reader_start[bundle]
    readers = arrays.reader_start[bundle + 1] - first
    return int(arrays.reader[first + _below(draws, readers)])
