from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from op_graphs import chain, edge, graphs, op

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT, Op, Role
from placement_advisor.graph.op_graph import OpGraph, write_graph

if TYPE_CHECKING:
    from pathlib import Path


def test_ops_stand_after_their_producers_and_otherwise_as_given() -> None:
    graph = OpGraph(
        [op("sink"), op("b"), op("a"), op("src")], [edge("src", "b"), edge("b", "sink")]
    )
    assert [o.name for o in graph.ops] == ["a", "src", "b", "sink"]
    assert [graph.index(name) for name in ("a", "sink")] == [0, 3]


def test_a_variable_that_is_not_named_twice_is_named_after_its_op() -> None:
    unnamed = Op(name="v", kind="VarHandleOp", role=Role.VARIABLE)
    named = unnamed._replace(variable="v")
    graph = OpGraph([unnamed, op("a")], [edge("v", "a", size_bytes=None)])
    assert graph.op("v") == named
    assert graph.op("a").variable is None
    assert graph == OpGraph([named, op("a")], graph.edges)


@given(graphs())
def test_producers_always_stand_before_their_consumers(graph: OpGraph) -> None:
    assert all(graph.index(e.producer) < graph.index(e.consumer) for e in graph.edges)


def test_a_cycle_is_named_from_end_to_end() -> None:
    with pytest.raises(AdvisorError) as caught:
        OpGraph([op("a"), op("b"), op("c")], [edge("a", "b"), edge("b", "c"), edge("c", "b")])
    assert caught.value.message == "the graph has a cycle: b → c → b"


def test_an_op_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(AdvisorError, match="a → a"):
        OpGraph([op("a")], [edge("a", "a")])


def test_a_long_cycle_is_named_by_its_beginning_and_length() -> None:
    names = [f"op{i}" for i in range(20)]
    circle = [edge(*ends) for ends in zip(names, [*names[1:], names[0]], strict=True)]
    with pytest.raises(AdvisorError) as caught:
        OpGraph(map(op, names), circle)
    assert caught.value.message == (
        "the graph has a cycle: op0 → op1 → op2 → op3 → op4 → op5 → op6 → op7 → … → op0 (20 ops)"
    )


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


@given(graphs())
def test_every_edge_is_found_once_from_either_end(graph: OpGraph) -> None:
    names = [o.name for o in graph.ops]
    assert tuple(e for name in names for e in graph.outputs_of(name)) == graph.edges
    entering = [e for name in names for e in graph.inputs_of(name)]
    assert sorted(map(repr, entering)) == sorted(map(repr, graph.edges))
    assert all(e.consumer == name for name in names for e in graph.inputs_of(name))


def test_looking_up_an_op_that_is_not_there_is_a_key_error() -> None:
    graph = OpGraph([op("a")], [])
    assert ("a" in graph, "b" in graph, len(graph)) == (True, False, 1)
    for look_up in (graph.op, graph.index, graph.inputs_of, graph.outputs_of):
        with pytest.raises(KeyError):
            look_up("b")


def test_the_known_share_counts_data_edges_alone() -> None:
    edges = [
        edge("a", "b", size_bytes=8),
        edge("a", "b", port=1, size_bytes=None),
        edge("a", "b", port=CONTROL_PORT, size_bytes=None),
    ]
    assert OpGraph([op("a"), op("b")], edges).edge_bytes_known_share == 0.5
    assert OpGraph([op("a")], []).edge_bytes_known_share == 1.0


def test_layers_stand_in_the_order_of_their_first_op() -> None:
    graph = OpGraph([op("a", "dense"), op("b"), op("c", "conv"), op("d", "dense")], [])
    assert graph.layers() == ("dense", "conv")


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    # Another hash seed orders sets otherwise.
    program = (
        "from placement_advisor.graph.op_graph import Op, OpGraph\n"
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


def test_a_graph_is_sent_to_another_process_without_its_indices() -> None:
    graph = chain("a", "b", "c")
    plain = pickle.dumps(graph)
    assert graph.inputs_of("b") == (edge("a", "b"),)
    assert pickle.dumps(graph) == plain
    assert pickle.loads(plain) == graph


@pytest.mark.parametrize(
    ("listed", "sizes", "message"),
    [
        ((8,), [9], "carries 9 bytes, where output 0 of 'a' has 8 bytes"),
        ((8,), [None], "carries an unknown number of bytes, where output 0 of 'a' has 8 bytes"),
        ((None,), [8], "carries 8 bytes, where output 0 of 'a' has an unknown number of bytes"),
        # No list says what is right, but both cannot be.
        ((), [8, 9], "edge 'a' → 'c' carries 9 bytes, where output 0 of 'a' has 8 bytes"),
    ],
)
def test_an_edge_has_the_size_that_its_producer_lists(
    listed: tuple[int | None, ...], sizes: list[int | None], message: str
) -> None:
    ops = [op("a")._replace(output_bytes=listed), op("b"), op("c")]
    edges = [edge("a", to, size_bytes=size) for to, size in zip("bc", sizes, strict=False)]
    with pytest.raises(AdvisorError, match=message):
        OpGraph(ops, edges)


def test_a_file_whose_edge_has_another_size_than_its_producer_lists_is_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "step.graph.json.gz"
    write_graph(path, [op("a"), op("b")], [edge("a", "b", size_bytes=9)], None)
    with pytest.raises(
        AdvisorError, match=r"step\.graph\.json\.gz: edge 'a' → 'b' carries 9 bytes"
    ):
        OpGraph.load(path)


def test_a_control_edge_has_no_size_to_agree_with() -> None:
    ops = [op("a"), op("b")]
    for size in (None, 0):
        OpGraph(ops, [edge("a", "b", port=CONTROL_PORT, size_bytes=size)])
