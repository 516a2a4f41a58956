"""The op graph of a mirrored step, as `tf.distribute.MirroredStrategy` runs it.

Over gRPC an all-reduce is a ring of ops between replicas, elsewhere one op of all replicas.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.candidates.batch_split import split_graph as batch_graph
from placement_advisor.candidates.batch_split.split_graph import Merge, SplitTraces, replica_copy
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role, WorkBasis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.graph.op_graph import OpGraph


_PACK = "pack"


class RingTensor(NamedTuple):
    """A tensor of a replica: the op that makes it, its port, its bytes.

    ``replica`` is None for what all replicas make together.
    """

    replica: int | None
    op: str
    port: int
    size_bytes: int


class RingOp(NamedTuple):
    """An op of a collective on a replica, with what it reads and the bytes of what it makes.

    ``replica`` is None for an op that all replicas take part in. ``kept`` are tensors that are held
    until it ends, though it does not touch them.
    """

    replica: int | None
    name: str
    kind: str
    inputs: tuple[RingTensor, ...]
    made_bytes: tuple[int, ...]
    kept: tuple[RingTensor, ...] = ()

    @property
    def collective(self) -> str:
        """The collective that it is of."""
        return self.name.rpartition("/")[0]


def is_pack(name: str) -> bool:
    """Say whether an op begins a collective, by its name."""
    return name.endswith(f"/{_PACK}")


def all_reduce(
    name: str, parts: Sequence[Sequence[RingTensor]], after: str | None
) -> Iterator[RingOp]:
    """Yield the ops that add up ``parts``, those of each replica, into ``NAME/done`` of each.

    They begin after the op ``after`` of their replica.
    """
    count = len(parts)
    sizes = [tensor.size_bytes for tensor in parts[0]]
    total = sum(sizes)
    chunks = [total // count + (place < total % count) for place in range(count)]
    pack = f"{name}/{_PACK}"
    for replica in range(count):
        packed = (*parts[replica], *_before(replica, after))
        yield RingOp(replica, pack, "ConcatV2", packed, tuple(chunks))
        hops = []
        for hop in range(2 * (count - 1)):
            chunk = (replica - 1 - hop) % count
            inputs = [_sent(name, replica, hop, count, chunk if hop == 0 else 0, chunks[chunk])]
            if hop < count - 1:
                inputs.append(RingTensor(replica, pack, chunk, chunks[chunk]))
            kind = "Identity" if len(inputs) == 1 else "AddV2"
            hops.append(RingOp(replica, _hop(name, hop), kind, tuple(inputs), (chunks[chunk],)))
        yield from hops
        # What the last of the first round holds is a sum of all, and so is all that follows.
        summed = (RingTensor(replica, op.name, 0, *op.made_bytes) for op in hops[count - 2 :])
        yield RingOp(replica, f"{name}/done", "SplitV", tuple(summed), tuple(sizes))


def all_gather(name: str, parts: Sequence[RingTensor], after: str | None) -> Iterator[RingOp]:
    """Yield the ops that put together ``parts``, one of each replica, in ``NAME/done``.

    They begin after the op ``after`` of their replica.
    """
    count = len(parts)
    for replica, own in enumerate(parts):
        pack = f"{name}/{_PACK}"
        yield RingOp(replica, pack, "Identity", (own, *_before(replica, after)), (own.size_bytes,))
        held = [RingTensor(replica, pack, 0, own.size_bytes)]
        for hop in range(count - 1):
            size_bytes = parts[(replica - 1 - hop) % count].size_bytes
            sent = _sent(name, replica, hop, count, 0, size_bytes)
            yield RingOp(replica, _hop(name, hop), "Identity", (sent,), (size_bytes,))
            held.append(RingTensor(replica, _hop(name, hop), 0, size_bytes))
        whole = sum(tensor.size_bytes for tensor in held)
        yield RingOp(replica, f"{name}/done", "ConcatV2", tuple(held), (whole,))


def _hop(name: str, hop: int) -> str:
    return f"{name}/hop_{hop}"


def _sent(name: str, receiver: int, hop: int, count: int, port: int, size_bytes: int) -> RingTensor:
    """Return what the replica before the receiver hands on in a hop: its own, or what it got."""
    sender = (receiver - 1) % count
    return RingTensor(sender, _hop(name, hop - 1) if hop else f"{name}/{_PACK}", port, size_bytes)


def _before(replica: int, after: str | None) -> tuple[RingTensor, ...]:
    return () if after is None else (RingTensor(replica, after, CONTROL_PORT, 0),)


ALL_REDUCE = "NcclAllReduce"
ALL_GATHER = "NcclAllGather"
# What does the same in one place, of tensors that were copied there.
ADD, JOIN = "AddN", "ConcatV2"


def packed_all_reduce(name: str, parts: Sequence[Sequence[RingTensor]]) -> Iterator[RingOp]:
    """Yield the ops that add up ``parts``, those of each replica, into ``NAME/done`` of each."""
    sizes = tuple(tensor.size_bytes for tensor in parts[0])
    total = sum(sizes)
    for replica, own in enumerate(parts):
        yield RingOp(replica, f"{name}/pack", "ConcatV2", tuple(own), (total,))
    packs = tuple(RingTensor(r, f"{name}/pack", 0, total) for r in range(len(parts)))
    yield RingOp(None, f"{name}/sum", ALL_REDUCE, packs, (total,))
    for replica in range(len(parts)):
        summed = (RingTensor(None, f"{name}/sum", 0, total),)
        yield RingOp(replica, f"{name}/done", "SplitV", summed, sizes)


def summed(name: str, parts: Sequence[RingTensor], kind: str) -> RingOp:
    """Return the op of a kind that adds up ``parts``, one of each replica."""
    return RingOp(None, name, kind, tuple(parts), (parts[0].size_bytes,))


def gathered(name: str, parts: Sequence[RingTensor], kind: str) -> RingOp:
    """Return the op of a kind that puts together ``parts``, one of each replica."""
    whole = sum(part.size_bytes for part in parts)
    return RingOp(None, name, kind, tuple(parts), (whole,))


FAMILY = "mirrored"
# How many rows a replica sends.
_LENGTH_BYTES = 4
_GATHERED = frozenset({Merge.CONCAT, Merge.WEIGHTED_CONCAT})
SUMMED = frozenset({Merge.MEAN, Merge.SUM})
# What TensorFlow adds the gradients of one variable up with, where it is used several times.
_JOINS = {"ConcatV2": _GATHERED, "AddN": SUMMED}


class AllReduceMode(Enum):
    """How replicas exchange gradients.

    ``RING``: hop by hop, packed. ``PACKED`` and ``ONE_BY_ONE``: by collectives that are one op.
    ``COPIES``: each is added up in one place, and every replica reads the sum from there.
    """

    RING = auto()
    PACKED = auto()
    ONE_BY_ONE = auto()
    COPIES = auto()


class _Received(NamedTuple):
    """What a replica reads in place of its own tensor; of all replicas together if ``is_joint``."""

    op: str
    port: int
    is_joint: bool = False


class Exchanged(NamedTuple):
    """The gradients that replicas exchange, by wave, and ops that join some of them first."""

    waves: Sequence[Sequence[Tensor]]
    joined: Mapping[str, tuple[Tensor, ...]]


def exchanged(traces: SplitTraces) -> Exchanged:
    """Return what is exchanged, whatever the shares are."""
    waves = exchanged_gradients(traces)
    return Exchanged(waves, _joined(traces, waves))


def exchange_ops(traces: SplitTraces, way: AllReduceMode, what: Exchanged) -> dict[str, Op]:
    """Return the ops of no trace, which exchange gradients, by name."""
    device_kinds = _device_kinds(traces.whole)
    found, _ = _exchange(traces, way, what)
    names = [replica_copy(ring_op.name, ring_op.replica) for ring_op in found]
    return {
        name: _op(ring_op, name, device_kinds) for name, ring_op in zip(names, found, strict=True)
    }


def mirrored_graph(
    traces: SplitTraces, way: AllReduceMode = AllReduceMode.RING
) -> batch_graph.SplitGraph:
    """Put the graph of a mirrored step together from its traces.

    Collectives of all replicas together are of none (`SplitGraph.replica_of`).
    """
    whole, wiring = traces.whole, traces.wiring
    ops: dict[str, Op] = {}
    reads: list[Edge] = []
    source: dict[str, tuple[int | None, str]] = {}
    replica_of: dict[str, int | None] = {}
    collective_of: dict[str, str] = {}
    what = exchanged(traces)
    exchange, received = _exchange(traces, way, what)
    device_kinds = _device_kinds(whole)
    for ring_op in exchange:
        name = replica_copy(ring_op.name, ring_op.replica)
        ops[name] = _op(ring_op, name, device_kinds)
        replica_of[name] = ring_op.replica
        if way is not AllReduceMode.COPIES:
            collective_of[name] = ring_op.collective
        inputs = dict.fromkeys((*ring_op.inputs, *ring_op.kept))
        reads += [Edge(replica_copy(sent.op, sent.replica), name, sent.port) for sent in inputs]
    for replica, share in enumerate(traces.replicas):
        prefix = replica_copy("", replica)
        for op in whole.ops:
            is_of_share = wiring.plan.is_copied(op.name) or op.name in what.joined
            trace = share if is_of_share else whole
            name, copied = prefix + op.name, trace.op(op.name)
            ops[name] = copied._replace(
                name=name,
                variable=copied.variable and prefix + copied.variable,
                layer=copied.layer and prefix + copied.layer,
            )
            source[name] = (replica if is_of_share else None, op.name)
            replica_of[name] = replica
            for edge in trace.inputs_of(op.name):
                got = None if is_of_share else received.get(edge.tensor)
                if got is None:
                    reads.append(Edge(prefix + edge.producer, name, edge.port))
                else:
                    producer = replica_copy(got.op, None if got.is_joint else replica)
                    reads.append(Edge(producer, name, got.port))
    names = [*(name for name, _ in traces.outputs), *traces.targets]
    ends = [replica_copy(name, replica) for replica in wiring.made for name in names]
    return batch_graph.SplitGraph(
        graph=batch_graph.needed_graph(ops, reads, ends),
        replica_of=replica_of,
        source=source,
        collective_of=collective_of,
        family=FAMILY,
        like_last=wiring.like_last,
    )


def _joined(
    traces: SplitTraces, waves: Sequence[Sequence[Tensor]]
) -> dict[str, tuple[Tensor, ...]]:
    """Return the ops that add up gradients of several uses and do nothing else, with what they add.

    `tf.distribute` exchanges the gradient of a variable, so each replica joins its own first.
    """
    whole, wiring = traces.whole, traces.wiring
    way_of = {
        tensor: (number, wiring.merges[tensor])
        for number, wave in enumerate(waves)
        for tensor in wave
    }
    readers: defaultdict[Tensor, set[str]] = defaultdict(set)
    parts_of: dict[str, tuple[Tensor, ...]] = {}
    for op in whole.ops:
        if wiring.plan.is_copied(op.name):
            continue
        data = tuple(
            edge.tensor
            for edge in whole.data_inputs(op.name)
            if whole.op(edge.producer).role is not Role.CONSTANT
        )
        for tensor in way_of.keys() & data:
            readers[tensor].add(op.name)
        ways = {way_of.get(tensor) for tensor in data}
        way = next(iter(ways), None)
        if len(ways) == 1 and way is not None and way[1] in _JOINS.get(op.kind, ()):
            parts_of[op.name] = data
    return {
        name: parts
        for name, parts in parts_of.items()
        if all(readers[tensor] == {name} for tensor in parts)
    }


def _exchange(
    traces: SplitTraces, way: AllReduceMode, what: Exchanged
) -> tuple[list[RingOp], dict[Tensor, _Received]]:
    """Return the ops that exchange gradients, and what each replica reads in place of its own.

    Of gradients that are joined what they are joined into is exchanged.
    """
    wiring, shares = traces.wiring, traces.replicas
    found: list[RingOp] = []
    received: dict[Tensor, _Received] = {}
    last: str | None = None
    joined_by = {tensor: (name, 0) for name, parts in what.joined.items() for tensor in parts}
    for number, wave in enumerate(what.waves):
        dense = (tensor for tensor in wave if wiring.merges[tensor] in SUMMED)
        to_sum = list(dict.fromkeys(joined_by.get(tensor, tensor) for tensor in dense))
        name = f"all_reduce_{number}" if number else "all_reduce"
        parts = [[_part(r, share, t) for t in to_sum] for r, share in enumerate(shares)]
        if to_sum and way in (AllReduceMode.ONE_BY_ONE, AllReduceMode.COPIES):
            kind = ALL_REDUCE if way is AllReduceMode.ONE_BY_ONE else ADD
            for tensor, *own in zip(to_sum, *parts, strict=True):
                of_tensor = f"{name}/{tensor[0]}_{tensor[1]}"
                everyones = [own[replica] for replica in wiring.representatives]
                found.append(summed(of_tensor, everyones, kind))
                received[tensor] = _Received(of_tensor, 0, is_joint=True)
        elif to_sum:
            if way is AllReduceMode.RING:
                exchange = all_reduce(name, parts, last)
            else:
                exchange = packed_all_reduce(name, parts)
            last = f"{name}/done"
            is_dense = not any(wiring.merges[tensor] in _GATHERED for tensor in wave)
            found += _keeping(exchange, last, parts) if is_dense else exchange
            received |= {tensor: _Received(last, port) for port, tensor in enumerate(to_sum)}
        merge_of = {
            joined_by.get(tensor, tensor): wiring.merges[tensor]
            for tensor in wave
            if wiring.merges[tensor] in _GATHERED
        }
        kind = JOIN if way is AllReduceMode.COPIES else ALL_GATHER
        for tensor, merge in merge_of.items():
            name = f"all_gather/{tensor[0]}"
            rows = [_part(replica, shares[replica], tensor) for replica in wiring.representatives]
            if merge is Merge.WEIGHTED_CONCAT:
                lengths = [part._replace(size_bytes=_LENGTH_BYTES) for part in rows]
                if way is AllReduceMode.RING:
                    found += all_gather(f"{name}/lengths", lengths, last)
                    last = f"{name}/lengths/done"
                else:
                    found.append(gathered(f"{name}/lengths", lengths, kind))
            if way is AllReduceMode.RING:
                found += all_gather(name, rows, last)
                last = f"{name}/done"
                received[tensor] = _Received(last, 0)
            else:
                found.append(gathered(f"{name}/rows", rows, kind))
                received[tensor] = _Received(f"{name}/rows", 0, is_joint=True)
    return found, received


def _keeping(
    exchange: Iterable[RingOp], last: str, parts: Sequence[Sequence[RingTensor]]
) -> Iterator[RingOp]:
    """Yield the ops of an exchange, the last of each replica as one that keeps its own tensors."""
    for ring_op in exchange:
        if ring_op.name == last and ring_op.replica is not None:
            ring_op = ring_op._replace(kept=tuple(parts[ring_op.replica]))
        yield ring_op


def exchanged_gradients(traces: SplitTraces) -> list[list[Tensor]]:
    """Return the gradients that replicas exchange, by wave: none is computed from its own."""
    whole, wiring = traces.whole, traces.wiring
    exchanged = {
        tensor
        for tensor in wiring.plan.merged
        if whole.op(tensor[0]).role is Role.BACKWARD and wiring.merges[tensor] in SUMMED | _GATHERED
    }
    # How many exchanges lie one after the other before an op.
    depth: dict[str, int] = {}
    for op in whole.ops:
        reads_own = wiring.plan.is_copied(op.name)
        depth[op.name] = max(
            (
                depth[edge.producer] + (not reads_own and edge.tensor in exchanged)
                for edge in whole.inputs_of(op.name)
            ),
            default=0,
        )
    waves: list[list[Tensor]] = []
    for tensor in wiring.plan.merged:
        if tensor in exchanged:
            number = depth[tensor[0]]
            waves += [[] for _ in range(number + 1 - len(waves))]
            waves[number].append(tensor)
    return waves


def _part(replica: int, share: OpGraph, tensor: Tensor) -> RingTensor:
    name, port = tensor
    return RingTensor(replica, name, port, share.op(name).output_bytes[port] or 0)


def _op(ring_op: RingOp, name: str, device_kinds: frozenset[str]) -> Op:
    """Return an op of the exchange: it moves bytes, and does next to nothing else."""
    read_bytes = sum(tensor.size_bytes for tensor in ring_op.inputs)
    moves = read_bytes + sum(ring_op.made_bytes)
    return Op(
        name=name,
        kind=ring_op.kind,
        role=Role.BACKWARD,
        bytes_accessed=0 if ring_op.kind == "Identity" else moves,
        work_basis=WorkBasis.SIZES,
        output_bytes=ring_op.made_bytes,
        device_kinds=device_kinds,
    )


def _device_kinds(whole: OpGraph) -> frozenset[str]:
    return frozenset[str]().union(*(op.device_kinds for op in whole.ops))
