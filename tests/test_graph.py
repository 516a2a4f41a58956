from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.errors import AdvisorError
from placement_advisor.graph import CONTROL_PORT, Edge, Op, OpGraph, Role, ancestor_cones

if TYPE_CHECKING:
    from pathlib import Path

    from hypothesis.strategies import DrawFn


def op(name: str, layer: str | None = None) -> Op:
    return Op(name=name, kind="MatMul", layer=layer, output_bytes=(8,))


def edge(producer: str, consumer: str, *, port: int = 0, size_bytes: int | None = 8) -> Edge:
    return Edge(producer=producer, consumer=consumer, port=port, size_bytes=size_bytes)


@st.composite
def graphs(draw: DrawFn) -> OpGraph:
    """Draw a DAG with its ops given in any order."""
    optional = st.one_of(st.none(), st.integers(0, 10**9))
    ops = [
        Op(
            name=f"op{i}",
            kind=draw(st.sampled_from(["MatMul", "Relu"])),
            role=draw(st.sampled_from(Role)),
            layer=draw(st.one_of(st.none(), st.text(max_size=5))),
            variable=draw(st.sampled_from([None, "v"])),
            flops=draw(optional),
            output_bytes=tuple(draw(st.lists(optional, max_size=3))),
            parameter_bytes=draw(st.integers(0, 100)),
            device_kinds=frozenset(draw(st.sets(st.sampled_from(["CPU", "GPU"])))),
        )
        for i in range(draw(st.integers(0, 10)))
    ]
    edges = [
        edge(
            ops[first].name,
            ops[second].name,
            port=draw(st.integers(CONTROL_PORT, 2)),
            size_bytes=draw(optional),
        )
        for first in range(len(ops))
        for second in range(first + 1, len(ops))
        if draw(st.booleans())
    ]
    return OpGraph(draw(st.permutations(ops)), draw(st.permutations(edges)))


def test_ops_stand_after_their_producers_and_otherwise_as_given() -> None:
    graph = OpGraph(
        [op("sink"), op("b"), op("a"), op("src")], [edge("src", "b"), edge("b", "sink")]
    )
    assert [o.name for o in graph.ops] == ["a", "src", "b", "sink"]
    assert [graph.index(name) for name in ("a", "sink")] == [0, 3]


@given(graphs())
def test_producers_always_stand_before_their_consumers(graph: OpGraph) -> None:
    assert all(graph.index(e.producer) < graph.index(e.consumer) for e in graph.edges)


@given(graphs())
def test_the_order_of_the_edges_does_not_matter(graph: OpGraph) -> None:
    assert OpGraph(graph.ops, reversed(graph.edges)).ops == graph.ops


@given(graph=graphs())
def test_a_graph_loads_back_equal(tmp_path_factory: pytest.TempPathFactory, graph: OpGraph) -> None:
    path = tmp_path_factory.mktemp("graph") / "graph.json.gz"
    graph.save(path)
    loaded = OpGraph.load(path)
    assert loaded == graph
    assert loaded.fingerprint == graph.fingerprint


def test_a_cycle_is_named_from_end_to_end() -> None:
    with pytest.raises(AdvisorError) as caught:
        OpGraph([op("a"), op("b"), op("c")], [edge("a", "b"), edge("b", "c"), edge("c", "b")])
    assert caught.value.message == "the graph has a cycle: b → c → b"


def test_an_op_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(AdvisorError, match="a → a"):
        OpGraph([op("a")], [edge("a", "a")])


def test_an_op_given_twice_is_named() -> None:
    with pytest.raises(AdvisorError, match="op 'b' appears twice"):
        OpGraph([op("a"), op("b"), op("b")], [])


@pytest.mark.parametrize("ends", [("a", "gone"), ("gone", "a")])
def test_an_edge_to_an_unknown_op_is_named(ends: tuple[str, str]) -> None:
    with pytest.raises(AdvisorError, match="op 'gone' is not in the graph"):
        OpGraph([op("a")], [edge(*ends)])


