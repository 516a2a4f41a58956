from __future__ import annotations

import json
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from op_graphs import chain, edge, graphs, op

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph

READ = Op(name="read", kind="ReadVariableOp", variable="w", output_bytes=(None,), flops=0)
PLACE = OpGraph(
    [
        Op(name="w", kind="VarHandleOp", role=Role.VARIABLE, parameter_bytes=4),
        READ,
        op("out", layer="dense"),
    ],
    [
        Edge("w", "read", CONTROL_PORT, None),
        Edge("read", "out", 0, None),
        Edge("read", "out", 1, 8),
    ],
)


def test_ops_and_tensors_become_nodes_and_edges_and_unknown_is_absent() -> None:
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


def test_values_are_of_the_types_of_json() -> None:
    role = PLACE.as_networkx().nodes["w"]["role"]
    assert type(role) is str


def test_networkx_gets_a_copy() -> None:
    graph = chain("a", "b")
    view = graph.as_networkx()
    view.nodes["b"]["output_bytes"].append(1)
    view.remove_node("a")
    assert graph == chain("a", "b")


@given(graphs())
def test_a_graph_comes_back_equal_from_networkx_and_from_its_json(graph: OpGraph) -> None:
    found = graph.as_networkx({op.name: "GPU:0" for op in graph.ops})
    assert OpGraph.from_networkx(found) == graph
    text = json.dumps(nx.node_link_data(found, edges="edges"))
    assert OpGraph.from_networkx(nx.node_link_graph(json.loads(text), edges="edges")) == graph


def by_hand(**edge_attributes: Any) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_node("a", kind="MatMul", output_bytes=[None], flops=None)
    graph.add_node("b", kind="Relu", weight=2.5)
    graph.add_edge("a", "b", **edge_attributes)
    return graph


def test_a_plain_graph_is_enough_and_what_is_not_ours_is_left_out() -> None:
    expected = OpGraph(
        [op("a")._replace(output_bytes=(None,)), Op(name="b", kind="Relu")],
        [edge("a", "b", size_bytes=None)],
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
def test_a_node_that_is_no_op_is_named(
    node: object, attributes: dict[str, object], problem: str
) -> None:
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
def test_an_edge_that_is_no_tensor_is_named(attributes: dict[str, object], problem: str) -> None:
    with pytest.raises(AdvisorError) as caught:
        OpGraph.from_networkx(by_hand(**attributes))
    assert problem in caught.value.message


def test_cycles_and_graphs_without_directions_are_refused() -> None:
    graph = by_hand(port=0)
    with pytest.raises(AdvisorError, match="no directions"):
        OpGraph.from_networkx(graph.to_undirected())
    graph.add_edge("b", "a", port=CONTROL_PORT)
    with pytest.raises(AdvisorError, match="a cycle: a → b → a"):
        OpGraph.from_networkx(graph)
