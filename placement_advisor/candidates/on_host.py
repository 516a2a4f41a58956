"""Ops that the host of a GPU does sooner: what ends a step, and loops of small ops.

The two families count what a placement on a GPU and its host comes to: what ops take where they
run, and what tensors take that cross between the two, each once to either side. Ops without a GPU
kernel run on the host in any case, so what they exchange with others crosses until these join them.

*Tail*: ops are added from the ends of the step, readers before what they read, those of a list that
was begun first, then those that lose least on the host. Of all ends on the way, the first is kept
that saves nearly the most.

*Loops*: each loop, with the lists that it fills, goes to the host if the sum becomes less, and so
does what stands between.

Workers that stand in for devices have no host and are all alike. There the families move what they
would on a GPU (`_STAND_IN`), to the second worker: it can be run and verified, and gains nothing.

The sum takes one op and copy after the other. Where the step as simulated, which has both sides at
work at once, gains nothing, there is no placement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, listed
from placement_advisor.candidates.references import propose_single
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op import LOOP_KINDS, Edge, Op, Role
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import counted, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

TAIL, LOOPS = "tail-on-host", "loops-on-host"
# What a worker stands in for: which one hardly matters, as copies and launches decide.
_STAND_IN = "V100"
# Judgement: op times are off by a tenth and more, so of two ends that save nearly as much, the one
# with fewer ops.
_NEARLY = 0.9


def propose_tail(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement with the end of the step on the host.

    Not applicable to steps that train: they end in updates, which stand with their variables.
    """
    if any(op.role is Role.UPDATE for op in graph.ops):
        return NotApplicable(TAIL, "the step ends in updates of variables")
    return _propose(TAIL, _Halves.move_tail, graph, costs, cluster)


