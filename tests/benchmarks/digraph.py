"""What is done by hand in `graph/digraph.py`, against networkx: seconds of the processor.

``PYTHONPATH=tests python tests/benchmarks/digraph.py``. The graph is made up, as large as a large
model's; in the other one many nodes read both the first and the last of a chain. Times of networkx
are those of the algorithm; what it takes to make its graph stands by itself.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import networkx as nx
from op_graphs import large

from placement_advisor.graph.digraph import (
    immediate_dominators,
    strong_components,
    topological_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

OPS, EDGES = 100_000, 230_000
JOINING = (4_000, 8_000, 16_000)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what the work returns, and how long it took."""
    start = time.process_time()
    return work(), time.process_time() - start


def compare(label: str, by_hand: Callable[[], object], by_networkx: Callable[[], object]) -> None:
    """Print the times of both."""
    print(f"  {label:<28}{timed(by_hand)[1]:7.2f} s by hand{timed(by_networkx)[1]:8.2f} s networkx")


def digraph(count: int, pairs: list[tuple[int, int]]) -> nx.DiGraph:
    """Return the graph, with a node -1 that leads to all without feeders."""
    graph = nx.empty_graph(count, nx.DiGraph)
    graph.add_edges_from(pairs)
    graph.add_edges_from([(-1, node) for node in range(count) if not graph.in_degree(node)])
    return graph


def neighbours(count: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Return the second of all pairs by their first."""
    found: list[list[int]] = [[] for _ in range(count)]
    for node, other in pairs:
        found[node].append(other)
    return found


def main() -> None:
    """Print all times."""
    ops, edges = large(OPS, EDGES)
    place = {op.name: OPS - 1 - i for i, op in enumerate(ops)}
    backwards = [(place[edge.producer], place[edge.consumer]) for edge in edges]
    pairs = [(OPS - 1 - source, OPS - 1 - target) for source, target in backwards]
    print(f"{OPS:,} ops, {len(pairs):,} edges")
    graph, making_s = timed(lambda: digraph(OPS, pairs))
    print(f"  networkx makes its graph in {making_s:.2f} s")
    given = digraph(OPS, backwards)
    for label, some, made in (("in order", pairs, graph), ("backwards", backwards, given)):
        sources, targets = ([pair[end] for pair in some] for end in (0, 1))
        compare(
            f"order, given {label}",
            lambda: topological_order(OPS, sources, targets),  # noqa: B023
            lambda: list(nx.lexicographical_topological_sort(made)),  # noqa: B023
        )
    successors, feeders = neighbours(OPS, pairs), neighbours(OPS, [(b, a) for a, b in pairs])
    compare(
        "components",
        lambda: strong_components(successors),
        lambda: list(nx.strongly_connected_components(graph)),
    )
    compare(
        "dominators",
        lambda: immediate_dominators(feeders),
        lambda: nx.immediate_dominators(graph, -1),
    )
    for count in JOINING:
        half = count // 2
        late = [(early, node) for node in range(half, count) for early in (0, half - 1)]
        joined = [*pairwise(range(half)), *late]
        compare(
            f"dominators, {half:,} late joins",
            lambda: immediate_dominators(neighbours(count, [(b, a) for a, b in joined])),  # noqa: B023
            lambda: nx.immediate_dominators(digraph(count, joined), -1),  # noqa: B023
        )


if __name__ == "__main__":
    main()
