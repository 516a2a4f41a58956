"""The plan of a batch split: which ops run once for each share of the batch.

Two traces of a step, at its batch and at a share of it, tell which ops depend on the batch size.
`shares_of` divides the samples among replicas in proportion to ratios.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isfinite
from typing import TYPE_CHECKING

from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import BRANCH_KINDS, LOOP_KINDS, Op, Role
from placement_advisor.graph.op_work import elementwise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from placement_advisor.graph.op_graph import OpGraph

    Tensor = tuple[str, int]


SPLIT = "split"


def share_folder(samples: int) -> str:
    """Return the name of the step at a share of its batch."""
    return f"share-{samples}"


def shares_of(batch: int, ratios: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers of samples in proportion to the ratios; they make up the batch.

    What rounding leaves goes to those who lost most by it, the first of them on ties.

    Raises:
        BatchSplitError: a ratio that is not positive, or a share of no sample.
    """
    for ratio in ratios:
        if not (isfinite(ratio) and ratio > 0):
            raise BatchSplitError(
                f"{ratio:g} of {_text(ratios)} is not a positive number",
                hint="leave out a device that should get no samples",
            )
    if batch < len(ratios):
        raise BatchSplitError(
            f"a batch of {batch} has less than one sample for each of {len(ratios)} devices",
            hint="take a larger batch or fewer devices",
        )
    exact = [batch * ratio / sum(ratios) for ratio in ratios]
    shares = [floor(each) for each in exact]
    by_loss = sorted(range(len(ratios)), key=lambda i: shares[i] - exact[i])
    for i in by_loss[: batch - sum(shares)]:
        shares[i] += 1
    if 0 in shares:
        raise BatchSplitError(
            f"at {_text(ratios)} the share of device {shares.index(0)} in a batch of {batch} "
            "rounds to no sample",
            hint="take a larger batch, or leave that device out",
        )
    return tuple(shares)


def _text(ratios: Sequence[float]) -> str:
    return ":".join(f"{ratio:g}" for ratio in ratios)


# Ops that take a handle and leave what it stands for as it is.
_READS = frozenset(
    {
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VariableShape",
    }
)
_TABLE = "HashTableV2"
# Of sums, or of what several tensors are put together to, the mean is the same of means.
_ADDS = frozenset({"Add", "AddN", "AddV2", "ConcatV2", "Pack", "Sub"})
# A tensor of all pairs of samples grows with the square of the batch; one that is rounded up, as
# the room of an expert is, by a little more than the batch does. Judgement: halfway between.
_NEARER_TO_THE_SQUARE = 1.5
# Makes the key (its first output) from which ops draw random numbers.
_MAKES_KEY = "StatelessRandomGetKeyCounter"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """What becomes of each op and tensor (producer and port) of a step whose batch is split.

    ``replicated`` and ``local`` ops exist once for each share; ``local`` ones, computed from
    constants alone, exist as well for those who read them apart from shares. All others are shared.
    """

    replicated: frozenset[str]
    local: frozenset[str]
    merged: tuple[Tensor, ...]
    divided: tuple[Tensor, ...]
    keys: tuple[Tensor, ...] = ()

    def is_copied(self, name: str) -> bool:
        """Whether each replica has this op."""
        return name in self.replicated or name in self.local


def plan_split(whole: OpGraph, share: OpGraph, outputs: Collection[Tensor]) -> SplitPlan:
    """Return how to split a step, from its graphs at the whole batch and at a smaller one.

    ``outputs`` are the tensors that the step returns.

    Raises:
        BatchSplitError: the graphs differ in more than sizes, or nothing grows with the batch.
    """
    check_alike(whole, share)
    growing = _growing(whole, share)
    _check_loops(whole, growing)
    replicated = _replicated(whole, growing)
    if not replicated:
        raise BatchSplitError("no tensor of the step grows with the batch")
    constant = _from_constants(whole)
    read_by_replicas = _read_by(whole, constant, replicated)
    local = frozenset(name for name in constant - replicated if name in read_by_replicas)
    shared = [op for op in whole.ops if op.name not in replicated]
    merged = dict.fromkeys(
        edge.tensor
        for op in shared
        for edge in whole.data_inputs(op.name)
        if edge.producer in replicated
    )
    merged |= dict.fromkeys(tensor for tensor in outputs if tensor[0] in replicated)
    divided = dict.fromkeys(
        edge.tensor
        for op in whole.ops
        if op.name in replicated
        for edge in whole.inputs_of(op.name)
        if edge.tensor in growing and edge.producer not in replicated and edge.producer not in local
    )
    return SplitPlan(
        replicated=frozenset(replicated),
        local=local,
        merged=tuple(merged),
        divided=tuple(divided),
        keys=tuple(
            (op.name, 0)
            for op in shared
            if op.kind == _MAKES_KEY and _any(whole.consumers(op.name), replicated)
        ),
    )


