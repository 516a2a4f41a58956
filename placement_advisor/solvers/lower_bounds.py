"""Lower bounds on the step time that no placement can beat.

`bound_step` takes the strongest of four arguments: the longest path, shared work, a cut of one
device's work, and, for small steps, all placements. `least_ratio_if_wrong` says how far a bound
goes if costs are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise, product
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.graph.digraph import maximum_flows
from placement_advisor.simulator.arrays import UNKNOWN
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.machine.devices import Device
    from placement_advisor.simulator.sensitivity import Sensitivity
    from placement_advisor.simulator.simulator import Simulator

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """What a step takes at least, in ns: split, and on each device or host alone.

    ``reason`` is the strongest argument for the split, as half a sentence.
    """

    split_ns: int
    alone_ns: Mapping[str, int]
    reason: str

    @property
    def step_ns(self) -> int:
        """What any placement takes at least."""
        return min(self.split_ns, *self.alone_ns.values())


class Argument(NamedTuple):
    """Why a split takes at least ``value_ns``, as half a sentence; overhead of a step apart."""

    value_ns: int
    reason: str


def bound_step(simulator: Simulator) -> LowerBound:
    """Return what a step takes at least under any placement of its ops."""
    step = Step(simulator)
    arguments = (
        longest_path(step),
        shared_work(step),
        root_cut(step),
        every_placement(step, simulator),
    )
    strongest = max(filter(None, arguments), key=lambda argument: argument.value_ns)
    names = enumerate(simulator.cluster.place_names())
    return LowerBound(
        split_ns=step.overhead_ns + strongest.value_ns,
        alone_ns={name: step.alone_ns(place) for place, name in names},
        reason=strongest.reason,
    )


# What an op takes where it cannot run: longer than any step.
_NEVER_NS = 2**62


class Step:
    """What a simulator has of a graph, its costs and a cluster, by the numbers of ops and places.

    ``time_ns`` has the time of each op at each place: `_NEVER_NS` where it cannot run, that is
    where there is no kernel for it and no device sends it as its host; an op of unknown cost takes
    none. ``least_ns`` is the least of them. ``group_of`` numbers what has to be on one device: ops
    of one variable or table together, others alone. ``send_ns`` and ``receive_ns`` are how long
    each tensor keeps the device busy that sends or receives it, at least.
    ``has_hosts`` says whether an op may run elsewhere than where it is placed: on a host, which may
    be one of the devices. ``begin_ns`` is when each place begins at the earliest in a step that is
    not on one device, ``end_ns`` how long after its last op its end is known. Where there are
    hosts, such a step need not start a further device: all of its ops may run on one, wherever they
    were placed.
    """

    def __init__(self, simulator: Simulator) -> None:
        cluster = simulator.cluster
        self.graph, self._places, links = simulator.arrays
        self.ops, self.devices = simulator.ops, len(cluster.devices)
        self.overhead_ns = cluster.dispatch.step_overhead_ns
        places = cluster.places()
        self.has_hosts = bool(cluster.hosts) or any(place.host is not None for place in places)
        self._runs_at = self._places.runs_at.reshape(len(places), len(self.ops))
        can_run = np.zeros(self._runs_at.shape, bool)
        can_run[self._runs_at, np.arange(len(self.ops))] = True
        rows = map(_times_ns, places, self._places.cost_ns)
        self.time_ns = np.where(can_run, np.array(list(rows), np.int64), _NEVER_NS)
        self.least_ns = self.time_ns.min(axis=0)
        number: dict[int | str, int] = {}
        self.group_of = [
            number.setdefault(i if op.variable is None else op.variable, len(number))
            for i, op in enumerate(self.ops)
        ]
        self.groups = len(number)
        # Copy work is the host's where launches are ahead, beside what the device runs.
        is_work = not any(place.launches_ahead for place in places)
        work_ns = (links.wires.send_ns, links.wires.receive_ns)
        self.send_ns, self.receive_ns = (
            (is_work * of_size_ns.min(axis=0))[self.graph.size].tolist() for of_size_ns in work_ns
        )
        self._reach_ns = self._places.start_ns + self._places.end_ns
        self.begin_ns, self.end_ns = np.zeros((2, len(places)), np.int64)
        if not self.has_hosts:
            self.begin_ns, self.end_ns = self._places.start_ns.copy(), self._places.end_ns
            self.begin_ns[0] = cluster.dispatch.partition_overhead_ns

    def idle_ns(self) -> Ints:
        """Return for how long no op of each place can run, even if none is placed there.

        A split takes at least the start and the end of a device that is not the first.
        """
        further_ns = self._reach_ns[1 : self.devices].tolist()
        idle: Ints = np.minimum(self.begin_ns + self.end_ns, min(further_ns, default=0))
        return idle

    def tensors(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the op that makes each tensor, and the ops that read it."""
        starts, reader = self.graph.reader_start.tolist(), self.graph.reader.tolist()
        for producer, ends in zip(self.graph.producer.tolist(), pairwise(starts), strict=True):
            yield producer, reader[slice(*ends)]

    def alone_ns(self, place: int) -> int:
        """Return what the step takes at least if all ops are placed on one device, or host."""
        busy_ns, runs_at = np.zeros(len(self.time_ns), np.int64), self._runs_at[place]
        np.add.at(busy_ns, runs_at, self.time_ns[runs_at, np.arange(len(runs_at))])
        if busy_ns[place]:
            busy_ns[place] += self._reach_ns[place]
        return self.overhead_ns + int(busy_ns.max())


