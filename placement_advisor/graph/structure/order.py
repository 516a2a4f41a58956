"""One order of the layers in which what belongs together stands together.

The trace interleaves what is independent: two towers layer by layer, the end of an encoder with
the beginning of a decoder. Here everything from which all ways lead to one layer stands right
before that layer, and so on within it: the parts of a residual unit before their sum, a tower
before its join, the encoder before the decoder. Of parts that could come next, one that has just
become possible comes first, else the earliest in the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.structure.forward_flow import flow, meeting_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.graph.layer_view import LayerView
    from placement_advisor.graph.structure.forward_flow import Flow


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
