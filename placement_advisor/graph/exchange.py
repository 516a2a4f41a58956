r"""The op graph as text for other programs: GraphML, DOT, and the node-link JSON of networkx.

Nodes and edges have the attributes of `networkx_form`. JSON loads back as the same graph; the other
two know no lists, so that these become JSON texts there.

Names come from models, and neither XML nor DOT can hold every character. What is not printable is
written in GraphML and DOT as in a string of Python (``\n``, ``\x1b``, ``\ud800``) and a backslash
twice, so that different names stay different. GraphML and JSON are ASCII, with references to all
other characters; DOT is UTF-8.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import networkx as nx

    from placement_advisor.graph.op_graph import OpGraph


class GraphFormat(StrEnum):
    """What other programs read."""

    GRAPHML = "graphml"
    DOT = "dot"
    JSON = "json"


def graph_text(
    graph: OpGraph, form: GraphFormat, device_of: Mapping[str, str] | None = None
) -> str:
    """Return the graph in a format, with the devices of a placement if they are given."""
    match form:
        case GraphFormat.GRAPHML:
            return _graphml(graph, device_of)
        case GraphFormat.DOT:
            return "".join(_dot(graph, device_of))
        case GraphFormat.JSON:
            return _node_link(graph, device_of)


def _node_link(graph: OpGraph, device_of: Mapping[str, str] | None) -> str:
    import networkx as nx

    return json.dumps(nx.node_link_data(graph.as_networkx(device_of), edges="edges")) + "\n"


def _graphml(graph: OpGraph, device_of: Mapping[str, str] | None) -> str:
    import networkx as nx

    lines = nx.generate_graphml(_visible_graph(graph, device_of), named_key_ids=True)
    return "\n".join(lines) + "\n"


def _dot(graph: OpGraph, device_of: Mapping[str, str] | None) -> Iterator[str]:
    shown = _visible_graph(graph, device_of)
    yield "digraph {\n"
    for name, attributes in shown.nodes(data=True):
        yield f"  {_quoted(name)} {_dot_list(attributes)};\n"
    for source, target, attributes in shown.edges(data=True):
        yield f"  {_quoted(source)} -> {_quoted(target)} {_dot_list(attributes)};\n"
    yield "}\n"


def _visible_graph(graph: OpGraph, device_of: Mapping[str, str] | None) -> nx.MultiDiGraph[str]:
    """Return the graph for networkx with visible names, and numbers and visible texts in it."""
    import networkx as nx

    shown: nx.MultiDiGraph[str] = nx.relabel_nodes(graph.as_networkx(device_of), _visible)
    for attributes in shown.nodes.values():
        for key, value in attributes.items():
            if isinstance(value, list):
                attributes[key] = _visible(json.dumps(value, ensure_ascii=False))
            elif isinstance(value, str):
                attributes[key] = _visible(value)
    return shown


def _dot_list(attributes: Mapping[str, str | int]) -> str:
    return f"[{', '.join(f'{key}={_quoted(str(value))}' for key, value in attributes.items())}]"


def _quoted(text: str) -> str:
    """Return a string of DOT: its labels show the text, names differ where texts do."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _visible(text: str) -> str:
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text
    )
