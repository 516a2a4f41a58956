"""Repeated blocks: the same group of layers again and again, each fed by the one before.

Two layers are alike if their forward ops are: the same kinds, sizes and flops, wired alike within
the layer. Two groups of layers are alike if their layers are, one by one, and are wired alike. A
feeder outside the group is then the same layer for both (a mask), or stands as far before one
group as the other's before the other. The first block of a sequence may be fed by anything.

Layers are put in one order, `depth_first`, in which the blocks of a chain stand one after the
other, and repetitions are looked for in that. The longest one is taken first, so that what repeats
within a block is not listed again.

Left out: blocks of more than `MAX_BLOCK_LAYERS` layers; alike groups side by side, which are
parallel branches or towers; values (two loops that differ in their number of turns alone).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.graph.digraph import strong_components
from placement_advisor.graph.membership import data_inputs
from placement_advisor.graph.op_graph import Role
from placement_advisor.graph.structure.order import depth_first

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.op_graph import OpGraph

MIN_BLOCKS = 2
# The largest block seen, a cell of NASNetLarge, has about 120 layers.
MAX_BLOCK_LAYERS = 512
# A layer is looked at once per period in which its stretch might repeat. Real models stay far
# below; past it, in made-up ones, what is found so far is the answer.
MAX_VISITS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedBlocks:
    """Alike groups of layers in the order in which they feed one another."""

    blocks: tuple[tuple[str, ...], ...]


def repeated_blocks(graph: OpGraph, view: LayerView) -> tuple[RepeatedBlocks, ...]:
    """Return the repetitions, in layer order of their first layers; none overlap."""
    search = _Search(depth_first(view), _labels(graph, view), view.feeders())
    place = {layer: i for i, layer in enumerate(view.forward_layers())}
    found = [RepeatedBlocks(blocks=blocks) for blocks in search.repetitions()]
    return tuple(sorted(found, key=lambda repetition: place[repetition.blocks[0][0]]))


def _labels(graph: OpGraph, view: LayerView) -> dict[str, int]:
    """Return equal numbers for layers whose forward ops are alike up to names."""
    layer_of = view.membership.layer_of
    numbers: dict[Hashable, int] = {}
    label: dict[str, int] = {}
    ops_of: dict[str, list[int]] = {}
    for op in graph.ops:
        layer = layer_of.get(op.name)
        if op.role is not Role.FORWARD or layer is None:
            continue
        inputs: list[tuple[int, int, int]] = []
        for edge in data_inputs(graph, op.name):
            inside = layer_of.get(edge.producer) == layer
            size_bytes = -1 if edge.size_bytes is None else edge.size_bytes
            inputs.append((edge.port, size_bytes, label[edge.producer] if inside else -1))
        content = (op.kind, op.output_bytes, op.flops, tuple(sorted(inputs)))
        label[op.name] = numbers.setdefault(content, len(numbers))
        ops_of.setdefault(layer, []).append(label[op.name])
    return {
        layer: numbers.setdefault(tuple(sorted(ops)), len(numbers)) for layer, ops in ops_of.items()
    }


class _Search:
    """Looks for repetitions in one order of the layers."""

    def __init__(
        self,
        order: Sequence[str],
        labels: Mapping[str, int],
        feeders: Mapping[str, Sequence[str]],
    ) -> None:
        place = {layer: i for i, layer in enumerate(order)}
        self.order = order
        self.labels = np.array([labels[layer] for layer in order], dtype=np.int64)
        self.feeders = [frozenset(place[f] for f in feeders[layer]) for layer in order]
        self.last_feeder = np.array(
            [max((f for f in some if f < i), default=-1) for i, some in enumerate(self.feeders)],
            dtype=np.int64,
        )
        self.taken = bytearray(len(order))
        self.visits = 0

    def repetitions(self) -> Iterator[tuple[tuple[str, ...], ...]]:
        """Yield repetitions, those of most layers first; none overlap."""
        for _, period, start, end in sorted(self._stretches()):
            for low, high in self._free(start, end):
                found = self._best(low, high, period)
                if found is not None:
                    first, count = found
                    after = first + count * period
                    self.taken[first:after] = b"\1" * (after - first)
                    yield tuple(
                        tuple(self.order[i : i + period]) for i in range(first, after, period)
                    )

    def _stretches(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (minus layers in whole blocks, period, start, end) where labels repeat."""
        for period in range(1, min(MAX_BLOCK_LAYERS, len(self.order) // MIN_BLOCKS) + 1):
            same = self.labels[:-period] == self.labels[period:]
            edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
            starts, ends = edges[::2], edges[1::2]
            for i in np.flatnonzero(ends - starts >= period):
                start, end = int(starts[i]), int(ends[i]) + period
                yield -((end - start) // period * period), period, start, end

    def _free(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a stretch without taken layers."""
        low = self.taken.find(0, start, end)
        while low >= 0:
            high = self.taken.find(1, low, end)
            high = end if high < 0 else high
            yield low, high
            low = self.taken.find(0, high, end)

    def _best(self, low: int, high: int, period: int) -> tuple[int, int] | None:
        """Return start and count of the most blocks in a stretch, cut where least crosses."""
        if (
            high - low < MIN_BLOCKS * period
            or self.visits > MAX_VISITS
            or not self._any_feeds_on(low, high, period)
        ):
            return None
        self.visits += high - low
        # How many layers from each on are wired like those one period later.
        alike = [0] * (high + 1)
        for i in range(high - period - 1, low - 1, -1):
            alike[i] = alike[i + 1] + 1 if self._wired_alike(i, period) else 0
        starts = range(low, high - MIN_BLOCKS * period + 1)
        counts = {start: MIN_BLOCKS + alike[start + period] // period for start in starts}
        most = sorted(starts, key=lambda start: -counts[start])[: MIN_BLOCKS * period]
        for start in sorted(most, key=lambda s: (-counts[s], self._crossing(s, period), s)):
            if self._is_block(start, period):
                return start, counts[start]
        return None

    def _any_feeds_on(self, low: int, high: int, period: int) -> bool:
        last = self.last_feeder[low:high]
        return bool(((last >= low) & (np.arange(low, high) - last < MIN_BLOCKS * period)).any())

    def _wired_alike(self, i: int, period: int) -> bool:
        """Whether a layer's feeders are the other's, one period later or the very same."""
        theirs = self.feeders[i + period]
        return len(theirs) == len(self.feeders[i]) and all(
            feeder + period in theirs or feeder in theirs for feeder in self.feeders[i]
        )

    def _crossing(self, start: int, period: int) -> tuple[int, int]:
        """Return how many layers of a block feed the next, and minus how many those feed.

        A block ends better where one layer feeds several, as the sum of a residual unit does.
        """
        crossing = [
            feeder
            for i in range(start + period, start + MIN_BLOCKS * period)
            for feeder in self.feeders[i]
            if start <= feeder < start + period
        ]
        return len(set(crossing)), -len(crossing)

    def _is_block(self, start: int, period: int) -> bool:
        """Whether the first block is one piece, wired within as the next, and feeds it."""
        end = start + period
        links: list[list[int]] = [[] for _ in range(period)]
        feeds = False
        for i in range(start, end):
            own = {feeder for feeder in self.feeders[i] if start <= feeder < end}
            next_feeders = self.feeders[i + period]
            next_own = {f - period for f in next_feeders if end <= f < end + period}
            fed_from_outside = len(self.feeders[i]) > len(own)
            if own != next_own or (fed_from_outside and len(next_feeders) == len(next_own)):
                return False
            feeds = feeds or any(start <= feeder < end for feeder in next_feeders)
            for feeder in own:
                links[i - start].append(feeder - start)
                links[feeder - start].append(i - start)
        return feeds and max(strong_components(links)) == 0
