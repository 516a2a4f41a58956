"""Traces of what a host does with the samples of all of its devices, where these split layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.candidates.batch_split.split_graph import unsplit
from placement_advisor.errors import BatchSplitError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.graph.op_graph import OpGraph


class HostTraces(NamedTuple):
    """The traces of a model, or why there is none, for any number of hosts.

    ``whole`` is the unsplit step, ``splits`` have it split into so many shares, ``larger`` has it
    at so many times its batch.
    """

    whole: SplitTraces
    splits: Mapping[int, SplitTraces | BatchSplitError]
    larger: Mapping[int, OpGraph | BatchSplitError]

    def strong(self, hosts: int) -> SplitTraces | BatchSplitError:
        """Return those of a host which shares the batch with the others."""
        known = self.whole if hosts == 1 else self.splits[hosts]
        return known if isinstance(known, BatchSplitError) else known.first(1)

    def weak(self, hosts: int, devices: int) -> SplitTraces | BatchSplitError:
        """Return those of a host with the whole batch for each of its devices."""
        graph = self.whole.whole if devices == 1 else self.larger[devices]
        if isinstance(graph, BatchSplitError):
            return graph
        known = self.whole if hosts == 1 else any_traced(self.splits) or self.splits[hosts]
        return known if isinstance(known, BatchSplitError) else known.repeated(graph, devices)

    def another(self) -> SplitTraces | None:
        """Return the unsplit step at other samples than its batch, None without a trace.

        That is the largest share of one of the splits, else a multiple of the batch.
        """
        split = any_traced(self.splits)
        if split is not None:
            samples, graph = max(split.shares.items())
            return unsplit(graph, samples)
        multiples = (self.weak(1, devices) for devices in self.larger)
        return next((t for t in multiples if not isinstance(t, BatchSplitError)), None)


def any_traced(splits: Mapping[int, SplitTraces | BatchSplitError]) -> SplitTraces | None:
    """Return the first split that there is: all are wired alike."""
    return next((s for s in splits.values() if not isinstance(s, BatchSplitError)), None)
