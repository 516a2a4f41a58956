"""The structure of a model, found in the wiring of its layers and never in names.

`depth_first` orders the layers; `parallel_branches` finds what runs side by side between a
fork and a join, `towers` parts of the model that meet only at a join, and `repeated_blocks`
groups of layers that occur again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import MinLen

from placement_advisor.files.contract import Filled, Rows, Text
from placement_advisor.graph.digraph import immediate_dominators, reached, strong_components
from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.op_graph import OpGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Layers by their place in the view, and nodes, which are layers or loops of layers.

    ``feeders`` are the layers that feed each layer. ``node_of`` names the node of each layer;
    ``members`` the layers of each node. Nodes are numbered so that those which feed a node, in
    ``into``, have lower numbers; ``out`` holds those that a node feeds.
    """

    layers: tuple[str, ...]
    feeders: Sequence[Sequence[int]]
    node_of: Sequence[int]
    members: Sequence[Sequence[int]]
    into: Sequence[Sequence[int]]
    out: Sequence[Sequence[int]]

    def names(self, layers: Iterable[int]) -> tuple[str, ...]:
        """Return the names of layers, in layer order."""
        return tuple(self.layers[layer] for layer in sorted(layers))


def flow(view: LayerView) -> Flow:
    """Return the forward pass of the view."""
    layers = view.forward_layers()
    place = {layer: i for i, layer in enumerate(layers)}
    feeders = [[place[feeder] for feeder in some] for some in view.feeders().values()]
    fed: list[list[int]] = [[] for _ in layers]
    for layer, some in enumerate(feeders):
        for feeder in some:
            fed[feeder].append(layer)
    node_of = strong_components(fed)
    count = max(node_of, default=-1) + 1
    members: list[list[int]] = [[] for _ in range(count)]
    into: list[set[int]] = [set() for _ in range(count)]
    out: list[set[int]] = [set() for _ in range(count)]
    for layer, node in enumerate(node_of):
        members[node].append(layer)
        for feeder in feeders[layer]:
            if node_of[feeder] != node:
                into[node].add(node_of[feeder])
                out[node_of[feeder]].add(node)
    return Flow(
        layers=layers,
        feeders=feeders,
        node_of=node_of,
        members=members,
        into=[sorted(some) for some in into],
        out=[sorted(some) for some in out],
    )


def meeting_points(way: Flow) -> list[int | None]:
    """Return for each node the first other that all ways from it to an end go through."""
    last = len(way.out) - 1
    backwards = [[last - target for target in way.out[last - node]] for node in range(last + 1)]
    after = immediate_dominators(backwards)
    return [None if point is None else last - point for point in reversed(after)]


def depth_first(view: LayerView) -> list[str]:
    """Return the layers of the forward pass, each after its feeders.

    Layers of a loop stand together, in layer order.
    """
    way = flow(view)
    end = len(way.members)
    parent = [end if point is None else point for point in meeting_points(way)]
    parts: list[list[int]] = [[] for _ in range(end + 1)]
    for node, above in enumerate(parent):
        parts[above].append(node)
    # The place of a part is that of its earliest layer; what leads to a node has lower numbers.
    place = [min(members) for members in way.members]
    for node, above in enumerate(parent):
        if above != end:
            place[above] = min(place[above], place[node])

    readers = _readers(way, parent, parts)
    order: list[int] = []
    ahead = [(end, False)]
    while ahead:
        node, done = ahead.pop()
        if not done:
            ahead.append((node, True))
            ordered = _in_order(parts[node], readers, place)
            ahead.extend((part, False) for part in reversed(ordered))
        elif node != end:
            order += way.members[node]
    return [way.layers[layer] for layer in order]


def _readers(way: Flow, parent: Sequence[int], parts: Sequence[list[int]]) -> dict[int, set[int]]:
    """Return for each node the parts beside it, of the same whole, that it feeds."""
    end = len(way.members)
    readers: dict[int, set[int]] = {node: set() for node in range(end)}
    depth = [0] * (end + 1)
    path = [end] * (end + 1)
    ahead = [end]
    while ahead:
        node = ahead.pop()
        path[depth[node]] = node
        for part in parts[node]:
            depth[part] = depth[node] + 1
            ahead.append(part)
        # All ways from a feeder lead to its parent, so that is on the path down to the node.
        for feeder in way.into[node] if node != end else ():
            if parent[feeder] != node:
                readers[feeder].add(path[depth[parent[feeder]] + 1])
    return readers


