"""Op costs and links come from a recorded profile, whose ops are joined with the graph by name.

A joined op costs the median over the steps in which it ran. Of fused ops, the one that the fused
kernel is named after has the time, and the others are free. A loop costs what was recorded of the
ops within it.

The same op may have another name in the profile: `StatefulPartitionedCall/` before it where
another function called the step, `outer/while/body/_17/` where TensorFlow put a loop body,
and other counters behind it. Such differences are seen through only where the match is
certain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.links import fit_link
from placement_advisor.cost.measured_costs import with_members
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import COMPUTING_ROLES
from placement_advisor.profile.device_trace import UNKNOWN_END

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Link
    from placement_advisor.profile.recorded_ops import RecordedOp, RecordedProfile, Sample

    Named = tuple[str, str | None]
    Ran = tuple[str, str]
    Claim = tuple[str, Ran]


_INLINED = re.compile(r".*/(?:body|cond|then|else)/_\d+/")
_CALLED = re.compile(r"^(?:while(?:_\d+)?/)?(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
# `SimplifyAggregation_Mul_add` is the product that replaces the op `add`.
_REPLACED = re.compile(r"\bArithmeticOptimizer/(?:SimplifyAggregation_Mul|[A-Za-z]+)_(?=[^/]*$)")
_COUNTED = re.compile(r"(.*?)((?:_\d{1,9})*)")
_VERSION = re.compile(r"V\d+$")
# What an op of each kind runs as after TensorFlow's arithmetic optimizer and constant folding, seen
# with TensorFlow 2.21 (`tests/tf/test_training.py` records them).
CHEAPER_KINDS = {
    "Add": {"Sub", "Mul"},
    "AddN": {"Mul"},
    "Log": {"LogSoftmax"},
    "Mul": {"Square"},
    "Pow": {"Square", "Sqrt", "Rsqrt", "Reciprocal"},
    "RealDiv": {"Mul", "Reciprocal"},
    "Sqrt": {"Rsqrt"},
    "Sub": {"SquaredDifference"},
}
GRADIENTS = "gradient_tape"


@dataclass(slots=True)
class _Scope:
    """Ops by the last part of their name, and the scopes within."""

    ops: defaultdict[str, list[Named]] = field(default_factory=lambda: defaultdict(list))
    scopes: defaultdict[str, _Scope] = field(default_factory=lambda: defaultdict(_Scope))


def same_ops(kinds: Mapping[str, str | None], ran: Collection[Ran]) -> dict[Ran, str]:
    """Return which op of the graph each recorded op is, where that is certain.

    ``kinds`` has the kind of each op of the graph by its name, None where it is not known.
    """
    certain = _certain(_claims(_tree(kinds.items()), _tree(ran)))
    known = set(certain.values())
    graph = _tree((name, kind) for name, kind in kinds.items() if name not in known)
    recorded = _tree(op for op in ran if op not in certain)
    return certain | _certain(_claims_within_one_more_scope(graph, recorded))


def plain(name: str) -> str:
    """Return the name without what was put into it because of how the op was run."""
    return _REPLACED.sub("", _CALLED.sub("", _INLINED.sub("", name)))


def _tree(ops: Iterable[Named]) -> _Scope:
    root = _Scope()
    for name, kind in ops:
        *path, last = plain(name).split("/")
        scope = root
        for part in path:
            scope = scope.scopes[part]
        scope.ops[last].append((name, kind))
    return root


def _certain(claims: Iterable[Claim]) -> dict[Ran, str]:
    """Return those of the claims that no other contradicts; equal names decide."""
    by_op: defaultdict[str, set[Ran]] = defaultdict(set)
    by_ran: defaultdict[Ran, set[str]] = defaultdict(set)
    for op, ran in claims:
        by_op[op].add(ran)
        by_ran[ran].add(op)
    return {
        ran: op
        for op, rans in by_op.items()
        for ran in rans
        if (len(rans) == 1 and len(by_ran[ran]) == 1)
        or (op == ran[0] and sum(name == op for name, _ in rans) == 1)
    }


def _claims(graph: _Scope, recorded: _Scope) -> Iterator[Claim]:
    pairs = [(graph, recorded)]
    while pairs:
        graph, recorded = pairs.pop()
        for last in graph.ops.keys() & recorded.ops.keys():
            for name, kind in graph.ops[last]:
                for ran, ran_kind in recorded.ops[last]:
                    if ran_kind is not None and _agree(kind, ran_kind):
                        yield name, (ran, ran_kind)
        pairs += _same_scopes(graph, recorded)


def _claims_within_one_more_scope(graph: _Scope, recorded: _Scope) -> Iterator[Claim]:
    pairs = [(graph, recorded)]
    if GRADIENTS in graph.scopes and GRADIENTS in recorded.scopes:
        pairs.append((graph.scopes[GRADIENTS], recorded.scopes[GRADIENTS]))
    for of_graph, of_recorded in pairs:
        for inner in of_recorded.scopes.values():
            yield from _claims(of_graph, inner)
        for inner in of_graph.scopes.values():
            yield from _claims(inner, of_recorded)


def _agree(kind: str | None, ran_kind: str) -> bool:
    if kind is None or ran_kind.startswith("_"):
        return True
    kind, ran_kind = _VERSION.sub("", kind), _VERSION.sub("", ran_kind)
    return kind == ran_kind or ran_kind in CHEAPER_KINDS.get(kind, ())


def _same_scopes(graph: _Scope, recorded: _Scope) -> Iterator[tuple[_Scope, _Scope]]:
    are_ops = graph.ops.keys() | recorded.ops.keys()
    of_graph = _by_stem(graph.scopes.keys() - are_ops)
    of_recorded = _by_stem(recorded.scopes.keys() - are_ops)
    same = [(name, name) for name in graph.scopes.keys() & recorded.scopes.keys() & are_ops]
    for stem in of_graph.keys() & of_recorded.keys():
        ours, theirs = of_graph[stem], of_recorded[stem]
        if len(ours) == len(theirs):
            same += zip(ours, theirs, strict=True)
        elif set(theirs) < set(ours):
            same += zip(theirs, theirs, strict=True)
    yield from ((graph.scopes[ours], recorded.scopes[theirs]) for ours, theirs in same)


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the scopes that differ in their numbers alone, in the order of these."""
    counted: defaultdict[str, list[tuple[list[int], str]]] = defaultdict(list)
    for name in names:
        found = _COUNTED.fullmatch(name)
        assert found is not None, "the pattern matches everything"
        counted[found[1]].append(([int(digits) for digits in found[2].split("_")[1:]], name))
    return {stem: [name for _, name in sorted(found)] for stem, found in counted.items()}


