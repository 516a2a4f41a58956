"""Shapes behind loops, lookups and TensorArrays of files that take any batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from traced_models import trace

from placement_advisor.processes import children
from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph

loop_files = RemoteModule("loop_files")
BATCH = 32


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    with children.Child("writer") as writer:
        writer.call(loop_files.write, str(folder))
    return folder


@pytest.fixture
def traced(files, tmp_path):
    return lambda file: trace(files / file, tmp_path, run=False).graph


def _only(graph: OpGraph, kind: str) -> Op:
    (op,) = [op for op in graph.ops if op.kind == kind]
    return op


def test_the_lists_and_states_of_a_saved_lstm_have_the_size_of_the_batch(traced):
    graph = traced("lstm")
    loop = _only(graph, "While")
    assert loop.trips == 6
    # The six words of four floats go in as a list; states have eight floats.
    assert {6 * BATCH * 4 * 4, BATCH * 8 * 4} < set(loop.output_bytes)
    assert None not in loop.output_bytes
    assert graph.edge_bytes_known_share == 1.0
    # Per word: (32, 4) times (4, 32) and (32, 8) times (8, 32); as much again for activations.
    products = 6 * 2 * BATCH * 32 * (4 + 8)
    assert products < (loop.flops or 0) < 3 * products
    assert loop.bytes_accessed is not None


def test_what_is_looked_up_has_a_value_for_each_key(traced):
    graph = traced("lookup")
    assert _only(graph, "LookupTableFindV2").output_bytes == (BATCH * 4 * 8,)
    assert _only(graph, "ResourceGather").output_bytes == (BATCH * 4 * 5 * 4,)


def test_a_loop_of_tf1_that_keeps_a_shape_puts_out_that_shape(traced):
    graph = traced("loop.pb")
    loop = _only(graph, "While")
    assert loop.trips == 3
    assert loop.output_bytes == (BATCH * 4 * 4,)
    assert 3 * 2 * BATCH * 4 * 4 < (loop.flops or 0) < 3 * 2 * BATCH * 4 * 4 + 20
    assert graph.edge_bytes_known_share == 1.0


def test_what_grows_in_a_loop_stays_unknown(traced):
    loop = _only(traced("growing.pb"), "While")
    assert loop.output_bytes == (None,)
    assert loop.bytes_accessed is None


def test_items_of_a_tensor_array_have_the_shape_of_what_was_put_in(traced):
    graph = traced("array.pb")
    assert _only(graph, "TensorArrayGatherV3").output_bytes == (5 * BATCH * 4 * 4,)
    assert _only(graph, "While").flops == 5 * (BATCH * 4 + 2)
