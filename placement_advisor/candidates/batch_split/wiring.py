"""The split step op by op: what it is made of, what its ops read, and what is added to join shares.

Names: an op of the second replica is ``replica_1/`` and its name in the unsplit step; what joins or
divides a tensor for all of them is ``replicas/`` and the tensor's name.

Merges: a mean over the batch is the mean over shares, weighted by their samples; each replica
weights its own part. A sum is added up. What holds a part for each sample is put together in the
order of the shares. What is the same for all comes from the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from placement_advisor.candidates.batch_split.plan import SplitPlan, Tensor

_PREFIX = "replica"


def replica_copy(name: str, replica: int, prefix: str = _PREFIX) -> str:
    """Return the name of a replica's copy of an op."""
    return f"{prefix}_{replica}/{name}"


class Merge(StrEnum):
    """How the tensors of replicas become that of the unsplit step."""

    MEAN = "mean"
    SUM = "sum"
    CONCAT = "concat"
    # Parts for each sample, of a mean over the batch: gradients of looked-up rows.
    WEIGHTED_CONCAT = "weighted-concat"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
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
    prefix: str = field(default=_PREFIX)
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
        return replica_copy(name, replica, self.prefix)

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
                yield Added(
                    name=f"{name}/weight", kind="Const", like=tensor, value=weight, replica=i
                )
                yield Added(
                    name=f"{name}/weighted",
                    kind="Mul",
                    inputs=(own[i], (f"{name}/weight", 0)),
                    like=tensor,
                    replica=i,
                )
                own[i] = (f"{name}/weighted", 0)
        parts = [own[i] for i in self.representatives]
        if merge in (Merge.CONCAT, Merge.WEIGHTED_CONCAT):
            yield Added(name=f"{base}/axis", kind="Const", value=self.axes[tensor])
            inputs = (*parts, (f"{base}/axis", 0))
            yield Added(name=f"{base}/merged", kind="ConcatV2", inputs=inputs, like=tensor)
        else:
            yield Added(name=f"{base}/merged", kind="AddN", inputs=tuple(parts), like=tensor)

    def _divided(self, tensor: Tensor) -> Iterator[Added]:
        base = self._base(tensor)
        yield Added(name=f"{base}/sizes", kind="Const", value=self.shares)
        yield Added(name=f"{base}/axis", kind="Const", value=self.axes[tensor])
        yield Added(
            name=f"{base}/divided",
            kind="SplitV",
            inputs=(tensor, (f"{base}/sizes", 0), (f"{base}/axis", 0)),
            like=tensor,
        )

    def _own_key(self, tensor: Tensor, replica: int) -> Iterator[Added]:
        """Yield what changes a key by the replica's number; the first one keeps it as it is."""
        base, key = self._base(tensor, replica), (self.copy(tensor[0], replica), tensor[1])
        number = f"{base}/number", 0
        yield Added(name=number[0], kind="Const", like=tensor, value=replica, replica=replica)
        yield Added(
            name=f"{base}/own",
            kind="BitwiseXor",
            inputs=(key, number),
            like=tensor,
            replica=replica,
        )

    def _base(self, tensor: Tensor, replica: int | None = None) -> str:
        name, port = tensor
        scope = f"{self.prefix}s" if replica is None else f"{self.prefix}_{replica}"
        return f"{scope}/{name}_{port}" if port else f"{scope}/{name}"
