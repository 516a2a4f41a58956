"""A traced step in numbers: sizes, work, and what keeps it from being split.

The numbers are those of one step, as it was traced. A tensor counts once, however many ops read
it. Ops that hand a buffer on (a reshape) make no tensor of their own, and the reading of a
variable makes none either. A loop or branch counts as the one op that it is.

Left out: peak memory, which depends on the order of the ops; times, which depend on devices.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from placement_advisor.files.contract import Count, Positive, Share, Text
from placement_advisor.graph import layer_structure
from placement_advisor.graph.layer_view import layer_view
from placement_advisor.graph.op import (
    BRANCH_KINDS,
    COMPUTING_ROLES,
    LOOP_KINDS,
    STANDING_ROLES,
    Role,
    Total,
)
from placement_advisor.graph.op_work.movement import ALIAS_KINDS, VARIABLE_READ_KINDS
from placement_advisor.graph.slow_patterns import HostKind, host_kinds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph

# A step has thousands of tensors; the first few show where its memory goes.
LARGEST_TENSORS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeTensor:
    """A tensor."""

    op: Text
    port: Count
    """Number of the output, from 0."""
    kind: Text
    """Type of the op."""
    role: Role
    layer: Text | None
    size_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Ops of a kind, and what of the work is theirs."""

    kind: Text
    """Type of the op."""
    ops: Positive
    flops: Total
    flops_share: Share | None
    """Of all known flops."""
    bytes_accessed: Total
    bytes_accessed_share: Share | None
    """Of all known bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlow:
    """A loop or a conditional."""

    op: Text
    kind: Literal["While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"]
    """Type of the op."""
    role: Role
    layer: Text | None
    trips: Count | None
    """None if unknown, or for a conditional."""
    flops_share: Share | None
    """Of all its turns."""
    bytes_accessed_share: Share | None
    """Of all its turns."""

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop; else one of its branches runs."""
        return self.kind in LOOP_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """A step in numbers.

    ``parameter_bytes`` are of variables that the forward pass reads and does not write,
    ``state_bytes`` of all others, such as an optimizer's slots. ``trains`` says whether there is a
    backward pass: ``activation_bytes`` are then of the forward tensors that it reads, otherwise of
    all. ``flops`` and ``bytes_accessed`` have a part for each op that computes. What lies in ops of
    known flops is ``flops_known_bytes_share`` of the bytes accessed, None if an op of unknown flops
    has unknown bytes as well. Lists are complete, but for ``largest_tensors``, and sorted, heaviest
    first; ``joins``, ``parallel_branches`` and ``repeated_blocks`` stand in layer order.
    """

    graph_fingerprint: str
    ops_by_role: Mapping[Role, int]
    layers: int
    ops_with_layer_share: float
    edge_bytes: Total
    control_edges: int
    parameter_bytes: Total
    state_bytes: Total
    constant_bytes: Total
    trains: bool
    activation_bytes: Total
    flops: Total
    bytes_accessed: Total
    flops_known_bytes_share: float | None
    largest_tensors: tuple[LargeTensor, ...]
    joins: tuple[layer_structure.Join, ...]
    parallel_branches: tuple[layer_structure.ParallelBranches, ...]
    repeated_blocks: tuple[layer_structure.RepeatedBlocks, ...]
    kinds: tuple[Kind, ...]
    host_only: tuple[HostKind, ...]
    control_flow: tuple[ControlFlow, ...]

    @property
    def ops(self) -> int:
        """Number of ops."""
        return sum(self.ops_by_role.values())


def summarize(graph: OpGraph) -> GraphSummary:
    """Return what the graph holds."""
    tensors = _tensors(graph)
    view = layer_view(graph)
    computing = [op for op in graph.ops if op.role in COMPUTING_ROLES]
    flops = Total.of(op.flops for op in computing)
    bytes_accessed = Total.of(op.bytes_accessed for op in computing)
    priced_bytes = sum(op.bytes_accessed or 0 for op in computing if op.flops is not None)
    is_all_sized = all(op.flops is not None or op.bytes_accessed is not None for op in computing)
    data_edges = [edge for edge in graph.edges if not edge.is_control]
    variables = [op for op in graph.ops if op.role is Role.VARIABLE and op.parameter_bytes]
    read = read_variables(graph)
    state = set(variables) - set(read)
    return GraphSummary(
        graph_fingerprint=graph.fingerprint,
        ops_by_role={
            role: count for role in Role if (count := sum(op.role is role for op in graph.ops))
        },
        layers=len(graph.layers()),
        ops_with_layer_share=(
            sum(op.layer is not None for op in computing) / len(computing) if computing else 1.0
        ),
        edge_bytes=Total.of(edge.size_bytes for edge in data_edges),
        control_edges=len(graph.edges) - len(data_edges),
        parameter_bytes=Total.of(op.parameter_bytes for op in read),
        state_bytes=Total.of(op.parameter_bytes for op in state),
        constant_bytes=Total.of(
            size for op in graph.ops if op.role is Role.CONSTANT for size in op.output_bytes
        ),
        trains=any(op.role is Role.BACKWARD for op in graph.ops),
        activation_bytes=_activations(graph, tensors),
        flops=flops,
        bytes_accessed=bytes_accessed,
        flops_known_bytes_share=(_share(priced_bytes, bytes_accessed) if is_all_sized else None),
        largest_tensors=_largest(graph, tensors),
        joins=layer_structure.towers(view, layer_structure.counting_layers(graph, view)),
        parallel_branches=layer_structure.parallel_branches(view),
        repeated_blocks=layer_structure.repeated_blocks(graph, view),
        kinds=_kinds(computing, flops, bytes_accessed),
        host_only=host_kinds(graph),
        control_flow=_control_flow(computing, flops, bytes_accessed),
    )