def propose_loops(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement with those loops on the host that take longer on the device.

    Not applicable without loops.
    """
    if all(op.kind not in LOOP_KINDS for op in graph.ops):
        return NotApplicable(LOOPS, "the step has no loop")
    return _propose(LOOPS, _Halves.move_loops, graph, costs, cluster)


def _propose(
    family: str,
    move: Callable[[_Halves], int],
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
) -> Placement | NotApplicable:
    device, host = cluster.devices[0], cluster.first_host()
    if host is None:
        return NotApplicable(family, f"{device.name} has no host, and no other device")
    where = host
    if device.host is None:
        cluster = read_hardware(_STAND_IN)
        costs = roofline_by_place(graph, cluster)
        where = f"{host}, for want of a host, as if {device.name} were a {_STAND_IN}"
    if not costs[cluster.devices[0].name].costs:
        return NotApplicable(family, "the times of its ops are not known")
    halves = _Halves(graph, costs, cluster)
    saved_ns = move(halves)
    moved = [op for op in graph.placed_ops if op.name in halves.moved]
    if not moved:
        return NotApplicable(family, f"nothing of it takes less time on {where}")
    layers = list(dict.fromkeys(op.layer or op.name for op in moved))
    found = halves.placement(
        family,
        f"{counted(len(moved), 'op')} ({listed(layers)}) on {where}: "
        f"{format_ns(saved_ns)} less for ops and copies; the rest on {device.name}",
    )
    alone = propose_single(graph, costs, cluster)
    simulator = Simulator(graph, costs, cluster)
    if simulator.step_ns(found) >= simulator.step_ns(alone):
        reason = f"{listed(layers)} on {where} would save nothing of the simulated step"
        return NotApplicable(family, reason)
    return found.renamed({cluster.devices[0].name: device.name, halves.host: host})


class _Halves:
    """A step on a device and its host, of which ops are ``moved`` to the host.

    Constants are copied to whoever reads them and count nothing, sizes that are unknown neither.
    """

    def __init__(self, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster) -> None:
        device = cluster.devices[0]
        (host,) = (place for place in cluster.places() if place.name == device.host)
        self.device, self.host = device.name, host.name
        self.moved: set[str] = set()
        self._graph = graph
        self._ops = graph.placed_ops
        self._bound = graph.host_bound(device.kind)
        self._there, self._back = (
            cluster.link(*ends) for ends in ((device.name, host.name), (host.name, device.name))
        )
        self._longer_ns = {
            op.name: host.busy_ns(costs[host.name].time_ns(op.name))
            - device.busy_ns(costs[device.name].time_ns(op.name))
            for op in self._ops
            if op.name in costs[device.name].costs and op.name not in self._bound
        }
        self._with: defaultdict[str, list[str]] = defaultdict(list)
        for op in self._ops:
            self._with[op.variable or op.name].append(op.name)

    def placement(self, family: str, rationale: str) -> Placement:
        """Return where the ops stand now."""
        device_of = {
            op.name: self.host if op.name in self.moved else self.device for op in self._ops
        }
        return Placement.of(family, device_of, rationale)

    def move_tail(self) -> int:
        """Move the end that saves most; return how much that is.

        Ops of one variable or list stay together, so an end may not part them.
        """
        unread = Counter(edge.producer for op in self._ops for edge in self._inputs(op.name))
        taken, total_ns, ends = list[str](), 0, [(0, 0)]
        parted: Counter[str] = Counter()

        def turn(op: Op) -> tuple[bool, int, int, str]:
            loss_ns = self._longer_ns.get(op.name, 0)
            return op.variable not in parted, loss_ns, -self._graph.index(op.name), op.name

        heap = [turn(op) for op in self._ops if not unread[op.name]]
        heapify(heap)
        while heap:
            *_, name = heappop(heap)
            total_ns += self._move([name])
            taken.append(name)
            home = self._graph.op(name).variable or name
            parted[home] += 1
            if parted[home] == len(self._with[home]):
                del parted[home]
            if not parted:
                ends.append((-total_ns, len(taken)))
            for edge in self._inputs(name):
                unread[edge.producer] -= 1
                if not unread[edge.producer]:
                    heappush(heap, turn(self._graph.op(edge.producer)))
        saved_ns, kept = next(end for end in ends if end[0] >= _NEARLY * max(ends)[0])
        self.moved = set(taken[:kept]) - self._bound
        return saved_ns

    def move_loops(self) -> int:
        """Move each loop that then takes less; return what all save."""
        total_ns = 0
        for op in self._ops:
            if op.kind in LOOP_KINDS and op.name not in self.moved:
                before = set(self.moved)
                change_ns = self._move(self._closed(self._with[op.variable or op.name]))
                if change_ns < 0:
                    total_ns -= change_ns
                else:
                    self.moved = before
        return total_ns

    def _closed(self, names: Collection[str]) -> set[str]:
        """Return the ops with those that read from and are read by them alone."""
        readers = {edge.consumer for name in names for edge in self._outputs(name)}
        between = {
            reader
            for reader in readers
            if self._outputs(reader)
            and {edge.producer for edge in self._inputs(reader)} <= {*names}
            and {edge.consumer for edge in self._outputs(reader)} <= {*names}
        }
        return {*names, *between}

    def _move(self, names: Collection[str]) -> int:
        """Move ops to the host; return how much longer ops and copies take then."""
        tensors = {
            edge.tensor: edge
            for name in names
            for edge in (*self._inputs(name), *self._outputs(name))
        }
        before_ns = sum(map(self._crossing_ns, tensors.values()))
        self.moved.update(names)
        after_ns = sum(map(self._crossing_ns, tensors.values()))
        return after_ns - before_ns + sum(self._longer_ns.get(name, 0) for name in names)

    def _crossing_ns(self, tensor: Edge) -> int:
        is_there = self._is_there(tensor.producer)
        readers = (e for e in self._outputs(tensor.producer) if e.port == tensor.port)
        if all(self._is_there(edge.consumer) is is_there for edge in readers):
            return 0
        link = self._back if is_there else self._there
        return link.transfer_ns(tensor.size_bytes or 0)

    def _is_there(self, name: str) -> bool:
        return name in self.moved or name in self._bound

    def _inputs(self, name: str) -> list[Edge]:
        return [
            edge
            for edge in self._graph.inputs_of(name)
            if self._graph.op(edge.producer).role is not Role.CONSTANT
        ]

    def _outputs(self, name: str) -> list[Edge]:
        return [
            edge
            for edge in self._graph.outputs_of(name)
            if self._graph.op(edge.consumer).role is not Role.CONSTANT
        ]
