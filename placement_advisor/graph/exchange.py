r"""The op graph as text for other programs: GraphML, DOT, node-link JSON, and Mermaid.

In GraphML, DOT and the JSON of networkx, nodes are ops, and nodes and edges have the attributes of
`OpGraph.as_networkx`. JSON loads back as the same graph; the other two know no lists, so that these
become JSON texts there. In Mermaid, nodes are the layers of the forward pass.

Names come from models, and neither XML, DOT nor Mermaid can hold every character. What is not
printable is written there as in a string of Python (``\n``, ``\x1b``, ``\ud800``) and a backslash
twice, so that different names stay different. GraphML and JSON are ASCII, with references to all
other characters; DOT and Mermaid are UTF-8.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import networkx as nx

    from placement_advisor.graph.op_graph import OpGraph


class GraphFormat(StrEnum):
    """What other programs read."""

    GRAPHML = "graphml"
    DOT = "dot"
    JSON = "json"
    MERMAID = "mermaid"


def graph_text(
    graph: OpGraph,
    form: GraphFormat,
    device_of: Mapping[str, str] | None = None,
    *,
    depth: int | None = None,
) -> str:
    """Return the graph in a format, with the devices of a placement if they are given.

    Mermaid shows layers to a depth of their paths; without one, to the largest that fits 60 boxes.
    """
    match form:
        case GraphFormat.GRAPHML:
            return _graphml(graph, device_of)
        case GraphFormat.DOT:
            return "".join(_dot(graph, device_of))
        case GraphFormat.JSON:
            return _node_link(graph, device_of)
        case GraphFormat.MERMAID:
            return "".join(_mermaid(graph, device_of, depth))


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


# More boxes than this do not fit a screen at a size that can be read.
_MAX_BOXES = 60
# Those of `style.css`, and a dark text that can be read on all.
DEVICE_COLORS = ("#b8ef81", "#70d6ff", "#ffcac0", "#a57c7d", "#e08fbc", "#a09eff", "#99a166")
_ON_DEVICE = "#111111"
# What neither Mermaid's grammar nor the Markdown and HTML of its labels gives a meaning:
# letters, digits, and a few signs between two of these.
_PLAIN = re.compile(r"[^\W_]|(?<=[^\W_])[ _/@-](?=[^\W_])")


def _mermaid(
    graph: OpGraph, device_of: Mapping[str, str] | None, depth: int | None
) -> Iterator[str]:
    """Yield a flowchart of layers; an arrow is thick where any of its tensors changes device.

    A variable's bytes are those of the first layer that reads it. A layer is on the device of most
    of its forward ops (ties: first in device name).

    Source: https://mermaid.js.org/syntax/flowchart.html
    """
    from placement_advisor.graph.graph_summary import read_variables
    from placement_advisor.graph.layer_view import depth_for, layer_view
    from placement_advisor.graph.placement import most_voted

    view = layer_view(graph, depth or depth_for(graph, _MAX_BOXES))
    layer_of, free = view.membership.layer_of, view.membership.free
    parameter_bytes: Counter[str] = Counter()
    for op in read_variables(graph):
        for layer in view.membership.readers.get(op.variable or "", ())[:1]:
            parameter_bytes[layer] += op.parameter_bytes
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    crossing: set[tuple[str, str]] = set()
    if device_of is not None:
        for name, layer in layer_of.items():
            devices[layer][device_of[name]] += 1
        for edge in graph.edges:
            ends = edge.producer, edge.consumer
            if edge.is_control or edge.producer in free or not layer_of.keys() >= {*ends}:
                continue
            if device_of[edge.producer] != device_of[edge.consumer]:
                crossing.add((layer_of[edge.producer], layer_of[edge.consumer]))
    used = sorted({device for votes in devices.values() for device in votes})
    step_flops = sum(op.flops or 0 for op in graph.ops)
    flops = {layer.name: layer.flops.amount for layer in view.layers}
    node_of = {layer: f"n{number}" for number, layer in enumerate(view.forward_layers())}
    yield "flowchart TD\n"
    for layer, node in node_of.items():
        its = flops[layer]
        share = format_share(its / step_flops) if its is not None and step_flops else "?"
        held = f"{format_bytes(parameter_bytes[layer])} · " if parameter_bytes[layer] else ""
        label, color = f"{_label(layer)}<br/>{held}{share} of flops", ""
        if votes := devices[layer]:
            device = most_voted(votes)
            part = f" {format_share(votes[device] / votes.total())}" if len(votes) > 1 else ""
            label, color = f"{label}<br/>{_label(device)}{part}", f":::device{used.index(device)}"
        yield f'  {node}["{label}"]{color}\n'
    for (source, target), size_bytes in view.edges.items():
        arrow = "==>" if (source, target) in crossing else "-->"
        yield f'  {node_of[source]} {arrow}|"{format_bytes(size_bytes)}"| {node_of[target]}\n'
    for number, _ in enumerate(used):
        color = DEVICE_COLORS[number % len(DEVICE_COLORS)]
        yield f"  classDef device{number} fill:{color},color:{_ON_DEVICE}\n"


def _label(text: str) -> str:
    """Return text of a label of Mermaid: what could have a meaning there becomes its number."""
    shown = _visible(text)
    plain = {found.start() for found in _PLAIN.finditer(shown)}
    return "".join(c if i in plain else f"#{ord(c)};" for i, c in enumerate(shown))