def _in_order(
    parts: Sequence[int], readers: Mapping[int, set[int]], place: Sequence[int]
) -> list[int]:
    """Return the parts of one whole, each after those that feed it."""
    waiting = dict.fromkeys(parts, 0)
    for part in parts:
        for reader in readers[part]:
            waiting[reader] += 1
    ready = sorted((part for part in parts if not waiting[part]), key=lambda p: -place[p])
    order = []
    while ready:
        part = ready.pop()
        order.append(part)
        fresh = []
        for reader in readers[part]:
            waiting[reader] -= 1
            if not waiting[reader]:
                fresh.append(reader)
        ready += sorted(fresh, key=lambda p: -place[p])
    return order


MIN_WAYS = 2
# Layers are looked at once per region around them. Regions are taken from short to long, so that
# only where thousands nest in one another the longest are left out.
MAX_BRANCH_VISITS = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelBranches:
    """Branches that could run at the same time."""

    fork: Text
    """Feeds all branches."""
    join: Text
    """Where all branches meet."""
    branches: Filled[Filled[Text]]
    """Layers of each branch, in order."""
    direct: bool
    """The fork also feeds the join directly."""


def parallel_branches(view: LayerView) -> tuple[ParallelBranches, ...]:
    """Return every region of at least two ways, by fork in layer order."""
    way = flow(view)
    joins = meeting_points(way)
    forks = [
        (join - fork, fork, join)
        for fork, join in enumerate(joins)
        if join is not None
        and len(way.out[fork]) >= MIN_WAYS
        and len(way.members[fork]) == len(way.members[join]) == 1
    ]
    found: list[tuple[int, ParallelBranches]] = []
    visits = 0
    for _, fork, join in sorted(forks):
        if visits > MAX_BRANCH_VISITS:
            break
        parts = _parts(way, fork, join)
        visits += sum(map(len, parts))
        direct = join in way.out[fork]
        if len(parts) + direct >= MIN_WAYS:
            layers = [[layer for node in part for layer in way.members[node]] for part in parts]
            region = ParallelBranches(
                fork=way.layers[way.members[fork][0]],
                join=way.layers[way.members[join][0]],
                branches=tuple(way.names(part) for part in sorted(layers, key=min)),
                direct=direct,
            )
            found.append((way.members[fork][0], region))
    return tuple(region for _, region in sorted(found, key=lambda pair: pair[0]))


def _parts(way: Flow, fork: int, join: int) -> list[list[int]]:
    """Return the nodes between the two, those that feed one another together."""
    part_of: dict[int, int] = {node: node for node in way.out[fork] if node != join}

    def root(node: int) -> int:
        while part_of[node] != node:
            part_of[node] = part_of[part_of[node]]
            node = part_of[node]
        return node

    ahead = list(part_of)
    while ahead:
        node = ahead.pop()
        for target in way.out[node]:
            if target == join:
                continue
            if target not in part_of:
                part_of[target] = target
                ahead.append(target)
            part_of[root(target)] = root(node)
    parts: dict[int, list[int]] = {}
    for node in part_of:
        parts.setdefault(root(node), []).append(node)
    return list(parts.values())


