"""Loops and conditionals that only read variables are handed values, and stand where they like.

That they compute the same is shown in test_equal_results.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph

STEP = """
import tensorflow as tf
read, written = tf.Variable(tf.ones((3, 3)), name="read"), tf.Variable(0.0, name="written")
inputs = tf.ones((4, 3))

def product(x):
    return x @ read

@tf.function
def step(x):
    {body}
    return x
"""
ONLY_READ = {
    "a loop": (
        "x = tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: (product(x),), (x,))[0]"
    ),
    "a condition that reads": (
        "x = tf.while_loop(lambda x: tf.reduce_sum(x @ read) < 9.0, lambda x: (x + 1.0,), (x,))[0]"
    ),
    "a loop in a loop": (
        "for _ in tf.range(3):\n        for _ in tf.range(2):\n            x = product(x)"
    ),
    "a function in a loop": (
        "inner = tf.function(product)\n    for _ in tf.range(3):\n        x = inner(x)"
    ),
    "a conditional": "x = tf.cond(tf.reduce_sum(x) > 0.0, lambda: product(x), lambda: x + read[0])",
    "a choice": "x = tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: product(x), lambda: x])",
    "a gradient": (
        "with tf.GradientTape() as tape:\n"
        "        y = x\n"
        "        for _ in tf.range(3):\n"
        "            y = product(y)\n"
        "    x = tape.gradient(y, read)"
    ),
}
ALSO_WRITTEN = "for _ in tf.range(3):\n        written.assign_add(tf.reduce_sum(product(x)))"
HOLDERS = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")


def holders_in(graph: OpGraph) -> list[str | None]:
    """Return the variable that each loop or conditional is bound to."""
    return [op.variable for op in graph.ops if op.kind in HOLDERS]


@pytest.mark.parametrize("body", ONLY_READ.values(), ids=ONLY_READ)
def test_what_only_reads_a_variable_is_bound_to_none(trace_source, body):
    graph = trace_source(STEP.format(body=body)).graph
    bound = holders_in(graph)
    assert bound
    assert set(bound) == {None}
    # The read stands with the variable, and crosses as any tensor does.
    assert {op.variable for op in graph.ops if op.kind == "ReadVariableOp"} == {"read"}


def test_what_looks_up_rows_stays_with_their_table(trace_source):
    body = "for i in tf.range(3):\n        x += tf.gather(read, i)"
    assert holders_in(trace_source(STEP.format(body=body)).graph) == ["read"]


def test_what_writes_a_variable_stays_with_it_but_is_handed_what_it_reads(trace_source):
    graph = trace_source(STEP.format(body=ALSO_WRITTEN)).graph
    assert holders_in(graph) == ["written"]
    (loop,) = (op for op in graph.ops if op.kind in HOLDERS)
    producers = {graph.op(edge.producer).kind for edge in graph.inputs_of(loop.name)}
    assert "ReadVariableOp" in producers
