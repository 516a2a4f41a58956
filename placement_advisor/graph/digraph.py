"""Directed graphs over the numbers 0, 1, 2, …: orders, cycles, components, dominators, flows.

What is `reached` may be of any type.

For graphs of hundreds of thousands of nodes: every function takes time in proportion to nodes plus
edges, times at most a logarithm, and none recurses.

networkx finds cycles, which are errors, and maximum flows. The rest is done in every analysis, and
by hand: at 100,000 ops networkx takes 0.7 s to make its graph alone, then 4 to 20 times as long,
and for dominators time that grows with the square of late joins (figures in
docs/reference/figures.md). So loading and summing up a graph does without the import.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    import networkx as nx

T = TypeVar("T", bound="Hashable")


def topological_order(
    count: int, sources: Sequence[int], targets: Sequence[int]
) -> list[int] | None:
    """Return the nodes so that sources come before their targets, otherwise smallest first.

    Edge ``i`` leads from ``sources[i]`` to ``targets[i]``. None if the graph has a cycle.
    """
    if all(map(int.__lt__, sources, targets)):
        return list(range(count))
    successors: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for source, target in zip(sources, targets, strict=True):
        successors[source].append(target)
        waiting[target] += 1
    ready = [node for node in range(count) if not waiting[node]]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for target in successors[node]:
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, target)
    return order if len(order) == count else None


def reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """Return what can be reached from some nodes, these included."""
    found: set[T] = set()
    ahead = list(starts)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += following(node)
    return found


def find_cycle(count: int, sources: Sequence[int], targets: Sequence[int]) -> list[int]:
    """Return the nodes of one cycle in edge order, its smallest first.

    Raises:
        ValueError: there is no cycle.
    """
    import networkx as nx

    graph = nx.empty_graph(count, nx.DiGraph)
    graph.add_edges_from(zip(sources, targets, strict=True))
    for component in nx.strongly_connected_components(graph):
        start = min(component)
        if len(component) > 1 or graph.has_edge(start, start):
            cycle = [source for source, _ in nx.find_cycle(graph, start)]
            first = cycle.index(min(cycle))
            return cycle[first:] + cycle[:first]
    raise ValueError("the graph has no cycle")


def maximum_flows(
    arcs: Iterable[tuple[int, int, int]], sources: Iterable[int], sink: int
) -> list[int]:
    """Return how much can flow to the sink from each source by itself.

    An arc is (from, to, how much it lets through); none is given twice.
    """
    import networkx as nx
    from networkx.algorithms.flow import build_residual_network, dinitz

    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_weighted_edges_from(arcs, weight="capacity")
    # Half of the time of one flow; all of them share it.
    residual = build_residual_network(network, "capacity")
    return [
        _checked_value(dinitz(network, source, sink, residual=residual), source, sink)
        for source in sources
    ]


def _checked_value(flow: nx.DiGraph[int], source: int, sink: int) -> int:
    """Return how much flows, and check that it is a flow, whatever found it.

    A flow proves a lower bound if no arc carries more than it lets through, and nothing is lost or
    made on the way.

    Raises:
        AssertionError: it is none.
    """
    out: dict[int, int] = {
        node: sum(arc["flow"] for arc in arcs.values()) for node, arcs in flow.adjacency()
    }
    is_within = all(arc["flow"] <= arc["capacity"] for _, _, arc in flow.edges(data=True))
    lost = any(amount for node, amount in out.items() if node not in (source, sink))
    if not is_within or lost:
        raise AssertionError("what was found for a bound is no flow")
    return out[source]


def strong_components(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the component of each node; an edge never leads to a component of lower number.

    Nodes share a component if and only if they lie on a common cycle.

    Source: Tarjan, Depth-first search and linear graph algorithms (1972),
    https://doi.org/10.1137/0201010
    """
    count = len(successors)
    found = [0] * count  # Order of discovery, from 1; 0 is not yet.
    low = [0] * count
    component = [-1] * count
    open_nodes: list[int] = []
    clock = 0
    closed = 0
    for root in range(count):
        if found[root]:
            continue
        path = [(root, 0)]
        while path:
            node, at = path.pop()
            if at == 0:
                clock += 1
                found[node] = low[node] = clock
                open_nodes.append(node)
            targets = successors[node]
            while at < len(targets):
                target = targets[at]
                at += 1
                if not found[target]:
                    path.append((node, at))
                    path.append((target, 0))
                    break
                if component[target] < 0:
                    low[node] = min(low[node], found[target])
            else:
                if low[node] == found[node]:
                    while component[node] < 0:
                        component[open_nodes.pop()] = closed
                    closed += 1
                elif path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
    return [closed - 1 - number for number in component]


def immediate_dominators(feeders: Sequence[Sequence[int]]) -> list[int | None]:
    """Return for each node the last one that every path to it from an entry goes through.

    Nodes are numbered so that feeders come first. Entries are the nodes without feeders; None
    where entries have nothing in common on their way to the node.

    On such a graph the dominator is the lowest common ancestor, in the tree of dominators so far,
    of the node's feeders; the pointers that jump in that tree make each step logarithmic.
    """
    count = len(feeders)
    root = count
    parent = [root] * (count + 1)
    jump = [root] * (count + 1)
    depth = [0] * (count + 1)

    def common(a: int, b: int) -> int:
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a != b:
            a, b = (jump[a], jump[b]) if jump[a] != jump[b] else (parent[a], parent[b])
        return a

    for node in range(count):
        above = root
        for i, feeder in enumerate(feeders[node]):
            above = common(above, feeder) if i else feeder
        parent[node] = above
        depth[node] = depth[above] + 1
        far = jump[above]
        even = depth[above] - depth[far] == depth[far] - depth[jump[far]]
        jump[node] = jump[far] if even else above
    return [above if above != root else None for above in parent[:count]]
