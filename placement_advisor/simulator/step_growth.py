"""A step at other batches than its own, told from traces of it at four.

Model: each dimension of a tensor is the same at any batch or grows with it evenly, so sizes, flops
and bytes are polynomials in the batch, of the degree of the dimensions that grow: logits of all
pairs of samples grow with its square. Traces at the batch and at two, three and four times as much
tell which. Three of them would give any square; that the fourth lies on it tells a polynomial from
what is rounded somewhere (the capacity of an expert), which is taken to be the line that it is
rounded from. What an op takes grows as its work does on a device (`cost/roofline.py`), from what it
takes at the batch. An op whose work is not known grows as the largest of what it reads.

Left out: what an op takes however small its work is (its launch is priced apart); kernels that do
some batches better than others; dimensions that grow otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor.cost import roofline
from placement_advisor.cost.table import CostTable
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import COMPUTING_ROLES, Edge, Inside, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device

# Times the batch, beside it, at which a step is traced.
TIMES = (2, 3, 4)
# Of a polynomial of degree 2 without negative parts, the value at 4 times the batch.
_MOST_OF_A_SQUARE = 4**2
# Rounding up moves a size of a few by a part of it; what lies further off no line is known for.
# Judgement: the capacity of an expert, rounded up to 3 from 2.6, is off by 15 %.
_MOST_ROUNDED = 0.15


class StepGrowth:
    """The op graph of a step, at any batch."""

    def __init__(self, graph: OpGraph, batch: int, larger: Mapping[int, OpGraph]) -> None:
        """Take the graph at its batch and at `TIMES` as much, alike in all but sizes.

        Raises:
            BatchSplitError: something grows in no way that is known.
        """
        self.graph, self.batch = graph, batch
        self._changing: list[_Changing] = []
        rows: list[tuple[int, ...]] = []
        for number, op in enumerate(graph.ops):
            seen = [op, *(larger[times].op(op.name) for times in TIMES)]
            if all(other == op for other in seen):
                continue
            found = _known(list(zip(*map(_amounts, seen), strict=False)), seen)
            self._changing.append(_Changing(number, op, len(found)))
            rows += found
        values = np.array(rows, np.float64).reshape(-1, 1 + len(TIMES)).T
        self._parts = _polynomials(values)
        on_line = self._parts[0] + np.outer(range(len(values)), self._parts[1])
        is_off = (np.abs(on_line - values) > _MOST_ROUNDED * values).any(axis=0)
        is_off &= (self._parts[2:] == 0).all(axis=0)
        for op in self._any_of(is_off.tolist()):
            raise _unknown(op)

    @cached_property
    def faster(self) -> tuple[str, ...]:
        """The ops that do, or make, more for each sample the larger the batch is."""
        is_faster = (self._parts[2:] != 0).any(axis=0)
        return tuple(op.name for op in self._any_of(is_faster.tolist()))

    def costs_at(
        self, batch: int, costs: Mapping[str, CostTable], cluster: Cluster
    ) -> dict[str, CostTable]:
        """Return what ops take at a batch on devices and hosts, from what they take at its own."""
        if batch == self.batch:
            return dict(costs)
        grown = self.at(batch)
        tables: dict[tuple[int, int], CostTable] = {}
        found = {}
        for place, roof in roofline.roofs_by_place(_with_figures(cluster)).items():
            alike = id(costs[place]), id(roof)
            if alike not in tables:
                tables[alike] = _grown(costs[place], self.graph, grown, roof)
            found[place] = tables[alike]
        return found

    def _any_of(self, marked: Sequence[bool]) -> Iterator[Op]:
        """Yield the ops of which any amount is marked."""
        start = 0
        for _, op, count in self._changing:
            if any(marked[start : start + count]):
                yield op
            start += count

    def at(self, batch: int) -> OpGraph:
        """Return the graph at a batch."""
        if batch == self.batch:
            return self.graph
        further = batch / self.batch - 1
        weights = np.cumprod([1.0, further, (further - 1) / 2, (further - 2) / 3])
        values = np.maximum(np.rint(weights @ self._parts), 0).astype(np.int64).tolist()
        ops, start = list(self.graph.ops), 0
        for number, op, count in self._changing:
            ops[number] = _with_amounts(op, values[start : start + count])
            start += count
        grown = {ops[number].name: ops[number] for number, *_ in self._changing}
        edges = [
            edge._replace(size_bytes=grown[edge.producer].output_bytes[edge.port])
            if edge.producer in grown and 0 <= edge.port < len(grown[edge.producer].output_bytes)
            else edge
            for edge in self.graph.edges
        ]
        return OpGraph(ops, edges)


class GrowingStep(NamedTuple):
    """A step with its costs on a cluster, at any batch."""

    growth: StepGrowth
    costs: Mapping[str, CostTable]
    cluster: Cluster

    def simulator(self, batch: int) -> Simulator:
        """Return what simulates the step at a batch.

        Raises:
            AdvisorError: times add up to more than 64 bits hold.
        """
        costs = self.growth.costs_at(batch, self.costs, self.cluster)
        return Simulator(self.growth.at(batch), costs, self.cluster)

    def step_ns(self, placement: Placement, batch: int) -> int:
        """Return what a step takes at a batch."""
        return self.simulator(batch).step_ns(placement)

    def worth(self, batch: int) -> float:
        """Return the work of so many samples, in samples of the step's own batch.

        That is their number, where all that grows does so evenly. It is the time of what grows, on
        the first device.
        """
        growth, device = self.growth, self.cluster.devices[0].name
        now = self.costs[device].costs
        # Two batches: what does not change to one of them by chance does not grow.
        then, other = (
            growth.costs_at(each, self.costs, self.cluster)[device].costs
            for each in (batch, 2 * growth.batch)
        )
        grows = [name for name, cost in other.items() if cost is not now[name]]
        now_ns, then_ns = (sum(each[name].time_ns for name in grows) for each in (now, then))
        return growth.batch * then_ns / now_ns if now_ns else float(batch)


class _Changing(NamedTuple):
    """An op that is not the same at all batches: its number, and how many amounts it has."""

    number: int
    op: Op
    amounts: int


def _amounts(op: Op) -> tuple[int | None, ...]:
    """Return all of an op that may depend on the batch."""
    dims = () if op.kernel is None else op.kernel.dims
    return (op.flops, op.bytes_accessed, op.trips, *op.output_bytes, *(op.inside or ()), *dims)


def _with_amounts(op: Op, values: Sequence[int]) -> Op:
    """Return the op with other amounts, in the order of `_amounts`; what is not known stays so."""
    known = (None if old is None else new for old, new in zip(_amounts(op), values, strict=True))
    flops, bytes_accessed, trips, *rest = known
    ports = len(op.output_bytes)
    outputs, others = rest[:ports], rest[ports:]
    found = op._replace(
        flops=flops, bytes_accessed=bytes_accessed, trips=trips, output_bytes=tuple(outputs)
    )
    if op.inside is not None:
        inside, others = others[: len(op.inside)], others[len(op.inside) :]
        found = found._replace(inside=Inside._make(inside))
    if op.kernel is not None:
        dims = tuple(max(1, dim or 0) for dim in others)
        found = found._replace(kernel=op.kernel._replace(dims=dims))
    return found


def _known(columns: Sequence[Sequence[int | None]], seen: Sequence[Op]) -> list[tuple[int, ...]]:
    """Return the amounts of an op at each batch, 0 for those that are not known at any.

    Raises:
        BatchSplitError: it is another kernel at another batch, or known at some of them.
    """
    rows = []
    for column in columns:
        known = [value for value in column if value is not None]
        if known and len(known) < len(column):
            raise _unknown(seen[0])
        rows.append(tuple(known) or (0,) * len(column))
    kernels = {(op.kernel and op.kernel.family, op.inside is None) for op in seen}
    if len(kernels) > 1 or len({len(_amounts(op)) for op in seen}) > 1:
        raise _unknown(seen[0])
    return rows


def _polynomials(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first value at each column, and its differences up to the third.

    Values are those at 1, 2, 3 and 4 times the batch. Where they lie on no square and grow no
    faster than one, they are on the line through the first and the last.
    """
    differences = [values[0], *(np.diff(values, order, axis=0)[0] for order in (1, 2, 3))]
    parts = np.array(differences)
    is_line = (parts[3] != 0) & (values[3] <= _MOST_OF_A_SQUARE * values[0])
    slope = (values[3] - values[0]) / len(TIMES)
    parts[1] = np.where(is_line, slope, parts[1])
    parts[2:] = np.where(is_line, 0, parts[2:])
    return parts


