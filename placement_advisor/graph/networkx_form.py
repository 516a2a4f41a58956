"""The op graph as networkx has it: for its algorithms, and for programs that read its formats.

A node is an op, under its name. Its attributes are the fields of an op in a graph file, defaults
included, as JSON has them; what is unknown has no attribute. Beside them stand ``colocation``,
equal for ops that must run on one device (those of one variable), and ``device`` where a placement
is given, which constants lack: they are copied to their readers.

An edge is one tensor as one op reads it, so two nodes may have several: ``port`` is the output of
the producer, -1 where the edge only orders its ends, ``size_bytes`` the bytes if they are known.
Its key is its place among the edges, so that no two edges of a graph share one.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import value_from
from placement_advisor.files.foreign_json import MisfitError, shown, within
from placement_advisor.graph.graph_file import read_op
from placement_advisor.graph.op import Edge, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import networkx as nx


def to_networkx(
    ops: Iterable[Op], edges: Iterable[Edge], device_of: Mapping[str, str] | None
) -> nx.MultiDiGraph[str]:
    """Return a new graph with the attributes above."""
    import networkx as nx

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for op in ops:
        extra = {"colocation": op.variable, "device": (device_of or {}).get(op.name)}
        # As a graph file has them: enumerations as texts, tuples as lists.
        values = json.loads(json.dumps(op, default=sorted))
        attributes = {**dict(zip(Op._fields, values, strict=True)), **extra}
        name = attributes.pop("name")
        graph.add_node(name, **{key: v for key, v in attributes.items() if v is not None})
    for key, edge in enumerate(edges):
        size = {} if edge.size_bytes is None else {"size_bytes": edge.size_bytes}
        graph.add_edge(edge.producer, edge.consumer, key=key, port=edge.port, **size)
    return graph


def from_networkx(graph: nx.DiGraph[Any]) -> tuple[list[Op], list[Edge]]:
    """Return the ops and edges of a graph with such attributes; any others are left out.

    A node needs its ``kind``, an edge its ``port``; what is unknown may be None as well as absent.

    Raises:
        AdvisorError: an attribute is missing or misfits; the message names node or edge.
    """
    if not graph.is_directed():
        raise AdvisorError("edges lead from producer to consumer: the graph has no directions")
    try:
        ops = [
            within(f"node {shown(name)}", read_op, {**_known(Op, attributes), "name": name})
            for name, attributes in graph.nodes(data=True)
        ]
        edges = [
            within(
                f"edge {shown(source)} → {shown(target)}",
                partial(value_from, Edge),
                {**_known(Edge, values), "producer": source, "consumer": target},
            )
            for source, target, values in graph.edges(data=True)
        ]
    except MisfitError as misfit:
        raise AdvisorError(
            str(misfit), hint="nodes and edges have the attributes that `as_networkx` gives them"
        ) from None
    return ops, edges


def _known(kind: type[Op | Edge], attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an op or edge that are known."""
    return {
        key: value for key, value in attributes.items() if key in kind._fields and value is not None
    }