def own_of_replicas(graph: OpGraph, plan: SplitPlan, merged: Iterable[Tensor]) -> tuple[str, ...]:
    """Return the ops that compute something of a replica's own, which the unsplit step does not.

    They draw random numbers for its samples, or statistics of them that replicas go on to compute
    with and that end up in a variable, as in batch normalization. Those are looked for among the
    ``merged`` tensors that do not give what the whole batch gives.
    """
    replicated = [op for op in graph.ops if op.name in plan.replicated]
    drawn = [op.name for op in replicated if op.kind in elementwise.RANDOM_FORMULAS]
    kept = [
        name
        for name, _ in merged
        if graph.op(name).role is not Role.BACKWARD
        and _any(graph.consumers(name), plan.replicated)
        and _is_kept(graph, name)
    ]
    return tuple(dict.fromkeys([*drawn, *kept]))


def finished(graph: OpGraph, plan: SplitPlan, outputs: Collection[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors of replicas that updates and the user read.

    These are the complete gradients, whether replicas or shared ops complete them, and all other
    merged tensors.
    """
    gradients: set[str] = set()
    found: dict[Tensor, None] = {}
    for op in graph.ops:
        if plan.is_copied(op.name):
            continue
        own = [
            edge.tensor
            for edge in graph.data_inputs(op.name)
            if edge.producer in plan.replicated or edge.producer in gradients
        ]
        if own and op.role is Role.BACKWARD:
            gradients.add(op.name)
        else:
            found |= dict.fromkeys(own)
    found |= {t: None for t in outputs if t[0] in plan.replicated or t[0] in gradients}
    return tuple(found)


def goes_on(graph: OpGraph, plan: SplitPlan) -> bool:
    """Return whether replicas read, or wait for, what was merged from all of them."""
    joined: set[str] = set()
    for op in graph.ops:
        before = [edge.producer for edge in graph.inputs_of(op.name)]
        if plan.is_copied(op.name):
            if _any(before, joined):
                return True
        elif _any(before, joined) or _any(before, plan.replicated):
            joined.add(op.name)
    return False


def kept_statistics(graph: OpGraph, plan: SplitPlan) -> tuple[str, ...]:
    """Return the variables with statistics of the batch that training does not depend on.

    The moving mean and variance of batch normalization are such: a forward op writes them, and no
    replica reads them.
    """
    after = {
        name
        for name, _ in plan.merged
        if graph.op(name).role is not Role.BACKWARD and _any(graph.consumers(name), plan.replicated)
    }
    found: dict[str, None] = {}
    read = {
        op.variable
        for op in graph.ops
        if op.role is not Role.VARIABLE and _any(graph.consumers(op.name), plan.replicated)
    }
    for op in graph.ops:
        if plan.is_copied(op.name) or not _any(graph.producers(op.name), after):
            continue
        if op.variable is None or not _runs_once(op):
            after.add(op.name)
        elif op.role is not Role.UPDATE and op.variable not in read:
            found[op.variable] = None
    return tuple(found)


def _is_kept(graph: OpGraph, name: str) -> bool:
    """Say whether what an op computes ends up in a variable."""
    after = {name}
    for op in graph.ops[graph.index(name) + 1 :]:
        if _any(graph.producers(op.name), after):
            if op.variable is not None and op.role is not Role.VARIABLE and _runs_once(op):
                return True
            after.add(op.name)
    return False


def check_alike(whole: OpGraph, share: OpGraph) -> None:
    """Check that two traces of a step differ in nothing but sizes.

    Raises:
        BatchSplitError: they differ in ops or edges.
    """
    here = {op.name: op.kind for op in whole.ops}
    there = {op.name: op.kind for op in share.ops}
    differing = next((name for name in (*here, *there) if here.get(name) != there.get(name)), None)
    if differing is None:
        wires = [{edge[:3] for edge in graph.edges} for graph in (whole, share)]
        differing = next((edge[1] for edge in sorted(wires[0] ^ wires[1])), None)
    if differing is not None:
        raise BatchSplitError(
            f"at another batch size the step is a different graph: see op {differing!r}"
        )


def check_no_pairs(whole: OpGraph, share: OpGraph, times: float) -> None:
    """Check that no tensor holds something for each pair of samples: replicas have pairs of theirs.

    ``share`` is the trace of a smaller batch, the whole is ``times`` as large.

    Raises:
        BatchSplitError: one does.
    """
    most = times**_NEARER_TO_THE_SQUARE
    for op in whole.ops:
        for size, smaller in zip(op.output_bytes, share.op(op.name).output_bytes, strict=True):
            if size and smaller and size > most * smaller:
                raise BatchSplitError(
                    f"op {op.name!r} makes something for each pair of samples, and a device that "
                    "has a part of them has no pairs with the others"
                )


def _check_loops(graph: OpGraph, growing: Collection[Tensor]) -> None:
    """Refuse loops and conditionals that hold variables and take samples: one device runs them."""
    for op in graph.ops:
        is_bound = op.kind in LOOP_KINDS | BRANCH_KINDS and op.variable is not None
        if is_bound and op.role is not Role.UPDATE and _touches(graph, op, growing):
            raise BatchSplitError(
                f"{op.kind} {op.name!r} computes on samples and changes variables, or looks up in "
                "tables, within: it cannot be replicated"
            )


def _growing(whole: OpGraph, share: OpGraph) -> set[Tensor]:
    """Return the tensors whose size differs; of unknown size, those computed from such tensors."""
    growing: set[Tensor] = set()
    for op in whole.ops:
        smaller = share.op(op.name).output_bytes
        reads = any(edge.tensor in growing for edge in whole.inputs_of(op.name))
        for port, size in enumerate(op.output_bytes):
            if size != smaller[port] or (size is None and reads):
                growing.add((op.name, port))
    return growing


def _replicated(graph: OpGraph, growing: Collection[Tensor]) -> set[str]:
    touching = {op.name for op in graph.ops if not _runs_once(op) and _touches(graph, op, growing)}
    after: set[str] = set()
    for op in graph.ops:
        if op.name in touching or (not _runs_once(op) and _any(graph.producers(op.name), after)):
            after.add(op.name)
    found = touching | {name for name in after if _combines(graph, graph.op(name), after)}
    for op in reversed(graph.ops):
        if op.name in after and _any(graph.consumers(op.name), found):
            found.add(op.name)
    tables = {
        op.name
        for op in graph.ops
        if op.kind == _TABLE and found.issuperset(graph.consumers(op.name))
    }
    return found | tables


def _combines(graph: OpGraph, op: Op, own: Collection[str]) -> bool:
    """Say whether a gradient is made of several tensors of a replica, other than as their sum.

    As that of batch normalization's scale is, of a sum over samples and of their deviation.
    """
    if op.role is not Role.BACKWARD or op.kind in _ADDS:
        return False
    reads = {edge.tensor for edge in graph.data_inputs(op.name) if edge.producer in own}
    return len(reads) > 1


def _runs_once(op: Op) -> bool:
    if op.role in (Role.UPDATE, Role.VARIABLE, Role.CONSTANT):
        return True
    return op.variable is not None and op.kind not in _READS


def _touches(graph: OpGraph, op: Op, growing: Collection[Tensor]) -> bool:
    makes = any((op.name, port) in growing for port in range(len(op.output_bytes)))
    return makes or any(edge.tensor in growing for edge in graph.inputs_of(op.name))


def _from_constants(graph: OpGraph) -> set[str]:
    """Return the ops that always compute the same, from constants alone."""
    found: set[str] = set()
    for op in graph.ops:
        producers = graph.producers(op.name)
        is_free = op.variable is None and op.role is not Role.UPDATE
        if op.role is Role.CONSTANT or (
            is_free
            and op.kind not in elementwise.RANDOM_FORMULAS
            and producers
            and found.issuperset(producers)
        ):
            found.add(op.name)
    return found


def _read_by(graph: OpGraph, of: Collection[str], readers: Collection[str]) -> set[str]:
    """Return those ops that readers read, or that lead to one of these."""
    found: set[str] = set()
    for op in reversed(graph.ops):
        if op.name in of and any(c in readers or c in found for c in graph.consumers(op.name)):
            found.add(op.name)
    return found


def _any(names: Iterable[str], among: Collection[str]) -> bool:
    return any(name in among for name in names)