def _unknown(op: Op) -> BatchSplitError:
    return BatchSplitError(f"how op {op.name!r} ({op.kind}) grows with the batch is not known")


def _with_figures(cluster: Cluster) -> Cluster:
    """Return the cluster with figures for devices that have none: ratios of times need some."""

    def figured(device: Device) -> Device:
        if device.peak_flops_per_s and device.memory_bandwidth_bytes_per_s:
            return device
        return replace(
            device,
            peak_flops_per_s=roofline.STAND_IN_CPU.peak_flops_per_s,
            memory_bandwidth_bytes_per_s=roofline.STAND_IN_CPU.memory_bandwidth_bytes_per_s,
        )

    return replace(
        cluster,
        devices=tuple(map(figured, cluster.devices)),
        hosts=tuple(map(figured, cluster.hosts)),
    )


def _grown(table: CostTable, graph: OpGraph, grown: OpGraph, roof: roofline.Roof) -> CostTable:
    costs, factors = dict(table.costs), dict[str, float]()
    for op, other in zip(graph.ops, grown.ops, strict=True):
        factor = 1.0
        if op.role not in COMPUTING_ROLES:
            pass
        elif op.flops is None and op.bytes_accessed is None:
            reads = (edge for edge in graph.inputs_of(op.name) if not edge.is_control)
            factor = max((_of_tensor(edge, graph, grown, factors) for edge in reads), default=1.0)
        elif op is not other and (now_ns := roof.time_ns(op)):
            factor = roof.time_ns(other) / now_ns
        factors[op.name] = factor
        cost = costs.get(op.name)
        if cost is not None and factor != 1:
            costs[op.name] = replace(cost, time_ns=round(cost.time_ns * factor))
    return CostTable(costs=costs)


def _of_tensor(edge: Edge, graph: OpGraph, grown: OpGraph, factors: Mapping[str, float]) -> float:
    """Return how many times as large a tensor has become; one of unknown size, what makes it."""
    ports = graph.op(edge.producer).output_bytes
    if edge.port < len(ports) and (now_bytes := ports[edge.port]):
        return (grown.op(edge.producer).output_bytes[edge.port] or 0) / now_bytes
    return factors[edge.producer]
