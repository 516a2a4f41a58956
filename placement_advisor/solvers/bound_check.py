"""Checks the arguments of a bound, without what found them.

Written apart from the rest of `bounds`, so that a mistake there is not repeated here: sums
are done anew from the graph, the cluster and the times of ops. What the checks rest on is the
simulator's model, as `step_numbers` states it. No solver is asked; where every placement was
simulated, every placement is simulated again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_patterns import host_bound
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.bound_arguments import (
    Argument,
    CutArgument,
    PathArgument,
    WorkArgument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.bound_arguments import LowerBound


# What `all_placements` tries at most.
_MAX_PLACEMENTS = 2**15


class RefusedError(Exception):
    """A bound does not follow from its arguments."""


def verify(
    bound: LowerBound, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> None:
    """Check that arguments show what a bound claims of a graph.

    Raises:
        RefusedError: they do not; the text says where it fails.
    """
    _Check(bound, graph, costs, cluster).run()


class _Check:
    def __init__(
        self, bound: LowerBound, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
    ) -> None:
        self._bound, self._graph, self._costs, self._cluster = bound, graph, costs, cluster
        self._dispatch = cluster.dispatch
        self._devices = [device.name for device in cluster.devices]
        # When a device that is not the first begins, and how long after it its end is known.
        self._remote_ns = {
            device.name: (
                _or(device.remote_start_ns, cluster.dispatch.remote_start_ns),
                _or(device.remote_end_ns, cluster.dispatch.remote_end_ns),
            )
            for device in cluster.devices[1:]
        }
        # Whether ops may run elsewhere than where they are placed, so that a split need not start
        # a further device.
        self._has_hosts = bool(cluster.hosts) or any(
            device.host is not None for device in cluster.devices
        )
        self._ops = {op.name: op for op in graph.ops if op.role is not Role.CONSTANT}
        places = cluster.places()
        for place in places:
            if place.name not in costs:
                raise RefusedError(f"it has no op times for {place.name!r}")
        self._launch_ns = {place.name: place.launch_overhead_ns for place in places}
        # Where launches are ahead of the device, it is busy with kernels, its host with launches.
        self._ahead = {place.name for place in places if place.launches_ahead}
        self._counts_launches = {
            name
            for name in self._ahead
            for ops in [costs[name].costs.values()]
            if len(ops) * self._launch_ns[name] > sum(op.time_ns for op in ops)
        }
        self._runs_at = {
            place.name: {
                name: place.host if place.host and name in bound else place.name
                for name in self._ops
            }
            for place in places
            for bound in [host_bound(graph, place.kind)]
        }
        self._time_ns = {
            name: {
                place: self._cost_ns(name, place)
                for place in {runs_at[name] for runs_at in self._runs_at.values()}
            }
            for name in self._ops
        }

    def run(self) -> None:
        bound = self._bound
        if set(bound.alone_ns) != set(self._cluster.place_names()):
            raise RefusedError("its claims for one device are not for the devices of its cluster")
        for device, claim_ns in bound.alone_ns.items():
            if claim_ns > self._alone_ns(device):
                raise RefusedError(
                    f"one device: all ops on {device} take {self._alone_ns(device)} ns at least, "
                    f"not {claim_ns}"
                )
        for argument in bound.arguments:
            self._check(argument)
        best_ns = max((argument.value_ns for argument in bound.arguments), default=0)
        if bound.split_ns > best_ns + self._dispatch.step_overhead_ns:
            raise RefusedError(f"several devices: no argument shows {bound.split_ns} ns")

    def _check(self, argument: Argument) -> None:
        if isinstance(argument, PathArgument):
            kind, shown_ns = "path", self._path_ns(argument)
        elif isinstance(argument, WorkArgument):
            kind, shown_ns = "work", self._work_ns(argument)
        elif isinstance(argument, CutArgument):
            kind, shown_ns = "cut", self._cut_ns(argument)
        else:
            kind, shown_ns = "all placements", self._all_ns()
        if argument.value_ns > shown_ns:
            raise RefusedError(f"{kind}: it shows {shown_ns} ns, not {argument.value_ns}")

    def _cost_ns(self, op: str, place: str) -> int:
        cost = self._costs[place].costs.get(op)
        if cost is None:
            return 0
        if place not in self._ahead:
            return cost.time_ns + self._launch_ns[place]
        return self._launch_ns[place] if place in self._counts_launches else cost.time_ns

    def _alone_ns(self, device: str) -> int:
        busy_ns: Counter[str] = Counter()
        for op, place in self._runs_at[device].items():
            busy_ns[place] += self._cost_ns(op, place)
        if busy_ns[device] and device in self._remote_ns:
            busy_ns[device] += sum(self._remote_ns[device])
        return max(busy_ns.values(), default=0) + self._dispatch.step_overhead_ns

    def _starts_and_ends_ns(self, place: str) -> tuple[int, int]:
        """Return what passes before a place begins in a split, and after it has ended."""
        if self._has_hosts:
            return 0, 0  # A device and its host may be all that is used.
        if place == self._devices[0]:
            return self._dispatch.partition_overhead_ns, 0
        return self._remote_ns[place]

    def _path_ns(self, argument: PathArgument) -> int:
        if not argument.ops:
            return 0
        for name in argument.ops:
            if name not in self._ops:
                raise RefusedError(f"path: there is no op {name!r} that takes time")
        for first, second in pairwise(argument.ops):
            if all(edge.consumer != second for edge in self._graph.outputs_of(first)):
                raise RefusedError(f"path: {second!r} does not need {first!r}")
        begin_ns = min(self._starts_and_ends_ns(p)[0] for p in self._time_ns[argument.ops[0]])
        end_ns = min(self._starts_and_ends_ns(p)[1] for p in self._time_ns[argument.ops[-1]])
        return begin_ns + sum(min(self._time_ns[op].values()) for op in argument.ops) + end_ns

    def _work_ns(self, argument: WorkArgument) -> int:
        weights = argument.weights
        places = set(self._cluster.place_names())
        if not weights.keys() == places or not sum(weights.values()):
            raise RefusedError("work: its weights are not those of the devices and hosts")
        weighed = 0
        for times_ns in self._time_ns.values():
            weighed += min(weights[place] * time_ns for place, time_ns in times_ns.items())
        # A further device is used by every split; the first one may not be.
        further_ns = min(map(sum, self._remote_ns.values()), default=0)
        for device in self._devices:
            weighed += weights[device] * min(further_ns, sum(self._starts_and_ends_ns(device)))
        return -(-weighed // sum(weights.values()))

    def _cut_ns(self, argument: CutArgument) -> int:
        if self._has_hosts:
            raise RefusedError("cut: it does not hold where there are hosts")
        limits = self._limits()
        root = f"op {argument.root}"
        into: Counter[str] = Counter()
        out_of: Counter[str] = Counter()
        for (source, target), amount_ns in argument.flow.items():
            if (source, target) not in limits:
                raise RefusedError(f"cut: nothing can flow from {source!r} to {target!r}")
            limit_ns = limits[source, target]
            if limit_ns is not None and amount_ns > limit_ns:
                raise RefusedError(
                    f"cut: {amount_ns} ns flow from {source!r} to {target!r}; "
                    f"there is work for {limit_ns} ns"
                )
            out_of[source] += amount_ns
            into[target] += amount_ns
        for name in {*into, *out_of} - {root, "sink"}:
            if into[name] != out_of[name]:
                raise RefusedError(f"cut: into {name!r} flow {into[name]} ns, not {out_of[name]}")
        # The end of its last op says nothing: the device may still be sending when others end.
        return into["sink"] + min(self._starts_and_ends_ns(device)[0] for device in self._devices)

    def _limits(self) -> dict[tuple[str, str], int | None]:
        """Return what may flow where in a cut; None is without limit."""
        limits: dict[tuple[str, str], int | None] = {}
        first: dict[tuple[str, str], str] = {}
        group = {name: first.setdefault(_together(op), name) for name, op in self._ops.items()}
        work_ns: Counter[str] = Counter()
        for name, times_ns in self._time_ns.items():
            work_ns[group[name]] += min(times_ns.values())
        for name, time_ns in work_ns.items():
            limits[f"op {name}", "sink"] = time_ns
        readers: dict[tuple[str, int], set[str]] = defaultdict(set)
        size_bytes: dict[tuple[str, int], int] = {}
        for edge in self._graph.edges:
            if edge.producer in group and edge.consumer in group:
                tensor = edge.producer, edge.port
                # The simulator goes by the first of its edges.
                size_bytes.setdefault(tensor, 0 if edge.is_control else edge.size_bytes or 0)
                readers[tensor].add(group[edge.consumer])
        links = () if self._ahead else self._cluster.links
        work_of_ns = {
            size: (
                min((link.sender.time_ns(size) for link in links), default=0),
                min((link.receiver.time_ns(size) for link in links), default=0),
            )
            for size in set(size_bytes.values())
        }
        for (producer, port), consumers in readers.items():
            home, label = group[producer], f"{producer}:{port}"
            send_ns, receive_ns = work_of_ns[size_bytes[producer, port]]
            limits[f"op {home}", f"sent {label}"] = send_ns
            limits[f"received {label}", f"op {home}"] = receive_ns
            for reader in consumers - {home}:
                limits[f"sent {label}", f"op {reader}"] = None
                limits[f"op {reader}", f"received {label}"] = None
        return limits

    def _all_ns(self) -> int:
        simulator = Simulator(self._graph, self._costs, self._cluster)
        number: dict[tuple[str, str], int] = {}
        group = np.array(
            [number.setdefault(_together(op), len(number)) for op in simulator.ops], np.int64
        )
        places = len(self._cluster.place_names())
        if places ** len(number) > _MAX_PLACEMENTS:
            raise RefusedError("all placements: there are too many to have been simulated")
        try:
            steps_ns = [
                simulator.step_ns_at(np.array(chosen, np.int64)[group])
                for chosen in product(range(places), repeat=len(number))
                if len(set(chosen)) > 1
            ]
        except ValueError as error:
            raise RefusedError(f"all placements: {error}") from None
        return min(steps_ns, default=0) - self._dispatch.step_overhead_ns


def _or(own_ns: int | None, common_ns: int) -> int:
    return common_ns if own_ns is None else own_ns


def _together(op: Op) -> tuple[str, str]:
    """Return what ops have alike that are placed together: their variable, others their own name.

    Which of the two it is stands with it: a graph may name a variable as it likes.
    """
    return ("op", op.name) if op.variable is None else ("variable", op.variable)