def test_edges_are_found_from_both_ends() -> None:
    first, second, order = edge("a", "b"), edge("a", "c"), edge("b", "c", port=CONTROL_PORT)
    graph = OpGraph([op("a"), op("b"), op("c")], [order, second, first])
    assert graph.outputs_of("a") == (first, second)
    assert graph.inputs_of("c") == (second, order)
    assert (graph.inputs_of("a"), graph.outputs_of("c")) == ((), ())
    assert (order.is_control, first.is_control) == (True, False)


def test_looking_up_an_op_that_is_not_there_is_a_key_error() -> None:
    graph = OpGraph([op("a")], [])
    assert ("a" in graph, "b" in graph, len(graph)) == (True, False, 1)
    with pytest.raises(KeyError):
        graph.op("b")


def test_the_known_share_counts_data_edges_alone() -> None:
    edges = [
        edge("a", "b", size_bytes=8),
        edge("a", "b", port=1, size_bytes=None),
        edge("a", "b", port=CONTROL_PORT, size_bytes=None),
    ]
    assert OpGraph([op("a"), op("b")], edges).edge_bytes_known_share == 0.5
    assert OpGraph([op("a")], []).edge_bytes_known_share == 1.0


def test_parameters_add_up() -> None:
    ops = [replace(op(name), parameter_bytes=size) for name, size in (("a", 5), ("b", 7))]
    assert OpGraph(ops, []).parameter_bytes == 12


def test_layers_stand_in_the_order_of_their_first_op() -> None:
    graph = OpGraph([op("a", "dense"), op("b"), op("c", "conv"), op("d", "dense")], [])
    assert graph.layers() == ("dense", "conv")


@pytest.mark.parametrize(
    "other",
    [
        OpGraph([op("a", "layer"), op("b")], [edge("a", "b")]),
        OpGraph([op("a"), op("b")], [edge("a", "b", size_bytes=9)]),
        OpGraph([op("a"), op("b")], [edge("a", "b", size_bytes=None)]),
        OpGraph([op("a"), op("b")], [edge("a", "b", port=1)]),
        OpGraph([op("a"), op("b")], []),
    ],
)
def test_different_graphs_have_different_fingerprints(other: OpGraph) -> None:
    graph = OpGraph([op("a"), op("b")], [edge("a", "b")])
    assert other.fingerprint != graph.fingerprint
    assert OpGraph(list(graph.ops), list(graph.edges)).fingerprint == graph.fingerprint


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    # Another hash seed orders sets otherwise.
    program = (
        "from placement_advisor.graph import Op, OpGraph\n"
        "op = Op(name='a', kind='K', device_kinds=frozenset({'CPU', 'GPU', 'TPU'}))\n"
        "print(OpGraph([op], []).fingerprint)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_networkx_gets_a_copy_with_ops_and_bytes() -> None:
    graph = OpGraph([op("a"), op("b")], [edge("a", "b"), edge("a", "b", port=1, size_bytes=None)])
    view = graph.as_networkx()
    assert view.nodes["a"]["op"] == op("a")
    assert {
        (port, data["size_bytes"]) for _, _, port, data in view.edges(keys=True, data=True)
    } == {
        (0, 8),
        (1, None),
    }
    view.remove_node("a")
    assert "a" in graph


def test_a_cone_holds_an_op_and_all_that_reach_it() -> None:
    cones = ancestor_cones([("a", "b"), ("b", "c"), ("x", "c")], "abcxy")
    assert cones == {
        "a": {"a"},
        "b": {"a", "b"},
        "c": {"a", "b", "c", "x"},
        "x": {"x"},
        "y": {"y"},
    }


def test_ops_on_a_cycle_share_one_cone() -> None:
    cones = ancestor_cones([("a", "b"), ("b", "c"), ("c", "b")], "abc")
    assert cones["b"] == cones["c"] == {"a", "b", "c"}


def test_a_saved_graph_is_compressed(tmp_path: Path) -> None:
    OpGraph([op("a")], []).save(tmp_path / "graph.json.gz")
    assert (tmp_path / "graph.json.gz").read_bytes()[:2] == b"\x1f\x8b"
