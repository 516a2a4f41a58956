from __future__ import annotations

import io
import json
import re
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import chain, edge, graphs, op

from placement_advisor.graph.exchange import GraphFormat, graph_text
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph

DEVICES = {"a": "GPU:0", "b": "GPU:1"}
FOREIGN = OpGraph(
    [Op(name='say "a"', kind="MatMul", flops=2, output_bytes=(None, 8)), op("b\\\n", "é")],
    [edge('say "a"', "b\\\n", size_bytes=None), edge('say "a"', "b\\\n", port=1)],
)
DOT = r"""digraph {
  "say \"a\"" [kind="MatMul", role="forward", flops="2", output_bytes="[null, 8]", parameter_bytes="0", device_kinds="[\"CPU\"]", host_outputs="[]"];
  "b\\\\\\n" [kind="MatMul", role="forward", layer="é", output_bytes="[8]", parameter_bytes="0", device_kinds="[\"CPU\"]", host_outputs="[]", device="GPU:1"];
  "say \"a\"" -> "b\\\\\\n" [port="0"];
  "say \"a\"" -> "b\\\\\\n" [port="1", size_bytes="8"];
}
"""  # noqa: E501
# As foreign as names can be: what XML, DOT, terminals and UTF-8 take for something else.
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.text(st.sampled_from('"\\\n\r\t\0\x1b\x7f\x9b\u2028\ud800\uffff&;<>n0xé模🙂 ')),
)
_DOT_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def as_python_writes(name: str) -> str:
    """Return what a name is called in GraphML and DOT."""
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in name
    )


def read_graphml(graph: OpGraph) -> nx.DiGraph:
    text = graph_text(graph, GraphFormat.GRAPHML, DEVICES)
    assert text.isascii()
    return nx.read_graphml(io.BytesIO(text.encode()))


def unquoted(text: str) -> list[str]:
    """Return the strings in DOT as a label shows them."""
    return [re.sub(r"\\(.)", r"\1", found) for found in _DOT_STRING.findall(text)]


def test_dot_by_hand() -> None:
    assert graph_text(FOREIGN, GraphFormat.DOT, {"b\\\n": "GPU:1"}) == DOT


def test_graphml_has_numbers_devices_and_every_tensor() -> None:
    graph = OpGraph([op("a"), op("b")], [edge("a", "b"), edge("a", "b", port=1, size_bytes=None)])
    found = read_graphml(graph)
    assert found.nodes["a"] == {
        "kind": "MatMul", "role": "forward", "output_bytes": "[8]", "parameter_bytes": 0,
        "device_kinds": '["CPU"]', "host_outputs": "[]", "device": "GPU:0",
    }  # fmt: skip
    assert list(found.edges(data=True)) == [
        ("a", "b", {"port": 0, "size_bytes": 8}),
        ("a", "b", {"port": 1}),
    ]


def test_no_two_edges_of_graphml_share_an_id() -> None:
    text = graph_text(chain("a", "b", "c"), GraphFormat.GRAPHML)
    assert re.findall(r'<edge .*id="(\d+)"', text) == ["0", "1"]


@given(st.lists(NAMES, unique=True, min_size=2, max_size=6))
def test_any_names_stay_apart_and_are_written_as_python_does(names: list[str]) -> None:
    graph = chain(*names)
    shown = [as_python_writes(name) for name in names]
    found = read_graphml(graph)
    assert list(found) == shown
    assert list(found.edges) == list(pairwise(shown))
    text = graph_text(graph, GraphFormat.DOT)
    text.encode()  # No half of a character is in it.
    nodes = text.splitlines()[1 : 1 + len(names)]
    assert [unquoted(line)[0] for line in nodes] == shown
    loaded = json.loads(graph_text(graph, GraphFormat.JSON))
    assert [node["id"] for node in loaded["nodes"]] == names


@given(NAMES, NAMES)
def test_any_layer_and_kind_can_be_told_in_every_format(layer: str, kind: str) -> None:
    graph = OpGraph([Op(name="a", kind=kind, layer=layer)], [])
    found = read_graphml(graph).nodes["a"]
    # GraphML cannot tell an empty text from none.
    assert found.get("layer", "") == as_python_writes(layer)
    assert found.get("kind", "") == as_python_writes(kind)
    line = graph_text(graph, GraphFormat.DOT).splitlines()[1]
    assert unquoted(line)[:4] == ["a", as_python_writes(kind), "forward", as_python_writes(layer)]


@given(graphs())
def test_json_comes_back_as_the_same_graph(graph: OpGraph) -> None:
    text = graph_text(graph, GraphFormat.JSON)
    assert OpGraph.from_networkx(nx.node_link_graph(json.loads(text), edges="edges")) == graph


@pytest.mark.parametrize("form", GraphFormat)
def test_a_graph_without_ops_is_a_graph(form: GraphFormat) -> None:
    text = graph_text(OpGraph([], []), form)
    if form is GraphFormat.GRAPHML:
        assert len(nx.read_graphml(io.BytesIO(text.encode()))) == 0
    elif form is GraphFormat.DOT:
        assert text == "digraph {\n}\n"
    else:
        assert json.loads(text)["nodes"] == []