MIN_TOWERS = 2
# Any join with a label looks like two towers, one of them a cast. What holds no variable and does
# less than 1 % of the arithmetic cannot be told from nothing in any measurement.
MIN_FLOPS_SHARE = 0.01
# A thousand times what a model of many embedding tables has; bits of this many sources still fit
# the memory in a graph of 200,000 layers.
MAX_SOURCES = 8_192
# Every join is compared with every layer. Models have a handful of joins; a step without layers,
# in which each op is one, can have thousands, of which the last ones hold the most.
MAX_COMPARISONS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Where towers meet."""

    layer: Text
    towers: Annotated[Rows[Filled[Text]], MinLen(2)]
    """Layers of each tower, in order; towers are independent."""


def towers(view: LayerView, counting: Collection[str]) -> tuple[Join, ...]:
    """Return every join of at least two towers, in layer order.

    A group of feeders is a tower only if one of the layers ``counting`` leads to it.
    """
    way = flow(view)
    sources = _sources(way)
    counts = _with_ancestors(way, counting)
    found: list[tuple[int, list[int]]] = []
    for layer, feeders in enumerate(way.feeders):
        # A feeder that the layer feeds in turn is on a loop with it, which is no way to meet.
        groups = [
            group
            for group in _disjoint(sources, [way.node_of[feeder] for feeder in feeders])
            if any(counts[node] for node in group) and way.node_of[layer] not in group
        ]
        if len(groups) >= MIN_TOWERS:
            found.append((layer, [_union(sources, group) for group in groups]))
    most = max(1, MAX_COMPARISONS // len(way.layers)) if way.layers else 0
    return tuple(
        Join(layer=way.layers[layer], towers=_members(way, sources, groups))
        for layer, groups in found[-most:]
    )


def counting_layers(graph: OpGraph, view: LayerView) -> frozenset[str]:
    """Return the layers that read a variable or table, or do a share of the forward arithmetic."""
    flops: dict[str, int] = {}
    for op in graph.ops:
        layer = view.membership.layer_of.get(op.name)
        if op.role is Role.FORWARD and layer is not None:
            flops[layer] = flops.get(layer, 0) + (op.flops or 0)
    floor = max(1, MIN_FLOPS_SHARE * sum(flops.values()))
    heavy = {layer for layer, its_flops in flops.items() if its_flops >= floor}
    return frozenset(heavy.union(*view.membership.readers.values()))


def common_ancestor(view: LayerView) -> tuple[str, str] | None:
    """Return the first layer with branches that are no towers, and the last layer behind both.

    None if no layer has several feeders with a common ancestor.
    """
    way = flow(view)
    sources = _sources(way)
    for layer, feeders in enumerate(way.feeders):
        for i, one in enumerate(feeders):
            for other in feeders[i + 1 :]:
                if sources[way.node_of[one]] & sources[way.node_of[other]]:
                    cones = [reached([each], way.feeders.__getitem__) for each in (one, other)]
                    common = set.intersection(*cones)
                    if common:
                        return way.layers[layer], way.layers[max(common)]
    return None


def _sources(way: Flow) -> list[int]:
    """Return the sources of each node, as bits."""
    sources: list[int] = []
    fresh = 0
    for feeders in way.into:
        if not feeders:
            sources.append(1 << fresh % MAX_SOURCES)
            fresh += 1
            continue
        bits = sources[feeders[0]]
        for feeder in feeders[1:]:
            # Most nodes have the sources of one feeder: one number for all of them.
            if sources[feeder] | bits != bits:
                bits |= sources[feeder]
        sources.append(bits)
    return sources


def _with_ancestors(way: Flow, counting: Collection[str]) -> list[bool]:
    """Return for each node whether it, or one that leads to it, holds a layer that counts."""
    found: list[bool] = []
    for node, feeders in enumerate(way.into):
        own = any(way.layers[layer] in counting for layer in way.members[node])
        found.append(own or any(found[feeder] for feeder in feeders))
    return found


def _disjoint(sources: list[int], nodes: list[int]) -> list[list[int]]:
    """Return the nodes in groups of common sources, by the first of each group."""
    groups: list[tuple[int, list[int]]] = []
    for node in nodes:
        bits, merged = sources[node], [node]
        apart = []
        first = len(groups)
        for i, (its_bits, group) in enumerate(groups):
            if its_bits & bits:
                bits |= its_bits
                merged = [*group, *merged]
                first = min(first, i)
            else:
                apart.append((its_bits, group))
        groups = [*apart[:first], (bits, merged), *apart[first:]]
    return [group for _, group in groups]


def _union(sources: list[int], nodes: list[int]) -> int:
    bits = 0
    for node in nodes:
        bits |= sources[node]
    return bits


def _members(way: Flow, sources: list[int], groups: list[int]) -> tuple[tuple[str, ...], ...]:
    """Return the layers that depend on one of the groups of sources alone."""
    found: list[list[str]] = [[] for _ in groups]
    for layer, node in zip(way.layers, way.node_of, strict=True):
        needed = [i for i, group in enumerate(groups) if group & sources[node]]
        if len(needed) == 1:
            found[needed[0]].append(layer)
    return tuple(map(tuple, found))


MIN_BLOCKS = 2
# The largest block seen, a cell of NASNetLarge, has about 120 layers.
MAX_BLOCK_LAYERS = 512
# A layer is looked at once per period in which its stretch might repeat. Real models stay far
# below; past it, in made-up ones, what is found so far is the answer.
MAX_REPEAT_VISITS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedBlocks:
    """Blocks that are alike and feed one another."""

    blocks: Annotated[Rows[Filled[Text]], MinLen(2)]
    """Layers of each block, in order."""


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
        for edge in graph.data_inputs(op.name):
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
        self, order: Sequence[str], labels: Mapping[str, int], feeders: Mapping[str, Sequence[str]]
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
            or self.visits > MAX_REPEAT_VISITS
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
