import contextlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import NAMES, as_python_writes, chain, edge, graphs, op

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.exchange import GraphFormat, graph_text
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph

READ = Op("read", "ReadVariableOp", variable="w", output_bytes=(None,), flops=0)
PLACE = OpGraph(
    [Op("w", "VarHandleOp", Role.VARIABLE, parameter_bytes=4), READ, op("out", layer="dense")],
    [
        Edge("w", "read", CONTROL_PORT, None),
        Edge("read", "out", 0, None),
        Edge("read", "out", 1, 8),
    ],
)


def test_ops_and_tensors_become_nodes_and_edges_and_unknown_is_absent():
    found = PLACE.as_networkx({"w": "GPU:0", "read": "GPU:0"})
    assert isinstance(found, nx.DiGraph)
    assert dict(found.nodes(data=True)) == {
        "w": {
            "kind": "VarHandleOp", "role": "variable", "variable": "w", "output_bytes": [],
            "parameter_bytes": 4, "device_kinds": ["CPU"], "host_outputs": [], "colocation": "w",
            "device": "GPU:0",
        },
        "read": {
            "kind": "ReadVariableOp", "role": "forward", "variable": "w", "flops": 0,
            "output_bytes": [None], "parameter_bytes": 0, "device_kinds": ["CPU"],
            "host_outputs": [], "colocation": "w", "device": "GPU:0",
        },
        "out": {
            "kind": "MatMul", "role": "forward", "layer": "dense", "output_bytes": [8],
            "parameter_bytes": 0, "device_kinds": ["CPU"], "host_outputs": [],
        },
    }  # fmt: skip
    assert list(found.edges(keys=True, data=True)) == [
        ("w", "read", 0, {"port": -1}),
        ("read", "out", 1, {"port": 0}),
        ("read", "out", 2, {"port": 1, "size_bytes": 8}),
    ]


def test_networkx_gets_a_copy():
    graph = chain("a", "b")
    graph.as_networkx().nodes["b"]["output_bytes"].append(1)
    assert graph == chain("a", "b")


@given(graphs())
def test_a_graph_comes_back_equal_from_networkx_and_from_its_json(graph):
    assert OpGraph.from_networkx(graph.as_networkx({op.name: "GPU:0" for op in graph.ops})) == graph
    text = graph_text(graph, GraphFormat.JSON)
    assert OpGraph.from_networkx(nx.node_link_graph(json.loads(text), edges="edges")) == graph


def by_hand(**edge_attributes):
    graph = nx.DiGraph()
    graph.add_node("a", kind="MatMul", output_bytes=[None], flops=None)
    graph.add_node("b", kind="Relu", weight=2.5)
    graph.add_edge("a", "b", **edge_attributes)
    return graph


def test_a_plain_graph_is_enough_and_what_is_not_ours_is_left_out():
    expected = OpGraph(
        [op("a")._replace(output_bytes=(None,)), Op("b", "Relu")], [edge("a", "b", size_bytes=None)]
    )
    assert OpGraph.from_networkx(by_hand(port=0, size_bytes=None, time_ns=7)) == expected


@pytest.mark.parametrize(
    ("node", "attributes", "problem"),
    [
        ("c", {}, "node 'c': no field 'kind'"),
        ("c", {"kind": "K", "flops": -1}, "node 'c'.flops: -1 is not a whole number"),
        ("c", {"kind": "K", "role": "sideways"}, "node 'c'.role: 'sideways' is not input, "),
        ("c", {"kind": "K", "output_bytes": [0.5]}, "node 'c'.output_bytes[0]: 0.5 is not "),
        (3, {"kind": "K"}, "node 3.name: 3 is not a string"),
    ],
)
def test_a_node_that_is_no_op_is_named(node, attributes, problem):
    graph = by_hand(port=0)
    graph.add_node(node, **attributes)
    with pytest.raises(AdvisorError) as caught:
        OpGraph.from_networkx(graph)
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({}, "edge 'a' → 'b': no field 'port'"),
        ({"port": -2}, "edge 'a' → 'b'.port: -2 is not a port"),
        ({"port": 0, "size_bytes": "8"}, "edge 'a' → 'b'.size_bytes: '8' is not a number of bytes"),
    ],
)
def test_an_edge_that_is_no_tensor_is_named(attributes, problem):
    with pytest.raises(AdvisorError) as caught:
        OpGraph.from_networkx(by_hand(**attributes))
    assert problem in caught.value.message