def _share(part: int | None, whole: Total) -> float | None:
    return part / whole.known if part is not None and whole.known else None


def _tensors(graph: OpGraph) -> dict[tuple[str, int], int | None]:
    """Return the size of every tensor that takes memory of its own in a step."""
    return {
        (op.name, port): size
        for op in graph.ops
        if op.role not in STANDING_ROLES and op.kind not in ALIAS_KINDS | VARIABLE_READ_KINDS
        for port, size in enumerate(op.output_bytes)
    }


def _activations(graph: OpGraph, tensors: Mapping[tuple[str, int], int | None]) -> Total:
    """Return the forward tensors that the backward pass reads; all of them if there is none."""
    forward = {key for key in tensors if graph.op(key[0]).role is Role.FORWARD}
    if any(op.role is Role.BACKWARD for op in graph.ops):
        held = _held(graph)
        forward &= {
            held.get(edge.producer, edge.tensor)
            for edge in graph.edges
            if not edge.is_control and graph.op(edge.consumer).role is Role.BACKWARD
        }
    return Total.of(tensors[key] for key in forward)


def _held(graph: OpGraph) -> dict[str, tuple[str, int]]:
    """Return for each op that hands a buffer on the op and port whose tensor lies in it."""
    held: dict[str, tuple[str, int]] = {}
    for op in graph.ops:
        if op.kind not in ALIAS_KINDS:
            continue
        inputs = graph.data_inputs(op.name)
        if inputs:
            # The other input, if there is one, is a shape or an axis: smaller, often a constant.
            main = max(
                inputs,
                key=lambda e: (graph.op(e.producer).role is not Role.CONSTANT, e.size_bytes or 0),
            )
            held[op.name] = held.get(main.producer, main.tensor)
    return held


def _largest(
    graph: OpGraph, tensors: Mapping[tuple[str, int], int | None]
) -> tuple[LargeTensor, ...]:
    known = [
        LargeTensor(
            op=name,
            port=port,
            kind=(op := graph.op(name)).kind,
            role=op.role,
            layer=op.layer,
            size_bytes=size,
        )
        for (name, port), size in tensors.items()
        if size is not None
    ]
    known.sort(key=lambda tensor: (-tensor.size_bytes, tensor.op, tensor.port))
    return tuple(known[:LARGEST_TENSORS])


def read_variables(graph: OpGraph) -> tuple[Op, ...]:
    """Return the variables that the forward pass reads and does not write.

    What it writes counts something: a metric, a step, how often random numbers were drawn.
    """
    found = []
    for op in graph.ops:
        if op.role is Role.VARIABLE and op.parameter_bytes:
            takers = [graph.op(edge.consumer) for edge in graph.outputs_of(op.name)]
            forward = [taker for taker in takers if taker.role is Role.FORWARD]
            if forward and not any(taker.kind.startswith("Assign") for taker in forward):
                found.append(op)
    return tuple(found)


def _kinds(computing: list[Op], flops: Total, bytes_accessed: Total) -> tuple[Kind, ...]:
    groups: dict[str, list[Op]] = defaultdict(list)
    for op in computing:
        groups[op.kind].append(op)
    found = []
    for kind, ops in groups.items():
        its_flops = Total.of(op.flops for op in ops)
        its_bytes = Total.of(op.bytes_accessed for op in ops)
        found.append(
            Kind(
                kind=kind,
                ops=len(ops),
                flops=its_flops,
                flops_share=_share(its_flops.amount, flops),
                bytes_accessed=its_bytes,
                bytes_accessed_share=_share(its_bytes.amount, bytes_accessed),
            )
        )
    # By the larger share, so that what is heavy in arithmetic and what is heavy in memory
    # traffic both come first.
    return tuple(
        sorted(
            found,
            key=lambda k: (-max(k.flops_share or 0, k.bytes_accessed_share or 0), -k.ops, k.kind),
        )
    )


def _control_flow(
    computing: list[Op], flops: Total, bytes_accessed: Total
) -> tuple[ControlFlow, ...]:
    found = [
        ControlFlow(
            op=op.name,
            kind=op.kind,  # type: ignore[arg-type]
            role=op.role,
            layer=op.layer,
            trips=op.trips,
            flops_share=_share(op.flops, flops),
            bytes_accessed_share=_share(op.bytes_accessed, bytes_accessed),
        )
        for op in computing
        if op.kind in LOOP_KINDS | BRANCH_KINDS
    ]
    return tuple(
        sorted(found, key=lambda c: (-max(c.flops_share or 0, c.bytes_accessed_share or 0), c.op))
    )
