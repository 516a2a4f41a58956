"""The op graph of a step whose batch is split.

`Wiring` builds it op by op from traces at the whole batch and at shares of it; the variables
stand where `placed_on_devices` puts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.candidates.batch_split.plan import SplitPlan
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.graph.digraph import reached
from placement_advisor.graph.op import CONTROL_PORT, LOOKUP_KINDS, Edge, Op, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement

if TYPE_CHECKING:
    from placement_advisor.candidates.batch_split.plan import Tensor


def replica_copy(name: str, replica: int | None) -> str:
    """Return the name of a replica's copy of an op, or of what all replicas make together."""
    return f"replicas/{name}" if replica is None else f"replica_{replica}/{name}"


class Merge(StrEnum):
    """How the tensors of replicas become that of the unsplit step."""

    MEAN = "mean"
    SUM = "sum"
    CONCAT = "concat"
    # Parts for each sample, of a mean over the batch: gradients of looked-up rows.
    WEIGHTED_CONCAT = "weighted-concat"
    SAME = "same"


class Added(NamedTuple):
    """An op of no trace: its kind, the tensors that it reads, and the replica it belongs to.

    ``like`` is a tensor of the unsplit step (or of a replica's) of the same type, ``value`` the
    number or numbers that a constant holds. ``replica`` is None for what is shared.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...] = ()
    like: Tensor | None = None
    value: float | int | tuple[int, ...] | None = None
    replica: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the ops of a split step are named and joined.

    ``shares`` are the samples of each replica; ``merges`` has an entry for each merged tensor of
    the plan, ``axes`` the axis of the batch of each tensor that is divided or put together. If it
    ``is_folded``, which equal shares can be, the second replica stands for all further ones.
    """

    plan: SplitPlan
    shares: tuple[int, ...]
    merges: Mapping[Tensor, Merge]
    axes: Mapping[Tensor, int]
    is_folded: bool = False

    @property
    def made(self) -> range:
        """The replicas that the step is made of; the last one may stand for others."""
        return range(min(len(self.shares), 2) if self.is_folded else len(self.shares))

    @property
    def representatives(self) -> list[int]:
        """The replica that stands for each, itself where it is made."""
        return [min(replica, self.made[-1]) for replica in range(len(self.shares))]

    @property
    def like_last(self) -> int:
        """How many replicas the last one stands for, itself included."""
        return 1 + len(self.shares) - len(self.made)

    def copy(self, name: str, replica: int | None) -> str:
        """Return the name of an op, or of a replica's copy of it."""
        if replica is None or not self.plan.is_copied(name):
            return name
        return replica_copy(name, replica)

    def tensor(self, tensor: Tensor, reader: int | None) -> Tensor:
        """Return what a replica, or a shared op (None), reads in place of a tensor."""
        name, port = tensor
        if reader and tensor in self.plan.keys:
            return f"{self._base(tensor, reader)}/own", 0
        if reader is not None and tensor in self.plan.divided:
            return f"{self._base(tensor)}/divided", reader
        if reader is None and name in self.plan.replicated:
            if self.merges[tensor] is Merge.SAME:
                return self.copy(name, 0), port
            return f"{self._base(tensor)}/merged", 0
        return self.copy(name, reader), port

    def befores(self, name: str, reader: int | None) -> tuple[str, ...]:
        """Return the ops that a replica, or a shared op, waits for in place of an op."""
        if reader is None and name in self.plan.replicated:
            return tuple(self.copy(name, i) for i in self.made)
        return (self.copy(name, reader),)

    def added(self) -> Iterator[Added]:
        """Yield what is in neither trace, producers first."""
        for tensor in self.plan.merged:
            yield from self._merged(tensor)
        for tensor in self.plan.divided:
            yield from self._divided(tensor)
        for tensor in self.plan.keys:
            for replica in self.made[1:]:
                yield from self._own_key(tensor, replica)

    def _merged(self, tensor: Tensor) -> Iterator[Added]:
        merge, base = self.merges[tensor], self._base(tensor)
        own = [(self.copy(tensor[0], i), tensor[1]) for i in self.made]
        if merge is Merge.SAME:
            return
        if merge in (Merge.MEAN, Merge.WEIGHTED_CONCAT):
            for i in self.made:
                name = self._base(tensor, i)
                weight = self.shares[i] / sum(self.shares)
                yield Added(f"{name}/weight", "Const", like=tensor, value=weight, replica=i)
                yield Added(
                    f"{name}/weighted",
                    "Mul",
                    (own[i], (f"{name}/weight", 0)),
                    like=tensor,
                    replica=i,
                )
                own[i] = (f"{name}/weighted", 0)
        parts = [own[i] for i in self.representatives]
        if merge in (Merge.CONCAT, Merge.WEIGHTED_CONCAT):
            yield Added(f"{base}/axis", "Const", value=self.axes[tensor])
            inputs = (*parts, (f"{base}/axis", 0))
            yield Added(f"{base}/merged", "ConcatV2", inputs, like=tensor)
        else:
            yield Added(f"{base}/merged", "AddN", tuple(parts), like=tensor)

    def _divided(self, tensor: Tensor) -> Iterator[Added]:
        base = self._base(tensor)
        yield Added(f"{base}/sizes", "Const", value=self.shares)
        yield Added(f"{base}/axis", "Const", value=self.axes[tensor])
        yield Added(
            f"{base}/divided",
            "SplitV",
            (tensor, (f"{base}/sizes", 0), (f"{base}/axis", 0)),
            like=tensor,
        )

    def _own_key(self, tensor: Tensor, replica: int) -> Iterator[Added]:
        """Yield what changes a key by the replica's number; the first one keeps it as it is."""
        base, key = self._base(tensor, replica), (self.copy(tensor[0], replica), tensor[1])
        number = f"{base}/number", 0
        yield Added(number[0], "Const", like=tensor, value=replica, replica=replica)
        yield Added(f"{base}/own", "BitwiseXor", (key, number), like=tensor, replica=replica)

    def _base(self, tensor: Tensor, replica: int | None = None) -> str:
        name, port = tensor
        return replica_copy(f"{name}_{port}" if port else name, replica)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTraces:
    """A step at its whole batch, and at each share of it, by number of samples.

    ``wiring`` says how replicas are joined, ``outputs`` are the tensors that the step returns,
    ``targets`` ops that must run.
    """

    whole: OpGraph
    shares: Mapping[int, OpGraph]
    wiring: Wiring
    outputs: tuple[Tensor, ...]
    targets: tuple[str, ...]

    @property
    def replicas(self) -> tuple[OpGraph, ...]:
        """The trace of the share of each replica that is made."""
        return tuple(self.shares[self.wiring.shares[replica]] for replica in self.wiring.made)

    def first(self, count: int) -> SplitTraces:
        """Return them for the first replicas, as those of one of several hosts."""
        return replace(self, wiring=replace(self.wiring, shares=self.wiring.shares[:count]))

    def weak(self, count: int) -> SplitTraces:
        """Return them for as many replicas with the whole batch each, of any size."""
        batch = sum(self.wiring.shares)
        return replace(
            self, shares={batch: self.whole}, wiring=replace(self.wiring, shares=(batch,) * count)
        )

    def repeated(self, graph: OpGraph, times: int) -> SplitTraces:
        """Return them for one replica with so many batches; ``graph`` is the trace of these."""
        samples = sum(self.wiring.shares) * times
        return replace(
            self,
            whole=graph,
            shares={samples: graph},
            wiring=replace(self.wiring, shares=(samples,)),
        )

    def of_share(self, count: int) -> SplitTraces:
        """Return them for as many replicas with the largest share each."""
        most = max(self.shares)
        wiring = replace(self.wiring, shares=(most,) * count)
        return replace(self, shares={most: self.shares[most]}, wiring=wiring)

    def folded(self) -> SplitTraces:
        """Return them with one replica for all but the first, where all have the same share."""
        is_even = len(set(self.wiring.shares)) == 1
        return replace(self, wiring=replace(self.wiring, is_folded=is_even))