def _times_ns(place: Device, cost_ns: Ints) -> Ints:
    """Return what each op takes at a place: of launches ahead and their ops, what takes longer."""
    is_known = cost_ns != UNKNOWN
    launches_ns = is_known * place.launch_overhead_ns
    times_ns = np.where(is_known, cost_ns, 0)
    longer: Ints = max(times_ns, launches_ns, key=np.sum)
    return longer if place.launches_ahead else times_ns + launches_ns


def longest_path(step: Step) -> Argument:
    """Return the argument of the critical path: its ops need one another, wherever they run."""
    readers: list[list[int]] = [[] for _ in step.ops]
    for producer, read_by in step.tensors():
        readers[producer] += read_by
    can_run = step.time_ns < _NEVER_NS
    begin_ns, end_ns = (
        np.where(can_run, place_ns[:, None], _NEVER_NS).min(axis=0).tolist()
        for place_ns in (step.begin_ns, step.end_ns)
    )
    least_ns = step.least_ns.tolist()
    # From each op to the end: the time, and the number of ops.
    rest: list[tuple[int, int]] = [(0, 0)] * len(step.ops)
    for op in reversed(range(len(step.ops))):
        after_ns, after = max((rest[reader] for reader in readers[op]), default=(end_ns[op], 0))
        rest[op] = least_ns[op] + after_ns, 1 + after
    whole = (
        (first_ns + rest_ns, ops) for first_ns, (rest_ns, ops) in zip(begin_ns, rest, strict=True)
    )
    value_ns, ops = max(whole, default=(0, 0))
    at_least = format_ns(value_ns)
    return Argument(value_ns, f"critical path: {ops:,} ops need one another in turn, {at_least}")


# Any weights give a bound that holds; these say how near it comes to the best one, which a linear
# program has: within 1 % on uneven devices (`tests/solvers/test_lower_bounds.py`). More turns take
# longer for less than that. Weights are whole parts of a million, so that sums are exact.
_PARTS = 10**6
_ROUNDS = 300
_RATE = 0.5


def shared_work(step: Step) -> Argument:
    """Return the argument of the work, which has to be done somewhere.

    If each place counts as its weight, every op adds at least the least that its time weighs
    anywhere, and together they cannot weigh more than the step time times all weights.
    """
    places, number = range(len(step.time_ns)), np.arange(len(step.ops))
    time_ns = np.where(step.time_ns < _NEVER_NS, step.time_ns, np.inf)
    unused_ns = step.idle_ns().astype(float)
    weights = np.array([1.0 if place < step.devices else 0.01 for place in places])
    even = [_PARTS if place < step.devices else 0 for place in places]
    best_ns, parts = 0.0, even
    for turn in range(_ROUNDS if len(step.ops) else 0):
        weights /= weights.sum()
        weighted_ns = weights[:, None] * time_ns
        where = np.argmin(weighted_ns, axis=0)
        value_ns = weighted_ns[where, number].sum() + weights @ unused_ns
        if value_ns > best_ns:
            best_ns, parts = value_ns, [round(w * _PARTS) for w in weights.tolist()]
        busy_ns = np.bincount(where, time_ns[where, number], len(places))
        rate = _RATE / (1 + turn) ** 0.5
        weights *= np.exp(rate * (busy_ns / max(1.0, float(busy_ns.max())) - 1))
    whole_ns = max(work_value_ns(step, each) for each in (even, parts))
    at_least = format_ns(whole_ns)
    return Argument(
        whole_ns, f"work: all ops, shared out evenly, keep the devices busy for {at_least}"
    )


