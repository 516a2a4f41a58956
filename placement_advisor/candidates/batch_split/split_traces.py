"""What split steps are put together from: a step traced at its batch and at shares of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placement_advisor.candidates.batch_split.plan import SplitPlan
from placement_advisor.candidates.batch_split.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.candidates.batch_split.plan import Tensor
    from placement_advisor.graph.op_graph import OpGraph


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
            self,
            shares={batch: self.whole},
            wiring=replace(self.wiring, shares=(batch,) * count),
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