def unsplit(graph: OpGraph, batch: int) -> SplitTraces:
    """Return a step that is not split as one whose only replica has all of it to itself."""
    names = [op.name for op in graph.ops]
    plan = SplitPlan(replicated=frozenset(names), local=frozenset(), merged=(), divided=())
    return SplitTraces(
        whole=graph,
        shares={batch: graph},
        wiring=Wiring(plan=plan, shares=(batch,), merges={}, axes={}),
        outputs=(),
        targets=tuple(names),
    )


FAMILY = "batch"


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

        device_of = {op.name: place_of(op) for op in self.graph.placed_ops}
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
        for op in self.graph.placed_ops:
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


def split_graph(traces: SplitTraces) -> SplitGraph:
    """Put the graph of a split step together from its traces."""
    whole, wiring = traces.whole, traces.wiring
    ops: dict[str, Op] = {}
    reads: list[Edge] = []
    source: dict[str, tuple[int | None, str]] = {}
    replica_of: dict[str, int | None] = {}

    def add(op: Op, graph: OpGraph, replica: int | None) -> None:
        name = wiring.copy(op.name, replica)
        variable = op.variable and wiring.copy(op.variable, replica)
        ops[name] = op._replace(name=name, variable=variable)
        if replica is not None and op.layer is not None:
            ops[name] = ops[name]._replace(layer=replica_copy(op.layer, replica))
        source[name], replica_of[name] = (replica, op.name), replica
        for edge in graph.inputs_of(op.name):
            if edge.is_control:
                befores = wiring.befores(edge.producer, replica)
                reads.extend(Edge(before, name, CONTROL_PORT) for before in befores)
            else:
                producer, port = wiring.tensor(edge.tensor, replica)
                reads.append(Edge(producer, name, port))

    for op in whole.ops:
        if op.name not in wiring.plan.replicated:
            add(op, whole, None)
    for replica, graph in enumerate(traces.replicas):
        for op in graph.ops:
            if wiring.plan.is_copied(op.name):
                add(op, graph, replica)
    ops |= merging_ops(traces)
    for added in wiring.added():
        replica_of[added.name] = added.replica
        reads += [Edge(name, added.name, port) for name, port in dict.fromkeys(added.inputs)]
    ends = [wiring.tensor(tensor, None)[0] for tensor in traces.outputs]
    ends += [name for target in traces.targets for name in wiring.befores(target, None)]
    return SplitGraph(
        graph=needed_graph(ops, reads, ends),
        replica_of=replica_of,
        source=source,
        like_last=wiring.like_last,
        dealt=frozenset(wiring.tensor(tensor, 0)[0] for tensor in wiring.plan.divided),
    )


