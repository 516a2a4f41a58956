"""Lower bounds on the step time that no placement can beat.

`bound_step` takes the best of: the longest path, shared work, the cut of a device's work,
and, for small steps, all placements. `least_ratio_if_wrong` says how far a bound goes if
costs are wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.op_patterns import host_bound
from placement_advisor.graph.placement import placed_ops
from placement_advisor.solvers.bound_arguments import (
    AllArgument,
    Argument,
    CutArgument,
    LowerBound,
    PathArgument,
    WorkArgument,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.simulator.sensitivity import Sensitivity
    from placement_advisor.simulator.simulator import Simulator


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
        self.ops: tuple[Op, ...] = placed_ops(graph)
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
    bound = host_bound(graph, device.kind)
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


def longest_path(step: Step) -> PathArgument:
    """Return the argument of the critical path at zero copy cost."""
    tail_ns = [0] * len(step.ops)
    after: list[int | None] = [None] * len(step.ops)
    outputs: list[list[int]] = [[] for _ in step.ops]
    for tensor in step.tensors:
        outputs[tensor.producer] += tensor.readers
    for op in reversed(range(len(step.ops))):
        rest_ns = min(step.end_ns(place) for place in step.time_ns[op])
        for reader in outputs[op]:
            if after[op] is None or tail_ns[reader] > rest_ns:
                rest_ns, after[op] = tail_ns[reader], reader
        tail_ns[op] = step.least_ns[op] + rest_ns

    def whole_ns(op: int) -> int:
        return tail_ns[op] + min(step.begin_ns(place) for place in step.time_ns[op])

    first: int | None = max(range(len(step.ops)), key=whole_ns, default=None)
    value_ns = 0 if first is None else whole_ns(first)
    path, at = [], first
    while at is not None:
        path.append(step.ops[at].name)
        at = after[at]
    return PathArgument(value_ns=value_ns, ops=tuple(path))


# Any weights give a bound that holds; these say how near it comes to the best one, which a linear
# program has: within 1 % on uneven devices (`tests/solvers/bounds/test_work_weights.py`). More
# turns take longer for less than that. Weights are whole parts of a million, so that a checker adds
# up integers.
_PARTS = 10**6
_ROUNDS = 300
_RATE = 0.5


def shared_work(step: Step) -> WorkArgument:
    """Return the argument of the work, with the best weights that were found."""
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
    shared = [dict(zip(places, each, strict=True)) for each in (even, parts)]
    arguments = (WorkArgument(value_ns=work_value_ns(step, each), weights=each) for each in shared)
    return max(arguments, key=lambda argument: argument.value_ns)


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
# More than any work, and its sums fit 64 bits.
_UNLIMITED_NS = 2**45

SINK = "sink"


def root_cut(step: Step) -> CutArgument | None:
    """Return the best argument of a root; None where processors do not move the bytes."""
    is_work = any(step.send_ns(each) or step.receive_ns(each) for each in step.tensors)
    if step.has_hosts or not is_work:
        return None
    return max((_cut(step, root) for root in _roots(step)), key=lambda cut: cut.value_ns)


def group_name(step: Step, group: int) -> str:
    """Return the name of a group in flows: that of its first op."""
    return f"op {step.ops[step.groups[group][0]].name}"


def _roots(step: Step) -> list[int]:
    busy_ns: defaultdict[int, int] = defaultdict(int)
    for op, group in enumerate(step.group_of):
        busy_ns[group] += step.least_ns[op]
    for tensor in step.tensors:
        busy_ns[step.group_of[tensor.producer]] += step.send_ns(tensor)
        for group in {step.group_of[reader] for reader in tensor.readers}:
            busy_ns[group] += step.receive_ns(tensor)
    return sorted(busy_ns, key=lambda group: (-busy_ns[group], group))[:_ROOTS]


def _cut(step: Step, root: int) -> CutArgument:
    # Loading it takes half a second; who asks for no bounds does not wait for it.
    from ortools.graph.python import max_flow

    number: dict[str, int] = {SINK: 0}
    network = max_flow.SimpleMaxFlow()
    arcs: list[tuple[str, str]] = []

    def connect(source: str, target: str, limit_ns: int) -> None:
        ends = (number.setdefault(name, len(number)) for name in (source, target))
        network.add_arc_with_capacity(*ends, limit_ns)
        arcs.append((source, target))

    names = [group_name(step, group) for group in range(len(step.groups))]
    for name, ops in zip(names, step.groups, strict=True):
        connect(name, SINK, sum(step.least_ns[op] for op in ops))
    for tensor in step.tensors:
        home = step.group_of[tensor.producer]
        readers = {step.group_of[reader] for reader in tensor.readers} - {home}
        if not readers:
            continue
        label = f"{step.ops[tensor.producer].name}:{tensor.port}"
        if step.send_ns(tensor):
            connect(names[home], f"sent {label}", step.send_ns(tensor))
            for reader in sorted(readers):
                connect(f"sent {label}", names[reader], _UNLIMITED_NS)
        if step.receive_ns(tensor):
            connect(f"received {label}", names[home], step.receive_ns(tensor))
            for reader in sorted(readers):
                connect(names[reader], f"received {label}", _UNLIMITED_NS)
    network.solve(number[names[root]], number[SINK])
    flow = {ends: amount for arc, ends in enumerate(arcs) if (amount := network.flow(arc)) > 0}
    places = step.cluster.device_names()
    return CutArgument(
        value_ns=network.optimal_flow() + min(map(step.begin_ns, places)),
        root=names[root].removeprefix("op "),
        flow=flow,
    )


# A simulation of a step so small takes 50 µs.
MAX_PLACEMENTS = 2**15


def every_placement(step: Step, simulator: Simulator) -> AllArgument | None:
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
    return AllArgument(value_ns=min(steps_ns) - step.overhead_ns, placements=len(steps_ns))


def bound_step(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster, simulator: Simulator
) -> LowerBound:
    """Return what a step takes at least under any placement of its ops.

    ``simulator`` is one of this graph with these costs on this cluster.
    """
    step = Step(graph, costs, cluster)
    found: tuple[Argument | None, ...] = (
        longest_path(step),
        shared_work(step),
        root_cut(step),
        every_placement(step, simulator),
    )
    arguments = sorted((a for a in found if a is not None), key=lambda each: -each.value_ns)
    return LowerBound(
        split_ns=step.overhead_ns + arguments[0].value_ns,
        alone_ns={device: step.alone_ns(device) for device in cluster.place_names()},
        arguments=tuple(arguments),
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
