"""Op costs from the profile of one single-device run.

Model: profile and graph are joined by op name. Every op of the step ran, so an op that the
profile does not show was too short for it: it is priced like the cheapest kinds that it does
show, and says so (`GUESSED`). What the profile holds beside the graph's ops (transfers, ops that
TensorFlow added) is left out. Profiled ops are somewhat slower than unprofiled ones; nothing is
taken off for that.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import TestbedError
from placement_advisor.graph.op import COST_FREE_ROLES, Role
from placement_advisor.graph.op_work import elementwise
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.graph.op_graph import OpGraph

# The cheapest quarter of the kinds: enough of them that one odd kind does not decide, few enough
# that kinds which compute are not among them. Judgement.
CHEAPEST_KINDS_SHARE = 0.25
# Ops that TensorFlow runs inline as cheap (shape and control ops) take a few µs at most. The limit
# matters where a profile shows expensive ops only. Judgement; `advisor calibrate` shows what one
# takes.
UNSEEN_OP_LIMIT_NS = 10_000


def measured_costs(graph: OpGraph, op_ns: Mapping[str, int]) -> CostTable:
    """Return what the ops of the graph took; ``op_ns`` is the time by op name of one step.

    Constants have no cost: they are made once, before the step. Inputs and variables have one
    only if the profile shows them.

    Raises:
        TestbedError: the profile shows none of the graph's ops.
    """
    unseen = OpCost(time_ns=unseen_op_ns(graph, op_ns), basis=CostBasis.GUESSED)
    costs = {}
    for op in graph.ops:
        if op.role is Role.CONSTANT:
            continue
        if op.name in op_ns:
            costs[op.name] = OpCost(time_ns=op_ns[op.name], basis=CostBasis.MEASURED)
        elif op.role not in COST_FREE_ROLES:
            costs[op.name] = unseen
    return CostTable(costs=costs)


def with_members(
    op_ns: Mapping[str, int], members: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Return op times with those of the ops within loops and conditionals counted to these.

    A loop has no event of its own in a profile, only the ops that it runs. Ops of one name in
    several bodies (a function that is called twice) are shared out evenly.
    """
    owners: dict[str, list[str]] = {}
    for composite, inside in members.items():
        for name in inside:
            owners.setdefault(name, []).append(composite)
    found = {name: time_ns for name, time_ns in op_ns.items() if name not in owners}
    for name in op_ns.keys() & owners.keys():
        for composite in owners[name]:
            found[composite] = found.get(composite, 0) + op_ns[name] // len(owners[name])
    return found


def unseen_op_ns(graph: OpGraph, op_ns: Mapping[str, int]) -> int:
    """Return the price of an op that ran but is not in the profile.

    That is the median over the cheapest quarter of the kinds (at least one kind) of the median
    time of the kind's ops, at most `UNSEEN_OP_LIMIT_NS`.

    Raises:
        TestbedError: the profile shows none of the graph's ops.
    """
    by_kind: dict[str, list[int]] = {}
    for op in graph.ops:
        if op.name in op_ns:
            by_kind.setdefault(op.kind, []).append(op_ns[op.name])
    if not by_kind:
        raise TestbedError(
            f"the profile of the single-device run shows none of the graph's {len(graph)} ops",
            hint="run again; if it happens every time, the profiler does not work on this machine",
        )
    kind_ns = sorted(median(times) for times in by_kind.values())
    cheapest = kind_ns[: max(1, int(len(kind_ns) * CHEAPEST_KINDS_SHARE))]
    return min(round(median(cheapest)), UNSEEN_OP_LIMIT_NS)


def dispatch_overhead_ns(*, in_ops_ns: int, compute_ns: int, op_count: int) -> int:
    """Return what a serial executor spends per op beside the op itself, at least 0.

    On one device nothing runs at the same time, so the step is its ops, the round trip that
    starts and ends it, and the executor's work between ops, here shared out evenly. As launch
    overhead of the device it makes the simulated single-device step as long as the measured one.

    ``in_ops_ns`` is the unprofiled step without that round trip, ``compute_ns`` the sum of the cost
    table and ``op_count`` the number of ops in it, so that the simulator charges what was shared
    out. Where profiling made the ops longer than that, the answer is 0.
    """
    return max(0, round((in_ops_ns - compute_ns) / op_count))


def ns_per_byte(measured: Iterable[tuple[OpGraph, CostTable]]) -> float:
    """Return what ops that work element by element took for each byte that they access.

    Where none was measured, a byte costs what it does on the CPU that is assumed elsewhere.
    """
    time_ns = moved_bytes = 0
    for graph, costs in measured:
        for op in graph.ops:
            cost = costs.costs.get(op.name)
            if cost is None or cost.basis is not CostBasis.MEASURED or not op.bytes_accessed:
                continue
            if op.kind in elementwise.ELEMENTWISE_FORMULAS:
                time_ns += cost.time_ns
                moved_bytes += op.bytes_accessed
    if not moved_bytes:
        return NS_PER_S / (STAND_IN_CPU.memory_bandwidth_bytes_per_s or 1)
    return time_ns / moved_bytes