def test_cycles_and_graphs_without_directions_are_refused():
    graph = by_hand(port=0)
    with pytest.raises(AdvisorError, match="no directions"):
        OpGraph.from_networkx(graph.to_undirected())
    graph.add_edge("b", "a", port=CONTROL_PORT)
    with pytest.raises(AdvisorError, match="a cycle: a → b → a"):
        OpGraph.from_networkx(graph)


PAGE = (Path(__file__).parents[2] / "docs/how-to/networkx.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```\n", PAGE, re.DOTALL)


def test_every_snippet_prints_what_stands_below_it():
    assert len(SNIPPETS) == PAGE.count("```python") == 4
    names = {}
    for code, shown in SNIPPETS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == shown


DEVICES = {"a": "GPU:0", "b": "GPU:1"}
FOREIGN = OpGraph(
    [Op('say "a"', "MatMul", flops=2, output_bytes=(None, 8)), op("b\\\n", "é")],
    [edge('say "a"', "b\\\n", size_bytes=None), edge('say "a"', "b\\\n", port=1)],
)
DOT = r"""digraph {
  "say \"a\"" [kind="MatMul", role="forward", flops="2", output_bytes="[null, 8]", parameter_bytes="0", device_kinds="[\"CPU\"]", host_outputs="[]"];
  "b\\\\\\n" [kind="MatMul", role="forward", layer="é", output_bytes="[8]", parameter_bytes="0", device_kinds="[\"CPU\"]", host_outputs="[]", device="GPU:1"];
  "say \"a\"" -> "b\\\\\\n" [port="0"];
  "say \"a\"" -> "b\\\\\\n" [port="1", size_bytes="8"];
}
"""  # noqa: E501
_DOT_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def read_graphml(graph):
    text = graph_text(graph, GraphFormat.GRAPHML, DEVICES)
    assert text.isascii()
    return nx.read_graphml(io.BytesIO(text.encode()))


def unquoted(text):
    """Return the strings in DOT as a label shows them."""
    return [re.sub(r"\\(.)", r"\1", found) for found in _DOT_STRING.findall(text)]


def test_dot_by_hand():
    assert graph_text(FOREIGN, GraphFormat.DOT, {"b\\\n": "GPU:1"}) == DOT


def test_graphml_has_numbers_devices_and_every_tensor():
    graph = OpGraph([op("a"), op("b")], [edge("a", "b"), edge("a", "b", port=1, size_bytes=None)])
    found = read_graphml(graph)
    assert found.nodes["a"] == {
        "kind": "MatMul", "role": "forward", "output_bytes": "[8]", "parameter_bytes": 0,
        "device_kinds": '["CPU"]', "host_outputs": "[]", "device": "GPU:0",
    }  # fmt: skip
    edges = list(found.edges(data=True))
    assert edges == [("a", "b", {"port": 0, "size_bytes": 8}), ("a", "b", {"port": 1})]


@given(st.lists(NAMES, unique=True, min_size=2, max_size=6))
def test_any_names_stay_apart_and_are_written_as_python_does(names):
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
def test_any_layer_and_kind_can_be_told_in_every_format(layer, kind):
    graph = OpGraph([Op("a", kind, layer=layer)], [])
    found = read_graphml(graph).nodes["a"]
    # GraphML cannot tell an empty text from none.
    assert found.get("layer", "") == as_python_writes(layer)
    assert found.get("kind", "") == as_python_writes(kind)
    line = graph_text(graph, GraphFormat.DOT).splitlines()[1]
    assert unquoted(line)[:4] == ["a", as_python_writes(kind), "forward", as_python_writes(layer)]
