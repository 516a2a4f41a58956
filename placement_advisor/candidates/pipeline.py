"""A pipeline: layers in one order, cut into stretches, one for each device.

The order keeps together what belongs together (`structure.order`); the cuts make the fullest device
as little loaded as possible. A device is loaded with its ops, forward and backward ops of a layer
alike, and with the copies from and to it, as long as these take. A variable that layers of several
stretches read stands with the first of them. Parameters must fit the memory of their device.

A device can stay without a stretch where one more cut costs more than it takes off. One step goes
through the stages of a chain one after the other: there, the fullest device tells what further
steps could follow at, and not what this one takes. So of three devices and more as many are used,
from the first on, as make the simulated step shorter, one after the other.

Left out: micro-batches; memory of activations; links that differ (the one between the first two
devices counts); cuts within a layer, and, of more than a thousand layers, between some.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.by_layer import NotApplicable, busy_ns, listed, place_by_layer
from placement_advisor.graph.layer_structure import depth_first
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import COMPUTING_ROLES
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import counted, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.pipeline_stages import Pool, StageProblem

FAMILY = "pipeline"
MIN_STAGES = 2
# A cut at a thousandth of the work is off by no more than that, and all are tried within seconds.
MAX_BLOCKS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """A stretch of layers on a device, and for how long its ops keep that busy."""

    device: str
    layers: tuple[str, ...]
    busy_ns: int

    def __str__(self) -> str:
        first, last = self.layers[0], self.layers[-1]
        span = first if first == last else f"{first} … {last}"
        return f"{span} on {self.device} ({format_ns(self.busy_ns)})"


def propose(
    graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster
) -> Placement | NotApplicable:
    """Return the placement that cuts the layers into stretches.

    Not applicable with one device or one layer, where no cut pays, or where none fits.
    """
    view = layer_view(graph)
    layers = depth_first(view)
    if len(cluster.devices) < MIN_STAGES:
        return NotApplicable(FAMILY, "there is one device")
    if len(layers) < MIN_STAGES:
        return NotApplicable(FAMILY, "the step has no two layers to cut between")
    work_ns = busy_ns(graph, costs, cluster)
    member_of = {op.name: view.membership.layer_of.get(op.name, op.layer) for op in graph.ops}
    block_of = _blocks(layers, member_of, work_ns[cluster.devices[0].name])
    blocks = tuple(dict.fromkeys(block_of.values()))
    # Blocks stand in for devices: every op gets the block that it moves with.
    with_block = place_by_layer(graph, block_of, {}, blocks[0], member=view.membership)
    problem = _problem(graph, with_block, blocks, work_ns, cluster)
    cuts = _cuts(problem, blocks, cluster, work_ns)
    if len(cluster.devices) > MIN_STAGES and _is_priced(graph, costs):
        simulator = Simulator(graph, costs, cluster)
        on = _shortest(cuts, lambda cut: simulator.step_ns(_placement(_placed(with_block, cut))))
    else:
        on = next(reversed([*cuts]), None)
    if on is None:
        return NotApplicable(
            FAMILY,
            "no cut gives each device parameters that fit its memory: the step has "
            f"{format_bytes(graph.parameter_bytes)} of them",
        )
    device_of = _placed(with_block, on)
    stages = _stages({layer: on[block_of[layer]] for layer in layers}, device_of, work_ns)
    if len(stages) < MIN_STAGES:
        return NotApplicable(
            FAMILY,
            "any cut costs more in copies than it takes off one device, which has "
            f"{format_ns(stages[0].busy_ns)} of work",
        )
    tensors, crossing_bytes = _crossing(graph, device_of)
    return _placement(
        device_of,
        f"{len(stages)} stages: {listed(list(map(str, stages)))}; "
        f"{counted(tensors, 'tensor')} of {format_bytes(crossing_bytes)} together cross",
    )


def _cuts(
    problem: StageProblem,
    blocks: Sequence[str],
    cluster: Cluster,
    work_ns: Mapping[str, Mapping[str, int]],
) -> Iterator[dict[str, str]]:
    """Yield the device of each block on the first two devices, three, and so on, where one fits."""
    # Compiled code takes a second to load.
    from placement_advisor.solvers.pipeline_stages import best_stages

    names = cluster.device_names()
    for count in range(MIN_STAGES, len(names) + 1):
        pools = _pools(problem.ops, cluster.with_devices(names[:count]), work_ns)
        cut = best_stages(replace(problem, pools=pools))
        if cut is not None:
            yield dict(zip(blocks, cut, strict=True))


def _is_priced(graph: OpGraph, costs: Mapping[str, CostTable]) -> bool:
    """Return whether there is a step to simulate. What runs on hosts has its cost there."""
    return all(
        any(op.name in table.costs for table in costs.values())
        for op in graph.ops
        if op.role in COMPUTING_ROLES
    )


def _shortest(
    cuts: Iterator[dict[str, str]], step_ns: Callable[[dict[str, str]], int]
) -> dict[str, str] | None:
    """Return the last cut before the first that makes the step no shorter; None of none."""
    best, best_ns = None, 0
    for cut in cuts:
        its_ns = step_ns(cut)
        if best is not None and its_ns >= best_ns:
            break
        best, best_ns = cut, its_ns
    return best


def _placed(with_block: Mapping[str, str], on: Mapping[str, str]) -> dict[str, str]:
    return {op: on[block] for op, block in with_block.items()}


def _placement(device_of: Mapping[str, str], rationale: str = "") -> Placement:
    return Placement.of(FAMILY, device_of, rationale)


def _blocks(
    layers: Sequence[str], layer_of: Mapping[str, str | None], work_ns: Mapping[str, int]
) -> dict[str, str]:
    """Return the block of each layer: the layer itself, or its part of the work if there are many.

    A block is named after its first layer.
    """
    if len(layers) <= MAX_BLOCKS:
        return {layer: layer for layer in layers}
    # One apiece, so that layers without known costs are shared out as well.
    layer_ns = dict.fromkeys(layers, 1)
    for op, layer in layer_of.items():
        if layer in layer_ns:
            layer_ns[layer] += work_ns.get(op, 0)
    total_ns = sum(layer_ns.values())
    first: dict[int, str] = {}
    block_of, before_ns = {}, 0
    for layer in layers:
        block_of[layer] = first.setdefault(before_ns * MAX_BLOCKS // total_ns, layer)
        before_ns += layer_ns[layer]
    return block_of


def _problem(
    graph: OpGraph,
    with_block: Mapping[str, str],
    blocks: Sequence[str],
    work_ns: Mapping[str, Mapping[str, int]],
    cluster: Cluster,
) -> StageProblem:
    """Return what is to be cut, in ns, on devices yet to be told; the groups are the blocks."""
    from placement_advisor.solvers.pipeline_stages import StageProblem

    ops = tuple(op for op in graph.ops if op.name in with_block)
    number = {op.name: i for i, op in enumerate(ops)}
    groups: dict[str, list[int]] = {block: [] for block in blocks}
    for i, op in enumerate(ops):
        groups[with_block[op.name]].append(i)
    link = cluster.link(*cluster.device_names()[:2])
    on_host = _on_hosts(graph, cluster)
    pairs: dict[tuple[int, int], None] = {}
    leaving: dict[int, dict[int, int]] = defaultdict(dict)
    for edge in graph.edges:
        ends = edge.producer, edge.consumer
        # What comes from a host or goes there crosses wherever the cuts are.
        if edge.is_control or not with_block.keys() >= {*ends} or not on_host.isdisjoint(ends):
            continue
        if with_block[edge.producer] != with_block[edge.consumer]:
            pairs[number[edge.producer], number[edge.consumer]] = None
            leaving[number[edge.producer]][edge.port] = link.transfer_ns(edge.size_bytes or 0)
    return StageProblem(
        ops=tuple(op.name for op in ops),
        edges=tuple(pairs),
        copy_time=tuple(float(sum(leaving[i].values())) for i in range(len(ops))),
        size_bytes=tuple(op.parameter_bytes for op in ops),
        groups=tuple(map(tuple, groups.values())),
        pools=(),
    )


def _pools(
    ops: Sequence[str], cluster: Cluster, work_ns: Mapping[str, Mapping[str, int]]
) -> tuple[Pool, ...]:
    """Return the devices, those together that take the same time and have the same memory."""
    from placement_advisor.solvers.pipeline_stages import Pool

    alike: dict[tuple[int, int | None], list[str]] = defaultdict(list)
    for device in cluster.devices:
        alike[id(work_ns[device.name]), device.memory_bytes].append(device.name)
    return tuple(
        Pool(
            devices=tuple(devices),
            work=tuple(float(work_ns[devices[0]].get(op, 0)) for op in ops),
            capacity_bytes=memory_bytes,
        )
        for (_, memory_bytes), devices in alike.items()
    )


def _on_hosts(graph: OpGraph, cluster: Cluster) -> frozenset[str]:
    kinds = {device.kind for device in cluster.devices if device.host is not None}
    return frozenset().union(*(graph.host_bound(kind) for kind in kinds))


def _stages(
    device_of_layer: Mapping[str, str],
    device_of: Mapping[str, str],
    work_ns: Mapping[str, Mapping[str, int]],
) -> list[_Stage]:
    """Return the stages in the order of the layers."""
    layers: dict[str, list[str]] = defaultdict(list)
    for layer, device in device_of_layer.items():
        layers[device].append(layer)
    totals_ns = dict.fromkeys(layers, 0)
    for op, device in device_of.items():
        totals_ns[device] += work_ns[device].get(op, 0)
    return [
        _Stage(device=device, layers=tuple(some), busy_ns=totals_ns[device])
        for device, some in layers.items()
    ]


def _crossing(graph: OpGraph, device_of: Mapping[str, str]) -> tuple[int, int]:
    """Return how many tensors go to another device, and their bytes as far as known."""
    crossing = {
        (edge.producer, edge.port, device_of[edge.consumer]): edge.size_bytes or 0
        for edge in graph.edges
        if not edge.is_control
        and device_of.keys() >= {edge.producer, edge.consumer}
        and device_of[edge.producer] != device_of[edge.consumer]
    }
    return len(crossing), sum(crossing.values())
