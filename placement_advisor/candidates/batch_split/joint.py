"""What all replicas exchange as single ops: collectives, as NCCL runs them, or sums in one place.

Model: a collective is one op, which begins when the tensors of all replicas are there and whose
result all of them read. What it takes depends on the machine (`cost/rings.py`); it stands on a
place of its own, as a GPU runs it in another stream than its kernels, and one at a time. Gradients
are reduced one by one, as each becomes ready, or packed into one tensor, which each replica puts
together when it has the last of them and takes apart when it has the sums. Without NCCL a gradient
is copied to one device, added up there, and the sum copied to all.

Left out: that a collective draws memory and multiprocessors from the kernels beside it; that, where
gradients are not packed, replicas keep their own and all sums until the last sum is there.

Source: `NcclAllReduce` of TensorFlow 2.21, whose ``num_packs`` is 1 or, for one by one, 0, and
`ReductionToOneDevice`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.ring import RingOp, RingTensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