def work_value_ns(step: Step, weights: Sequence[int]) -> int:
    """Return what these weights of places say that a step on several devices takes at least."""
    # Products may need more than 64 bits.
    done: int = sum(
        min(weight * ns for weight, ns in zip(weights, times_ns, strict=True) if ns < _NEVER_NS)
        for times_ns in step.time_ns.T.tolist()
    )
    done += sum(map(mul, weights, step.idle_ns().tolist()))
    return -(-done // sum(weights))


# Roots to try: what sends and receives most is the best of them on all graphs that were looked at.
_ROOTS = 6
# More than any work.
_UNLIMITED_NS = 2**45


def root_cut(step: Step) -> Argument | None:
    """Return the argument of the device that holds a root; None where processors move no bytes.

    Every op that is elsewhere saves that device its time, but what then crosses keeps it busy with
    sending and receiving. The least that any choice leaves is a minimum cut between the root and
    what all ops take. A tensor is sent once, however many ops read it elsewhere.

    Source: Ford and Fulkerson, Maximal flow through a network (1956),
    https://doi.org/10.4153/CJM-1956-045-5.
    """
    if step.has_hosts or not any(step.send_ns + step.receive_ns):
        return None
    sink = step.groups
    least_ns = np.zeros(sink, np.int64)
    np.add.at(least_ns, step.group_of, step.least_ns)
    busy_ns = least_ns.tolist()
    arcs = [(group, sink, time_ns) for group, time_ns in enumerate(busy_ns)]
    nodes = count(sink + 1)
    copies = zip(step.tensors(), step.send_ns, step.receive_ns, strict=True)
    for (producer, read_by), send_ns, receive_ns in copies:
        home = step.group_of[producer]
        busy_ns[home] += send_ns
        sent, received = next(nodes), next(nodes)
        arcs += [(home, sent, send_ns), (received, home, receive_ns)]
        for reader in {step.group_of[reader] for reader in read_by}:
            busy_ns[reader] += receive_ns
            arcs += [(sent, reader, _UNLIMITED_NS), (reader, received, _UNLIMITED_NS)]
    roots = sorted(range(sink), key=lambda group: -busy_ns[group])[:_ROOTS]
    flow_ns, root = max(zip(maximum_flows(arcs, roots, sink), roots, strict=True))
    value_ns = flow_ns + int(step.begin_ns.min())
    return Argument(
        value_ns,
        f"copies: the device that holds {step.ops[step.group_of.index(root)].name} is busy for "
        f"{format_ns(value_ns)}; an op that leaves it costs it more in copies than it saves",
    )


# A simulation of a step so small takes 50 µs.
MAX_PLACEMENTS = 2**15


def every_placement(step: Step, simulator: Simulator) -> Argument | None:
    """Return the fastest of all steps on several devices; None if there are too many, or none."""
    places, groups = len(step.time_ns), step.groups
    if groups * np.log2(places) > np.log2(MAX_PLACEMENTS):
        return None
    group_of = np.array(step.group_of, np.int64)
    steps_ns = [
        simulator.step_ns_at(np.array(chosen, np.int64)[group_of])
        for chosen in product(range(places), repeat=groups)
        if len(set(chosen)) > 1
    ]
    if not steps_ns:
        return None
    least_ns = min(steps_ns) - step.overhead_ns
    return Argument(
        least_ns,
        f"all {len(steps_ns):,} placements were simulated, the fastest takes {format_ns(least_ns)}",
    )


def least_ratio_if_wrong(sensitivity: Sensitivity) -> float:
    """Return the least that any placement's step can be over that on the first device.

    ``sensitivity`` has the first device alone as its baseline.
    """
    ops = sensitivity.doubt.ops
    ratios = []
    for simulator, baseline_ns in sensitivity.if_wrong():
        lower = bound_step(simulator)
        _, places, _ = simulator.arrays
        first, first_cost_ns = places.places[0], places.cost_ns[0]
        least_ns = lower.split_ns / ops
        for place, cost_ns in zip(places.places, places.cost_ns, strict=True):
            is_like_first = (place.kind, place.host) == (first.kind, first.host)
            is_like_first &= np.array_equal(cost_ns, first_cost_ns)
            alone_ns = lower.alone_ns[place.name]
            least_ns = min(least_ns, alone_ns if is_like_first else alone_ns / ops)
        ratios.append(least_ns / baseline_ns)
    return min(ratios)