def merging_ops(traces: SplitTraces) -> dict[str, Op]:
    """Return the ops of no trace, which join and divide, by name."""
    wiring = traces.wiring
    known = {name: traces.whole.op(name) for name, _ in wiring.plan.divided}
    for name, _ in (*wiring.plan.merged, *wiring.plan.keys):
        for replica, graph in enumerate(traces.replicas):
            known[wiring.copy(name, replica)] = graph.op(name)
    found: dict[str, Op] = {}
    for added in wiring.added():
        like = None if added.like is None else traces.whole.op(added.like[0])
        known[added.name] = found[added.name] = _op(added, known, like, wiring.shares)
    return found


def _op(added: Added, ops: Mapping[str, Op], like: Op | None, shares: Sequence[int]) -> Op:
    """Return an op that joins or divides: it moves bytes, and does next to nothing else."""
    made_as = Op(name=added.name, kind=added.kind)
    if like is not None:
        made_as = made_as._replace(device_kinds=like.device_kinds)
    if added.like is None or like is None or added.kind == "Const":
        count = len(added.value) if isinstance(added.value, tuple) else 1
        return made_as._replace(role=Role.CONSTANT, output_bytes=(4 * count,))
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
    return made_as._replace(
        role=Role.FORWARD if like.role is Role.INPUT else like.role,
        layer=like.layer,
        bytes_accessed=sum(moved) if is_known else None,
        work_basis=WorkBasis.SIZES if is_known else None,
        output_bytes=made,
    )


