"""The op graph of a step whose batch is split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op import LOOKUP_KINDS
from placement_advisor.graph.op_graph import CONTROL_PORT, Edge, Op, OpGraph, Role
from placement_advisor.graph.op_work.signature import WorkBasis
from placement_advisor.graph.placement import Placement, placed_ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.candidates.batch_split.wiring import Added, Wiring

FAMILY = "batch"


class Read(NamedTuple):
    """What an op of a split step reads; port -1 is a control edge."""

    producer: str
    consumer: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitGraph:
    """The op graph of a split step.

    ``replica_of`` has the replica of each op, None for shared ones; ``source`` the trace and the op
    that it was copied from: the whole batch (None) or that of a replica's share. ``collective_of``
    has the collective of each op that is part of one. ``family`` is that of its placements. The
    last replica stands for ``like_last``, itself included; each of these reads the next port of
    what is ``dealt`` out. Where it ``is_of_hosts``, one device of each host takes part in a
    collective, else all do.
    """

    graph: OpGraph
    replica_of: Mapping[str, int | None]
    source: Mapping[str, tuple[int | None, str]]
    collective_of: Mapping[str, str] = field(default_factory=dict)
    family: str = FAMILY
    like_last: int = 1
    dealt: frozenset[str] = frozenset()
    is_of_hosts: bool = False

    @property
    def last(self) -> int:
        """The number of the last replica."""
        return max(replica for replica in self.replica_of.values() if replica is not None)

    def placed(
        self,
        devices: Sequence[str],
        *,
        label: str,
        rationale: str,
        shared: Mapping[str, str] | str | None = None,
    ) -> Placement:
        """Return the placement of each replica on a device, of shared ops on the first.

        ``shared`` is another place for these, or has one for each. What looks a variable's rows up
        for a replica stays with the variable: only rows cross.
        """

        def place_of(op: Op) -> str:
            replica = self.place_replica(op)
            if replica is not None:
                return devices[replica]
            return shared[self._home(op)] if isinstance(shared, Mapping) else shared or devices[0]

        device_of = {op.name: place_of(op) for op in placed_ops(self.graph)}
        return Placement(label=label, family=self.family, device_of=device_of, rationale=rationale)

    def laid_out(
        self, within: Placement, groups: Sequence[Mapping[str, str]], *, label: str, rationale: str
    ) -> Placement:
        """Return the placement that lays every replica out on a group of devices of its own.

        ``within`` places the unsplit step; a group has a device in place of each of its devices.
        Shared ops are on the first group. What is in no trace sits beside the first op that it
        reads.
        """
        inner: dict[str, str] = {}
        device_of: dict[str, str] = {}
        for op in placed_ops(self.graph):
            name = self._home(op)
            if name in self.source:
                inner[op.name] = within.device_of[self.source[name][1]]
            else:
                producers = (edge.producer for edge in self.graph.inputs_of(op.name))
                inner[op.name] = next(inner[each] for each in producers if each in inner)
            device_of[op.name] = groups[self.replica_of[name] or 0][inner[op.name]]
        return Placement(label=label, family=self.family, device_of=device_of, rationale=rationale)

    def place_replica(self, op: Op) -> int | None:
        """Return the replica on whose device an op is placed, None if with what is shared."""
        return self.replica_of[self._home(op)]

    def _home(self, op: Op) -> str:
        """Return the op or variable that an op stands with, itself if with no other."""
        if op.variable is None and op.kind in LOOKUP_KINDS:
            for edge in self.graph.inputs_of(op.name):
                table = self.graph.op(edge.producer).variable
                if table is not None:
                    return table
        return op.name if op.variable is None else op.variable


def split_graph(
    whole: OpGraph,
    shares: Sequence[OpGraph],
    wiring: Wiring,
    outputs: Iterable[Tensor],
    targets: Iterable[str],
) -> SplitGraph:
    """Put the graph of a split step together from its traces, one for each replica that is made.

    ``outputs`` are the tensors that the unsplit step returns, ``targets`` ops that must run.
    """
    ops: dict[str, Op] = {}
    reads: list[Read] = []
    source: dict[str, tuple[int | None, str]] = {}
    replica_of: dict[str, int | None] = {}

    def add(op: Op, graph: OpGraph, replica: int | None) -> None:
        name = wiring.copy(op.name, replica)
        variable = op.variable and wiring.copy(op.variable, replica)
        ops[name] = op._replace(name=name, variable=variable)
        if replica is not None and op.layer is not None:
            ops[name] = ops[name]._replace(layer=f"{wiring.prefix}_{replica}/{op.layer}")
        source[name], replica_of[name] = (replica, op.name), replica
        for edge in graph.inputs_of(op.name):
            if edge.is_control:
                befores = wiring.befores(edge.producer, replica)
                reads.extend(Read(before, name, CONTROL_PORT) for before in befores)
            else:
                producer, port = wiring.tensor((edge.producer, edge.port), replica)
                reads.append(Read(producer, name, port))

    for op in whole.ops:
        if op.name not in wiring.plan.replicated:
            add(op, whole, None)
    for replica, graph in enumerate(shares):
        for op in graph.ops:
            if wiring.plan.is_copied(op.name):
                add(op, graph, replica)
    ops |= merging_ops(whole, shares, wiring)
    for added in wiring.added():
        replica_of[added.name] = added.replica
        reads += [Read(name, added.name, port) for name, port in dict.fromkeys(added.inputs)]
    ends = [wiring.tensor(tensor, None)[0] for tensor in outputs]
    ends += [name for target in targets for name in wiring.befores(target, None)]
    return SplitGraph(
        graph=needed_graph(ops, reads, ends),
        replica_of=replica_of,
        source=source,
        like_last=wiring.like_last,
        dealt=frozenset(wiring.tensor(tensor, 0)[0] for tensor in wiring.plan.divided),
    )


def merging_ops(whole: OpGraph, shares: Sequence[OpGraph], wiring: Wiring) -> dict[str, Op]:
    """Return the ops of no trace, which join and divide, by name."""
    known = {name: whole.op(name) for name, _ in wiring.plan.divided}
    for name, _ in (*wiring.plan.merged, *wiring.plan.keys):
        for replica in wiring.made:
            known[wiring.copy(name, replica)] = shares[replica].op(name)
    found: dict[str, Op] = {}
    for added in wiring.added():
        known[added.name] = found[added.name] = _op(added, known, whole, wiring.shares)
    return found


def _op(added: Added, ops: Mapping[str, Op], whole: OpGraph, shares: Sequence[int]) -> Op:
    """Return an op that joins or divides: it moves bytes, and does next to nothing else."""
    if added.like is None:  # An axis, or the sizes of the parts.
        count = len(shares) if isinstance(added.value, tuple) else 1
        return Op(name=added.name, kind=added.kind, role=Role.CONSTANT, output_bytes=(4 * count,))
    like = whole.op(added.like[0])
    kinds = like.device_kinds
    if added.kind == "Const":
        return Op(
            name=added.name,
            kind=added.kind,
            role=Role.CONSTANT,
            output_bytes=(4,),
            device_kinds=kinds,
        )
    read = [ops[name].output_bytes[port] for name, port in added.inputs]
    whole_bytes = like.output_bytes[added.like[1]]
    made: tuple[int | None, ...] = (whole_bytes,)
    if added.kind == "Mul":
        made = (read[0],)
    elif added.kind == "SplitV":
        made = tuple(
            None if whole_bytes is None else whole_bytes * share // sum(shares) for share in shares
        )
    moved = [size for size in (*read, *made) if size is not None]
    is_known = len(moved) == len(read) + len(made)
    return Op(
        name=added.name,
        kind=added.kind,
        role=Role.FORWARD if like.role is Role.INPUT else like.role,
        layer=like.layer,
        bytes_accessed=sum(moved) if is_known else None,
        work_basis=WorkBasis.SIZES if is_known else None,
        output_bytes=made,
        device_kinds=kinds,
    )


def needed_graph(ops: Mapping[str, Op], reads: Iterable[Read], ends: Iterable[str]) -> OpGraph:
    """Return the graph of the ops that the ends need; TensorFlow runs no others.

    Edges have the sizes that their producers list.
    """
    of_consumer: dict[str, list[Read]] = {}
    for read in reads:
        of_consumer.setdefault(read.consumer, []).append(read)
    found: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [read.producer for read in of_consumer.get(name, ())]
    return OpGraph(
        (op for op in ops.values() if op.name in found),
        (
            Edge(
                *read,
                0 if read.port == CONTROL_PORT else ops[read.producer].output_bytes[read.port],
            )
            for name, some in of_consumer.items()
            if name in found
            for read in some
        ),
    )