# With less of its time joined, a recording is more likely of another model than of this one.
# Judgement.
LEAST_JOINED_SHARE = 0.5
MAX_NAMED = 5
# A line always goes through two points; the third tells whether it is one.
LEAST_SIZES = 3
# Where the largest copies take less than four times as long as the smallest, most of what is seen
# is the latency: a line through copies of 1 B to 6 kB to a V100 said 3 GB/s.
LEAST_SLOWDOWN = 4.0

# `_FusedMatMul`, `_MklNativeConv2DWithBias`: the kind of the op that does most of it.
_FUSED = re.compile(r"_\w*?Fused(\w+)|_Mkl(?:Native)?(\w+?)WithBias\w*")
_BIAS_GRADIENT = "BiasAddGrad"
# What replicas exchange, and mostly wait for one another in: of no step on one device.
_EXCHANGE = re.compile(r"(?:Collective|Nccl)\w+")
# Convolution, bias, addition, activation: what TensorFlow fuses at most has three edges.
_MAX_FUSED_EDGES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How much of a recording and of a graph found each other.

    ``time_share`` is the share of the recorded device time that was joined, of all but what
    replicas exchange; ``op_share`` that of the ops with a cost whose cost was recorded. Of what was
    left over, the ops that take most: ``recorded_only`` as recorded in one step, ``graph_only`` as
    estimated.
    """

    time_share: float
    op_share: float
    recorded_only: tuple[tuple[str, int], ...]
    graph_only: tuple[tuple[str, int], ...]


def recorded_costs(
    graph: OpGraph,
    recorded: RecordedProfile,
    fallback: CostTable,
    members: Mapping[str, Collection[str]] | None = None,
) -> tuple[CostTable, Coverage]:
    """Return the costs of the ops of the graph, recorded where possible, else of the fallback.

    ``members`` names the ops within each loop and conditional.

    Raises:
        AdvisorError: less than `LEAST_JOINED_SHARE` of the recorded device time belongs to the
            graph.
    """
    members = members or {}
    joined = joined_ops(graph, recorded, members)
    op_ns = {name: op.median_ns for name, op in joined}
    for name, op in joined:
        op_ns |= dict.fromkeys(_fused_into(graph, name, op.kind, op_ns), 0)
    op_ns = with_members(op_ns, members)
    measured = {
        name: OpCost(time_ns=time_ns, basis=CostBasis.MEASURED) for name, time_ns in op_ns.items()
    }
    costs = CostTable(costs={**fallback.costs, **measured})
    coverage = _coverage(recorded, {op for _, op in joined}, costs)
    if coverage.time_share < LEAST_JOINED_SHARE:
        raise AdvisorError(
            f"only {coverage.time_share:.0%} of the device time in the profile {recorded.path} "
            f"belongs to ops of the model; in the profile are {_examples(coverage.recorded_only)}, "
            f"in the model {_examples(coverage.graph_only)}",
            hint="record the same model, in the same mode (training or inference)",
        )
    return costs, coverage


def joined_ops(
    graph: OpGraph, recorded: RecordedProfile, members: Mapping[str, Collection[str]]
) -> list[tuple[str, RecordedOp]]:
    """Return the recorded ops that are ops of the graph, or within its loops, by their name there.

    ``members`` names the ops within each loop and conditional.
    """
    kinds: dict[str, str | None] = {
        name: None for inside in members.values() for name in inside
    } | {op.name: op.kind for op in graph.ops if op.role in COMPUTING_ROLES}
    same = same_ops(kinds, [(op.name, op.kind) for op in recorded.ops])
    return [
        (same[op.name, op.kind], op)
        for op in recorded.ops
        if (op.name, op.kind) in same and _counts(op, same[op.name, op.kind], graph)
    ]


def recorded_links(recorded: RecordedProfile) -> dict[tuple[str, str], Link]:
    """Return the links of which the copies on them say enough.

    The basis is measured. Copies to a GPU that has no plane in the profile are left out.
    """
    return {
        ends: fit_link(*ends, samples)
        for ends, samples in recorded.copies.items()
        if ends[1] != UNKNOWN_END and _say_enough(samples)
    }


def _say_enough(samples: Sequence[Sample]) -> bool:
    by_size: dict[int, list[int]] = {}
    for size_bytes, time_ns in samples:
        by_size.setdefault(size_bytes, []).append(time_ns)
    smallest_ns, largest_ns = median(by_size[min(by_size)]), median(by_size[max(by_size)])
    return len(by_size) >= LEAST_SIZES and largest_ns >= LEAST_SLOWDOWN * smallest_ns


def _counts(op: RecordedOp, name: str, graph: OpGraph) -> bool:
    return op.on_device or (name in graph and "GPU" not in graph.op(name).device_kinds)


def _fused_into(graph: OpGraph, name: str, kind: str, joined: Collection[str]) -> Collection[str]:
    """Return the ops that the fused kernel of that kind did besides the one it is named after.

    They were not seen themselves, and lead from the op that gave the kernel its kind to that one.
    """
    fused = _FUSED.fullmatch(kind)
    if fused is None or name not in graph:
        return ()
    main_kind = fused[1] or fused[2]
    if graph.op(name).kind == main_kind:
        # The gradient of a filter, with that of the bias from the same tensor.
        return {
            edge.consumer
            for read in graph.inputs_of(name)
            for edge in graph.outputs_of(read.producer)
            if graph.op(edge.consumer).kind == _BIAS_GRADIENT and edge.consumer not in joined
        }
    paths: list[tuple[str, ...]] = [(name,)]
    for _ in range(_MAX_FUSED_EDGES):
        paths = [
            (*path, edge.producer)
            for path in paths
            for edge in graph.inputs_of(path[-1])
            if not edge.is_control and edge.producer not in joined
        ]
        for path in paths:
            if graph.op(path[-1]).kind == main_kind:
                return path[1:]
    return ()


def _coverage(
    recorded: RecordedProfile, joined: Collection[RecordedOp], costs: CostTable
) -> Coverage:
    on_device = [op for op in recorded.ops if op.on_device and not _EXCHANGE.fullmatch(op.kind)]
    joined_ns = sum(sum(op.step_ns) for op in on_device if op in joined)
    device_ns = recorded.anonymous_ns + sum(sum(op.step_ns) for op in on_device)
    measured = sum(cost.basis is CostBasis.MEASURED for cost in costs.costs.values())
    return Coverage(
        time_share=joined_ns / device_ns if device_ns else 0.0,
        op_share=measured / len(costs.costs) if costs.costs else 0.0,
        recorded_only=_largest(
            (f"{op.name}:{op.kind}", op.median_ns) for op in on_device if op not in joined
        ),
        graph_only=_largest(
            (name, cost.time_ns)
            for name, cost in costs.costs.items()
            if cost.basis is not CostBasis.MEASURED
        ),
    )


def _largest(times: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(times, key=lambda named: (-named[1], named[0]))[:MAX_NAMED])


def _examples(named: Sequence[tuple[str, int]]) -> str:
    return ", ".join(name for name, _ in named) or "none beside these"
