"""Ring collectives as ops: what each replica runs, and what crosses to the next one.

Model of the all-reduce: each replica packs its tensors into one, which waits for the last of them,
and cuts that into as many chunks as there are replicas. In each of 2 (k - 1) hops every replica
hands a chunk on to the next one: while chunks go around for the first time the receiver adds its
own, then it keeps a copy. So each link carries 2 (k - 1) / k of the bytes. Of the all-gather:
tensors go around once, in k - 1 hops. A collective begins after the one before it.

Left out: chunks that are cut into smaller pieces, whose hops overlap.

Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations
(J. Parallel Distrib. Comput. 69, 2009).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.graph.op import CONTROL_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
