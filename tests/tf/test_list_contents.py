"""What lists of tensors hold: by hand, and by TensorFlow's own lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import SCALAR, nodes_of

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace.constant_values import ListContent, after_trips, note_list

ROW = TensorSpec((2, 3), "float32", 4)
_FLOATS = {"element_dtype": "float32"}
_SHAPE = {"value": np.array([2, 3], np.int32)}
_ANY_SHAPE = {"value": np.array(-1, np.int32)}


def _noted(
    ops: dict[str, tuple[str, list[str]]], shape: dict[str, Any]
) -> tuple[dict[str, ListContent], dict[str, TensorSpec]]:
    """Return what lists hold, and the specs that the ops then have."""
    attributes = {"shape": shape, "reserved": _FLOATS, "empty": _FLOATS}
    nodes = nodes_of(ops, attributes, {"row": [ROW], "rows": [TensorSpec((5, 2, 3), "float32", 4)]})
    lists: dict[tuple[str, int], ListContent] = {}
    for node in nodes:
        note_list(node, lists, {("five", 0): 5})
    return {n: c for (n, _), c in lists.items()}, {n.name: n.outputs[0] for n in nodes}


def test_a_list_that_is_made_has_the_length_and_shape_that_it_is_made_with():
    ops = {"shape": ("Const", []), "five": ("Const", [])}
    ops["reserved"] = ("TensorListReserve", ["shape", "five"])
    found, specs = _noted(ops, _SHAPE)
    assert found == {"reserved": ListContent((2, 3), "float32", 5)}
    assert specs["reserved"] == TensorSpec((5, 2, 3), "variant", 4)
    assert specs["reserved"].size_bytes == 5 * 2 * 3 * 4


def test_what_is_put_into_a_list_tells_the_shape_of_its_items():
    ops = {"shape": ("Const", []), "five": ("Const", []), "row": ("Placeholder", [])}
    ops |= {
        "reserved": ("TensorListReserve", ["shape", "five"]),
        "set": ("TensorListSetItem", ["reserved", "five", "row"]),
        "empty": ("EmptyTensorList", ["shape", "five"]),
        "pushed": ("TensorListPushBack", ["empty", "row"]),
        "twice": ("TensorListPushBack", ["pushed", "row"]),
        "popped": ("TensorListPopBack", ["twice", "shape"]),
    }
    found, specs = _noted(ops, _ANY_SHAPE)
    assert found["reserved"] == ListContent(None, "float32", 5)
    assert specs["reserved"] == SCALAR  # As it was: its size is not known.
    assert specs["set"] == TensorSpec((5, 2, 3), "variant", 4)
    assert found["empty"] == ListContent(None, "float32", 0)
    lengths = [found[name].length for name in ("pushed", "twice", "popped")]
    assert lengths == [1, 2, 1]


def test_items_of_different_shapes_have_no_shape():
    ops = {"shape": ("Const", []), "five": ("Const", []), "row": ("Placeholder", [])}
    ops |= {
        "rows": ("Placeholder", []),
        "empty": ("EmptyTensorList", ["shape", "five"]),
        "pushed": ("TensorListPushBack", ["empty", "row"]),
        "mixed": ("TensorListPushBack", ["pushed", "rows"]),
    }
    found, _ = _noted(ops, _ANY_SHAPE)
    assert found["mixed"] == ListContent(None, "float32", 2)


def test_lists_that_are_added_up_are_alike():
    ops = {"shape": ("Const", []), "unknown": ("Placeholder", []), "rows": ("Placeholder", [])}
    ops |= {
        "given": ("TensorListFromTensor", ["rows", "shape"]),
        "reserved": ("TensorListReserve", ["shape", "unknown"]),
        "sum": ("AddN", ["reserved", "given"]),
    }
    found, specs = _noted(ops, _ANY_SHAPE)
    assert found["sum"] == found["reserved"] == found["given"] == ListContent((2, 3), "float32", 5)
    assert specs["reserved"].size_bytes == 5 * 2 * 3 * 4


@given(length=st.integers(0, 9), added=st.integers(-3, 3), trips=st.integers(0, 9))
def test_a_loop_adds_to_a_list_on_each_trip(length, added, trips):
    first = ListContent((2,), "float32", length)
    last = after_trips(first, ListContent((2,), "float32", length + added), trips)
    assert last.length == length + added * trips


def test_without_trips_the_length_is_known_only_if_it_does_not_change():
    five, six = (ListContent((2,), "float32", length) for length in (5, 6))
    assert after_trips(five, five, None).length == 5
    assert after_trips(five, six, None).length is None


def test_a_list_that_grows_when_it_is_written_has_an_unknown_size(trace_source):
    graph = trace_source(
        """
import tensorflow as tf
inputs = (tf.ones((3, 4)),)
@tf.function
def infer(x):
    items = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    for i in tf.range(7):
        items = items.write(i, x)
    return items.stack()
"""
    ).graph
    (loop,) = [op for op in graph.ops if op.kind == "StatelessWhile"]
    assert loop.trips == 7
    assert None in loop.output_bytes


def test_what_a_loop_keeps_for_its_gradient_has_the_size_that_it_has_when_it_runs(trace_source):
    graph = trace_source(
        """
import tensorflow as tf
weights = tf.Variable(tf.eye(4))
inputs = (tf.ones((3, 4)),)
@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        for _ in tf.range(7):
            x = tf.tanh(x @ weights)
        loss = tf.reduce_sum(x)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss
"""
    ).graph
    (loop,) = [op for op in graph.ops if op.kind == "While"]
    kept = 7 * 3 * 4 * 4  # x, or what tanh returned, on each of seven trips.
    assert kept in loop.output_bytes
    assert graph.edge_bytes_known_share == 1.0
    assert all(op.bytes_accessed is not None for op in graph.ops)