def needed_graph(ops: Mapping[str, Op], reads: Iterable[Edge], ends: Iterable[str]) -> OpGraph:
    """Return the graph of the ops that the ends need; TensorFlow runs no others.

    Edges have the sizes that their producers list.
    """
    of_consumer: dict[str, list[Edge]] = {}
    for read in reads:
        of_consumer.setdefault(read.consumer, []).append(read)
    found = reached(ends, lambda name: [read.producer for read in of_consumer.get(name, ())])
    return OpGraph(
        (op for op in ops.values() if op.name in found),
        (
            read._replace(
                size_bytes=0 if read.is_control else ops[read.producer].output_bytes[read.port]
            )
            for name, some in of_consumer.items()
            if name in found
            for read in some
        ),
    )


ON_HOST = "variables-on-host"
SPREAD = "variables-spread"
# What `make_parallel` calls these places.
VARIABLES = {FAMILY: "first", ON_HOST: "host", SPREAD: "spread"}
BY_VARIABLES = tuple(VARIABLES)


def graph_of(family: str) -> str:
    """Return the family that has the same graph: variables of one can stand in several places."""
    return FAMILY if family in BY_VARIABLES else family


def placed_on_devices(
    family: str, split: SplitGraph, devices: Sequence[str], host: str | None, rationale: str
) -> Placement | NotApplicable:
    """Return the placement of a family whose step has a replica on each device.

    ``host`` is that of the first device.
    """
    shared: Mapping[str, str] | str = devices[0]
    if family == SPREAD:
        shared = _spread(split, devices)
    elif family == ON_HOST:
        if host is None:
            reason = f"{devices[0]} has no host beside it that could hold variables"
            return NotApplicable(family, reason)
        shared = host
    placed = split.placed(devices, label=family, rationale=rationale, shared=shared)
    return replace(placed, family=family)


def _spread(split: SplitGraph, devices: Sequence[str]) -> dict[str, str]:
    """Return a device for each shared op: that of its layer's variables, or of its first reader."""
    graph = split.graph
    layers: Counter[str] = Counter()
    for op in graph.ops:
        if split.replica_of[op.name] is None and op.variable is not None:
            layers[_layer(op)] += op.parameter_bytes
    held = dict.fromkeys(devices, 0)
    device_of_layer = {}
    for layer, size_bytes in sorted(layers.items(), key=lambda each: (-each[1], each[0])):
        device = min(devices, key=lambda name: held[name])
        held[device] += size_bytes
        device_of_layer[layer] = device
    return _beside_readers(graph, split, device_of_layer, devices[0])


def _layer(op: Op) -> str:
    return op.layer or op.variable or op.name


def _beside_readers(
    graph: OpGraph, split: SplitGraph, device_of_layer: dict[str, str], default: str
) -> dict[str, str]:
    found: dict[str, str] = {}
    first_reader: dict[str, str] = {}
    for edge in graph.edges:
        if split.replica_of[edge.consumer] is None:
            first_reader.setdefault(edge.producer, edge.consumer)
    for op in reversed(graph.ops):
        if split.replica_of[op.name] is not None:
            continue
        own = device_of_layer.get(_layer(op))
        if own is None and op.name in first_reader:
            own = found[first_reader[op.name]]
        found[op.name] = own or default
    return found
