"""The op graph of a mirrored step, as `tf.distribute.MirroredStrategy` runs it.

Model: each replica has all variables, computes its share of the batch and makes every update
itself, from gradients that all replicas exchanged: dense ones as one pack by a ring all-reduce,
rows of looked-up tables, how many they are, and their indices by an all-gather each, all of these
in turn. Before, each adds its gradients of several uses of one variable up, and puts rows of
several lookups in one table together. What reads what was exchanged costs what it does for the
whole batch. Elsewhere than over gRPC, an exchange is one op of all (`Way`, `joint.py`). Gradients
that are computed from what an earlier exchange led to go in a *wave* of their own, after it: those
of a generator whose loss reads the discriminator that was just updated cannot be in one pack with
the discriminator's. Where no rows are among an optimizer's gradients, each replica keeps its own
until it has taken the pack of the sums apart: `ReplicaContext.all_reduce` is differentiable then,
by an `IdentityN` that reads what it was given beside what it returns.

Left out: metrics and losses, which replicas keep to themselves until someone reads them; that
optimizers which do not wait for each other exchange a pack each.

Source: `MirroredStrategy` and `CollectiveAllReduce` of TensorFlow 2.21, which put all gradients
that an optimizer applies into one pack unless told otherwise, and run one collective at a time.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.candidates.batch_split import joint
from placement_advisor.candidates.batch_split.ring import RingTensor, all_gather, all_reduce
from placement_advisor.candidates.batch_split.split_graph import Read, SplitGraph, needed_graph
from placement_advisor.candidates.batch_split.wiring import Merge
from placement_advisor.graph.op_graph import Op, OpGraph, Role
from placement_advisor.graph.op_work.signature import WorkBasis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.candidates.batch_split.ring import RingOp
    from placement_advisor.candidates.batch_split.wiring import Wiring

FAMILY = "mirrored"
# How many rows a replica sends.
_LENGTH_BYTES = 4
_GATHERED = frozenset({Merge.CONCAT, Merge.WEIGHTED_CONCAT})
SUMMED = frozenset({Merge.MEAN, Merge.SUM})
# What TensorFlow adds the gradients of one variable up with, where it is used several times.
_JOINS = {"ConcatV2": _GATHERED, "AddN": SUMMED}


class Way(Enum):
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


def exchanged(whole: OpGraph, wiring: Wiring) -> Exchanged:
    """Return what is exchanged, whatever the shares are."""
    waves = exchanged_gradients(whole, wiring)
    return Exchanged(waves, _joined(whole, wiring, waves))


def exchange_ops(
    whole: OpGraph,
    shares: Sequence[OpGraph],
    wiring: Wiring,
    way: Way,
    what: Exchanged,
) -> dict[str, Op]:
    """Return the ops of no trace, which exchange gradients, by name."""
    device_kinds = _device_kinds(whole)
    found, _ = _exchange(what.waves, shares, wiring, what.joined, way)
    names = [_named(ring_op.replica, ring_op.name) for ring_op in found]
    return {
        name: _op(ring_op, name, device_kinds) for name, ring_op in zip(names, found, strict=True)
    }


def mirrored_graph(
    whole: OpGraph,
    shares: Sequence[OpGraph],
    wiring: Wiring,
    outputs: Iterable[Tensor],
    targets: Iterable[str],
    way: Way = Way.RING,
) -> SplitGraph:
    """Put the graph of a mirrored step together from its traces, one for each replica that is made.

    ``outputs`` are the tensors that the unsplit step returns, ``targets`` ops that must run.
    Collectives of all replicas together are of none (`SplitGraph.replica_of`).
    """
    ops: dict[str, Op] = {}
    reads: list[Read] = []
    source: dict[str, tuple[int | None, str]] = {}
    replica_of: dict[str, int | None] = {}
    collective_of: dict[str, str] = {}
    waves, joined = exchanged(whole, wiring)
    exchange, received = _exchange(waves, shares, wiring, joined, way)
    device_kinds = _device_kinds(whole)
    for ring_op in exchange:
        name = _named(ring_op.replica, ring_op.name)
        ops[name] = _op(ring_op, name, device_kinds)
        replica_of[name] = ring_op.replica
        if way is not Way.COPIES:
            collective_of[name] = ring_op.collective
        inputs = dict.fromkeys((*ring_op.inputs, *ring_op.kept))
        reads += [Read(_named(sent.replica, sent.op), name, sent.port) for sent in inputs]
    for replica, share in enumerate(shares):
        prefix = _named(replica, "")
        for op in whole.ops:
            is_of_share = wiring.plan.is_copied(op.name) or op.name in joined
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
                got = None if is_of_share else received.get((edge.producer, edge.port))
                if got is None:
                    reads.append(Read(prefix + edge.producer, name, edge.port))
                else:
                    producer = _named(None if got.is_joint else replica, got.op)
                    reads.append(Read(producer, name, got.port))
    ends = [*(name for name, _ in outputs), *targets]
    graph = needed_graph(ops, reads, [_named(r, name) for r in range(len(shares)) for name in ends])
    return SplitGraph(
        graph=graph,
        replica_of=replica_of,
        source=source,
        collective_of=collective_of,
        family=FAMILY,
        like_last=wiring.like_last,
    )


def _joined(
    whole: OpGraph, wiring: Wiring, waves: Sequence[Sequence[Tensor]]
) -> dict[str, tuple[Tensor, ...]]:
    """Return the ops that add up gradients of several uses and do nothing else, with what they add.

    `tf.distribute` exchanges the gradient of a variable, so each replica joins its own first.
    """
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
            (edge.producer, edge.port)
            for edge in whole.inputs_of(op.name)
            if not edge.is_control and whole.op(edge.producer).role is not Role.CONSTANT
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
    waves: Sequence[Sequence[Tensor]],
    shares: Sequence[OpGraph],
    wiring: Wiring,
    joined: Mapping[str, tuple[Tensor, ...]],
    way: Way,
) -> tuple[list[RingOp], dict[Tensor, _Received]]:
    """Return the ops that exchange gradients, and what each replica reads in place of its own.

    Of gradients that are ``joined`` what they are joined into is exchanged.
    """
    found: list[RingOp] = []
    received: dict[Tensor, _Received] = {}
    last: str | None = None
    joined_by = {tensor: (name, 0) for name, parts in joined.items() for tensor in parts}
    for number, wave in enumerate(waves):
        dense = (tensor for tensor in wave if wiring.merges[tensor] in SUMMED)
        summed = list(dict.fromkeys(joined_by.get(tensor, tensor) for tensor in dense))
        name = f"all_reduce_{number}" if number else "all_reduce"
        parts = [[_part(r, share, t) for t in summed] for r, share in enumerate(shares)]
        if summed and way in (Way.ONE_BY_ONE, Way.COPIES):
            kind = joint.ALL_REDUCE if way is Way.ONE_BY_ONE else joint.ADD
            for tensor, *own in zip(summed, *parts, strict=True):
                of_tensor = f"{name}/{tensor[0]}_{tensor[1]}"
                everyones = [own[replica] for replica in wiring.representatives]
                found.append(joint.summed(of_tensor, everyones, kind))
                received[tensor] = _Received(of_tensor, 0, is_joint=True)
        elif summed:
            if way is Way.RING:
                exchange = all_reduce(name, parts, last)
            else:
                exchange = joint.packed_all_reduce(name, parts)
            last = f"{name}/done"
            is_dense = not any(wiring.merges[tensor] in _GATHERED for tensor in wave)
            found += _keeping(exchange, last, parts) if is_dense else exchange
            received |= {tensor: _Received(last, port) for port, tensor in enumerate(summed)}
        merge_of = {
            joined_by.get(tensor, tensor): wiring.merges[tensor]
            for tensor in wave
            if wiring.merges[tensor] in _GATHERED
        }
        kind = joint.JOIN if way is Way.COPIES else joint.ALL_GATHER
        for tensor, merge in merge_of.items():
            name = f"all_gather/{tensor[0]}"
            rows = [_part(replica, shares[replica], tensor) for replica in wiring.representatives]
            if merge is Merge.WEIGHTED_CONCAT:
                lengths = [part._replace(size_bytes=_LENGTH_BYTES) for part in rows]
                if way is Way.RING:
                    found += all_gather(f"{name}/lengths", lengths, last)
                    last = f"{name}/lengths/done"
                else:
                    found.append(joint.gathered(f"{name}/lengths", lengths, kind))
            if way is Way.RING:
                found += all_gather(name, rows, last)
                last = f"{name}/done"
                received[tensor] = _Received(last, 0)
            else:
                found.append(joint.gathered(f"{name}/rows", rows, kind))
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


def exchanged_gradients(whole: OpGraph, wiring: Wiring) -> list[list[Tensor]]:
    """Return the gradients that replicas exchange, by wave: none is computed from its own."""
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
                depth[edge.producer] + (not reads_own and (edge.producer, edge.port) in exchanged)
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


def _named(replica: int | None, name: str) -> str:
    return f"replicas/{name}" if replica is None else f"replica_{replica}/{name}"
