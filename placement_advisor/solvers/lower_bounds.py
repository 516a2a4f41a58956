"""Lower bounds on the step time that no placement can beat.

`bound_step` takes the strongest of four arguments: the longest path, shared work, a cut of one
device's work, and, for small steps, all placements. `least_ratio_if_wrong` says how far a bound
goes if costs are wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.graph.digraph import maximum_flows
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.simulator.sensitivity import Sensitivity
    from placement_advisor.simulator.simulator import Simulator


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


def bound_step(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster, simulator: Simulator
) -> LowerBound:
    """Return what a step takes at least under any placement of its ops.

    ``simulator`` simulates this graph with these costs on this cluster.
    """
    step = Step(graph, costs, cluster)
    arguments = (
        longest_path(step),
        shared_work(step),
        root_cut(step),
        every_placement(step, simulator),
    )
    strongest = max(filter(None, arguments), key=lambda argument: argument.value_ns)
    return LowerBound(
        split_ns=step.overhead_ns + strongest.value_ns,
        alone_ns={device: step.alone_ns(device) for device in cluster.place_names()},
        reason=strongest.reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An output of an op, or its control signal, with the ops that read it; all by number."""

    producer: int
    port: int
    readers: tuple[int, ...]
    size_bytes: int


class Step:
    """A graph with its costs on a cluster. Ops are numbered as they stand in ``ops``.

    ``time_ns`` has the time of each op by place where it can run, which are all hosts and those
    devices that have a kernel for it; an op of unknown cost takes none.
    ``least_ns`` is the least of them. ``group_of`` numbers what has to be on one device: ops of one
    variable or table together, others alone. ``has_hosts`` says whether an op may run elsewhere
    than where it is placed: on a host, which may be one of the devices.
    """

    def __init__(self, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> None:
        self.graph, self.cluster = graph, cluster
        self.ops: tuple[Op, ...] = graph.placed_ops
        self.index = {op.name: i for i, op in enumerate(self.ops)}
        self._reach_ns = {
            device.name: (cluster.remote_start_ns(device), cluster.remote_end_ns(device))
            for device in cluster.devices[1:]
        }
        places = cluster.places()
        self.has_hosts = bool(cluster.hosts) or any(place.host is not None for place in places)
        self._runs_at = {place.name: _runs_at(graph, self.ops, place) for place in places}
        self.time_ns = _times_ns(self.ops, self._runs_at.values(), costs, cluster)
        self.least_ns = [min(times.values()) for times in self.time_ns]
        self.group_of, self.groups = _groups(self.ops)
        self.tensors = _tensors(graph, self.index)
        # Copy work is the host's where launches are ahead, beside what the device runs.
        links = () if any(place.launches_ahead for place in places) else cluster.links
        self._send_ns = {
            size: min((link.sender.time_ns(size) for link in links), default=0)
            for size in {tensor.size_bytes for tensor in self.tensors}
        }
        self._receive_ns = {
            size: min((link.receiver.time_ns(size) for link in links), default=0)
            for size in self._send_ns
        }

    @property
    def overhead_ns(self) -> int:
        """What any step costs beside its ops and copies."""
        return self.cluster.dispatch.step_overhead_ns

    def begin_ns(self, place: str) -> int:
        """Return when a place begins at the earliest in a step that is not on one device.

        Where there are hosts, such a step need not start a further device: all of its ops may run
        on one, wherever they were placed.
        """
        if self.has_hosts:
            return 0
        if place == self.cluster.devices[0].name:
            return self.cluster.dispatch.partition_overhead_ns
        start_ns, _ = self._reach_ns.get(place, (0, 0))
        return start_ns

    def end_ns(self, place: str) -> int:
        """Return how long after the last op of a place its end is known, in such a step."""
        if self.has_hosts:
            return 0
        _, end_ns = self._reach_ns.get(place, (0, 0))
        return end_ns

    def further_ns(self) -> int:
        """Return the least that it takes to start a device that is not the first and to end it."""
        return min(map(sum, self._reach_ns.values()), default=0)

    def send_ns(self, tensor: Tensor) -> int:
        """Return how long a tensor keeps the device busy that sends it, at least."""
        return self._send_ns[tensor.size_bytes]

    def receive_ns(self, tensor: Tensor) -> int:
        """Return how long a tensor keeps the device busy that receives it, at least."""
        return self._receive_ns[tensor.size_bytes]

    def alone_ns(self, device: str) -> int:
        """Return what the step takes at least if all ops are placed on one device, or host."""
        busy_ns: Counter[str] = Counter()
        for times_ns, runs_at in zip(self.time_ns, self._runs_at[device], strict=True):
            busy_ns[runs_at] += times_ns[runs_at]
        if busy_ns[device]:
            busy_ns[device] += sum(self._reach_ns.get(device, ()))
        return self.overhead_ns + max(busy_ns.values(), default=0)


def _runs_at(graph: OpGraph, ops: tuple[Op, ...], device: Device) -> list[str]:
    """Return where each op runs that is placed on a device: there, or on its host."""
    if device.host is None:
        return [device.name] * len(ops)
    bound = graph.host_bound(device.kind)
    return [device.host if op.name in bound else device.name for op in ops]


def _times_ns(
    ops: tuple[Op, ...],
    runs_at: Iterable[list[str]],
    costs: Mapping[str, CostTable],
    cluster: Cluster,
) -> list[dict[str, int]]:
    """Return by op what it takes on each place where it can run."""
    of_time, overhead_ns = {}, {}
    for place in cluster.places():
        table = costs[place.name]
        launches_ns = len(table.costs) * place.launch_overhead_ns
        counts_launches = place.launches_ahead and launches_ns > table.total_ns
        of_time[place.name] = 0 if counts_launches else 1
        overhead_ns[place.name] = (
            place.launch_overhead_ns if counts_launches or not place.launches_ahead else 0
        )
    rows = []
    for op, *places in zip(ops, *runs_at, strict=True):
        known = {name: costs[name].costs.get(op.name) for name in places}
        rows.append(
            {
                name: 0 if cost is None else cost.time_ns * of_time[name] + overhead_ns[name]
                for name, cost in known.items()
            }
        )
    return rows


def _groups(ops: tuple[Op, ...]) -> tuple[list[int], list[list[int]]]:
    number: dict[str, int] = {}
    group_of, groups = [], list[list[int]]()
    for i, op in enumerate(ops):
        group = len(groups)
        if op.variable is not None:
            group = number.setdefault(op.variable, group)
        if group == len(groups):
            groups.append([])
        groups[group].append(i)
        group_of.append(group)
    return group_of, groups


def _tensors(graph: OpGraph, index: Mapping[str, int]) -> tuple[Tensor, ...]:
    found: dict[tuple[int, int], tuple[set[int], int]] = {}
    for producer, consumer, port, size_bytes in graph.edges:
        if producer in index and consumer in index:
            key = index[producer], port
            readers, _ = found.setdefault(key, (set(), 0 if port < 0 else size_bytes or 0))
            readers.add(index[consumer])
    return tuple(
        Tensor(producer=p, port=port, readers=tuple(sorted(readers)), size_bytes=size)
        for (p, port), (readers, size) in found.items()
    )


def longest_path(step: Step) -> Argument:
    """Return the argument of the critical path: its ops need one another, wherever they run."""
    readers: list[list[int]] = [[] for _ in step.ops]
    for tensor in step.tensors:
        readers[tensor.producer] += tensor.readers
    # From each op to the end: the time, and the number of ops.
    rest: list[tuple[int, int]] = [(0, 0)] * len(step.ops)
    for op in reversed(range(len(step.ops))):
        end_ns = min(map(step.end_ns, step.time_ns[op]))
        after_ns, after = max((rest[reader] for reader in readers[op]), default=(end_ns, 0))
        rest[op] = step.least_ns[op] + after_ns, 1 + after
    whole = (
        (min(map(step.begin_ns, times_ns)) + rest_ns, ops)
        for times_ns, (rest_ns, ops) in zip(step.time_ns, rest, strict=True)
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
    devices = step.cluster.device_names()
    places = (*devices, *(host.name for host in step.cluster.hosts))
    time_ns = np.array(
        [[row.get(place, np.inf) for row in step.time_ns] for place in places], float
    ).reshape(len(places), len(step.ops))
    number = np.arange(len(step.ops))
    unused_ns = np.array([idle_ns(step, place) for place in places], float)
    weights = np.array([1.0 if place in devices else 0.01 for place in places])
    even = [_PARTS if place in devices else 0 for place in places]
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
    whole_ns = max(
        work_value_ns(step, dict(zip(places, each, strict=True))) for each in (even, parts)
    )
    at_least = format_ns(whole_ns)
    return Argument(
        whole_ns, f"work: all ops, shared out evenly, keep the devices busy for {at_least}"
    )


def work_value_ns(step: Step, weights: Mapping[str, int]) -> int:
    """Return what these weights of places say that a step on several devices takes at least."""
    done = sum(min(weights[p] * time_ns for p, time_ns in row.items()) for row in step.time_ns)
    done += sum(weight * idle_ns(step, place) for place, weight in weights.items())
    return -(-done // sum(weights.values()))


def idle_ns(step: Step, place: str) -> int:
    """Return for how long no op of a place can run, even if none is placed there.

    A split takes at least the start and the end of a device that is not the first.
    """
    return min(step.further_ns(), step.begin_ns(place) + step.end_ns(place))


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
    is_work = any(step.send_ns(each) or step.receive_ns(each) for each in step.tensors)
    if step.has_hosts or not is_work:
        return None
    busy_ns = [sum(step.least_ns[op] for op in ops) for ops in step.groups]
    sink = len(step.groups)
    arcs = [(group, sink, time_ns) for group, time_ns in enumerate(busy_ns)]
    nodes = count(sink + 1)
    for tensor in step.tensors:
        home = step.group_of[tensor.producer]
        readers = {step.group_of[reader] for reader in tensor.readers}
        busy_ns[home] += step.send_ns(tensor)
        sent, received = next(nodes), next(nodes)
        arcs += [(home, sent, step.send_ns(tensor)), (received, home, step.receive_ns(tensor))]
        for reader in readers:
            busy_ns[reader] += step.receive_ns(tensor)
            arcs += [(sent, reader, _UNLIMITED_NS), (reader, received, _UNLIMITED_NS)]
    roots = sorted(range(sink), key=lambda group: -busy_ns[group])[:_ROOTS]
    flow_ns, root = max(zip(maximum_flows(arcs, roots, sink), roots, strict=True))
    value_ns = flow_ns + min(map(step.begin_ns, step.cluster.device_names()))
    return Argument(
        value_ns,
        f"copies: the device that holds {step.ops[step.groups[root][0]].name} is busy for "
        f"{format_ns(value_ns)}; an op that leaves it costs it more in copies than it saves",
    )


# A simulation of a step so small takes 50 µs.
MAX_PLACEMENTS = 2**15


def every_placement(step: Step, simulator: Simulator) -> Argument | None:
    """Return the fastest of all steps on several devices; None if there are too many, or none."""
    places, groups = len(step.cluster.place_names()), len(step.groups)
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


def least_ratio_if_wrong(
    graph: OpGraph, costs: Mapping[str, CostTable], sensitivity: Sensitivity
) -> float:
    """Return the least that any placement's step can be over that on the first device.

    ``sensitivity`` has the first device alone as its baseline.
    """
    ops = sensitivity.doubt.ops
    ratios = []
    for simulator, baseline_ns in sensitivity.if_wrong():
        cluster = simulator.cluster
        first, *others = cluster.places()
        lower = bound_step(graph, costs, cluster, simulator)
        like_first = {first.name} | {
            place.name
            for place in others
            if costs[place.name] == costs[first.name]
            and (place.kind, place.host) == (first.kind, first.host)
        }
        least_ns = min(
            lower.split_ns / ops,
            *(
                time_ns if place in like_first else time_ns / ops
                for place, time_ns in lower.alone_ns.items()
            ),
        )
        ratios.append(least_ns / baseline_ns)
    return min(ratios)
