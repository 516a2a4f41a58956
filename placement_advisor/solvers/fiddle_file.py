"""Problems of the benchmark of Tarnawski et al. (2020), in the JSON format of msr-fiddle.

A file names its own devices: so many accelerators of one memory size, and so many CPUs, which have
no limit and pay for no copies. Its times are in units of its own. Nodes of one colour class stay
together. The file is not trusted.

Source: https://github.com/msr-fiddle/dnn-partitioning
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from placement_advisor.files.foreign_json import (
    MisfitError,
    as_object,
    field,
    integer,
    list_of,
    shown,
    within,
)
from placement_advisor.graph.digraph import find_cycle, topological_order
from placement_advisor.solvers.problem import Pool, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

# Files come from graphs of some thousand nodes; a proof for ten times as many takes hours.
MAX_NODES = 20_000
MAX_DEVICES = 64
# Whatever the units are: times of a year in ns and sizes of 100 TB are mistakes.
_MAX_TIME = 3e16
_MAX_SIZE_BYTES = 1e14


def is_fiddle(document: object) -> bool:
    """Return whether a JSON document claims to be of this format."""
    return isinstance(document, dict) and "maxFPGAs" in document


def read_fiddle(document: object) -> Problem:
    """Return the problem that a document poses.

    Devices are named ``accelerator:0`` and so on, then ``CPU:0``. Sizes are rounded up to bytes.

    Raises:
        MisfitError: it poses none.
    """
    table = as_object(document)
    accelerators, cpus = (
        field(table, key, partial(integer, what="a number of devices", high=MAX_DEVICES))
        for key in ("maxFPGAs", "maxCPUs")
    )
    if not accelerators + cpus:
        raise MisfitError("there is no device", "maxFPGAs")
    capacity = field(table, "maxSizePerFPGA", _size)
    nodes = field(table, "nodes", partial(list_of, _node))
    if not 1 <= len(nodes) <= MAX_NODES:
        raise MisfitError(f"{len(nodes)} nodes; there may be 1 to {MAX_NODES}", "nodes")
    number = {node.id: i for i, node in enumerate(nodes)}
    if len(number) < len(nodes):
        twice = next(i for i, node in enumerate(nodes) if number[node.id] != i)
        raise MisfitError(f"{nodes[twice].id} is defined twice", f"nodes[{twice}].id")
    edges = field(table, "edges", partial(list_of, partial(_edge, number)))
    _check_order(nodes, edges)
    return Problem(
        ops=tuple(str(node.id) for node in nodes),
        edges=tuple(dict.fromkeys((producer, consumer) for producer, consumer, _ in edges)),
        copy_time=_copy_time(len(nodes), edges),
        size_bytes=tuple(node.size_bytes for node in nodes),
        backward=frozenset(i for i, node in enumerate(nodes) if node.is_backward),
        groups=_groups(nodes),
        pools=tuple(
            pool
            for pool in (
                Pool(
                    devices=tuple(f"accelerator:{i}" for i in range(accelerators)),
                    work=tuple(node.accelerator_work for node in nodes),
                    capacity_bytes=int(capacity),
                ),
                Pool(
                    devices=tuple(f"CPU:{i}" for i in range(cpus)),
                    work=tuple(node.cpu_work for node in nodes),
                    pays_for_copies=False,
                ),
            )
            if pool.devices
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    id: int
    accelerator_work: float | None
    cpu_work: float
    size_bytes: int
    is_backward: bool
    color: int | None


def _number(value: object, *, high: float) -> float:
    if type(value) not in (int, float) or not 0 <= value <= high:  # type: ignore[operator]
        raise MisfitError(f"{shown(value)} is not a number from 0 to {high:g}")
    return float(value)  # type: ignore[arg-type]


def _flag(value: object) -> bool:
    if value not in (0, 1):
        raise MisfitError(f"{shown(value)} is neither 0 nor 1")
    return bool(value)


_time = partial(_number, high=_MAX_TIME)
_size = partial(_number, high=_MAX_SIZE_BYTES)
_id = partial(integer, what="a whole number", low=-(2**62))


def _node(value: object) -> _Node:
    table = as_object(value)
    work, cpu_work = (field(table, key, _time) for key in ("fpgaLatency", "cpuLatency"))
    size = field(table, "size", _size)
    can_accelerate = field(table, "supportedOnFpga", _flag)
    return _Node(
        id=field(table, "id", _id),
        accelerator_work=work if can_accelerate else None,
        cpu_work=cpu_work,
        size_bytes=math.ceil(size),
        is_backward=within("isBackwardNode", _flag, table.get("isBackwardNode", 0)),
        color=within("colorClass", _id, table["colorClass"]) if "colorClass" in table else None,
    )


def _edge(number: dict[int, int], value: object) -> tuple[int, int, float]:
    """Return producer, consumer and cost, the nodes by number."""
    table = as_object(value)
    ends = []
    for key in ("sourceId", "destId"):
        end = field(table, key, _id)
        if end not in number:
            raise MisfitError(f"there is no node {end}", key)
        ends.append(number[end])
    return ends[0], ends[1], field(table, "cost", _time)


def _check_order(nodes: Sequence[_Node], edges: Sequence[tuple[int, int, float]]) -> None:
    sources, targets = [edge[0] for edge in edges], [edge[1] for edge in edges]
    if topological_order(len(nodes), sources, targets) is None:
        cycle = find_cycle(len(nodes), sources, targets)
        named = " → ".join(str(nodes[i].id) for i in [*cycle[:8], cycle[0]])
        raise MisfitError(f"a cycle of {len(cycle)} nodes: {named}", "edges")


def _copy_time(count: int, edges: Sequence[tuple[int, int, float]]) -> tuple[float, ...]:
    """Return what the output of each node costs: one tensor, whoever reads it."""
    costs: dict[int, float] = {}
    for i, (producer, _, cost) in enumerate(edges):
        if costs.setdefault(producer, cost) != cost:
            raise MisfitError(
                f"{cost:g}, and {costs[producer]:g} on another edge of the same source",
                f"edges[{i}].cost",
            )
    return tuple(costs.get(node, 0.0) for node in range(count))


def _groups(nodes: Sequence[_Node]) -> tuple[tuple[int, ...], ...]:
    """Return the nodes of each colour together, others alone, in the order of their first."""
    groups: list[list[int]] = []
    of_color: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.color is None:
            groups.append([i])
        elif node.color in of_color:
            of_color[node.color].append(i)
        else:
            groups.append(of_color.setdefault(node.color, [i]))
    return tuple(map(tuple, groups))
