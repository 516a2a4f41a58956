"""A step traced on its batch several times over: the same graph in other sizes, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.processes.children import Child

_STEP = """
import tensorflow as tf
@tf.function
def step(x, scale, words):
    {more}
    return tf.reduce_sum(x * scale, axis=1, name="total"), tf.strings.length(words)
inputs = tf.ones((8, 6)), tf.ones((6,)), tf.constant(["word"] * 8)
"""
_LARGE = """
import tensorflow as tf
@tf.function
def step(x):
    return tf.reduce_sum(x, axis=1)
inputs = tf.ones((8, 1_000_000))
"""


def _repeated(
    child: Child, folder: Path, more: str = "", *, step: str = _STEP, times: int = 4
) -> object:
    path = folder / "step.py"
    path.write_text(step.format(more=more))
    child.call(tracer.load_workload, ModelSource(path=str(path)))
    child.call(tracer.trace_workload, str(path), None)
    return child.call(splitter.trace_repeated, times)


def test_samples_are_more_and_all_else_is_as_before(child, tmp_path):
    graph = _repeated(child, tmp_path)
    assert isinstance(graph, OpGraph)
    sizes = {op.layer or op.name: op.output_bytes for op in graph.ops}
    assert sizes["x"] == (4 * 8 * 6 * 4,)
    assert sizes["scale"] == (6 * 4,)
    assert sizes["words"] == (4 * 8 * 4,)
    assert graph.op("total").output_bytes == (4 * 8 * 4,)


def test_samples_are_not_made_that_only_shapes_are_wanted_of(child, tmp_path):
    """They would take 3.2 TB."""
    graph = _repeated(child, tmp_path, step=_LARGE, times=100_000)
    assert isinstance(graph, OpGraph), graph
    assert graph.op("x").output_bytes == (100_000 * 8 * 1_000_000 * 4,)


def test_a_step_that_takes_its_own_batch_alone_is_not_traced(child, tmp_path):
    answer = _repeated(child, tmp_path, "x = tf.ensure_shape(x, (8, 6))")
    assert isinstance(answer, BatchSplitError)
    assert answer.message.startswith("it takes no batch of 32: ")


def test_a_step_with_other_ops_at_another_batch_is_refused(child, tmp_path):
    answer = _repeated(child, tmp_path, "x = x + 1 if x.shape[0] > 8 else x")
    assert isinstance(answer, BatchSplitError)
    assert "the step is a different graph" in answer.message
