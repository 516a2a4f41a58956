"""A frozen graph that waits for ever, written by the process that has TensorFlow."""

from pathlib import Path

import tensorflow as tf

from placement_advisor.errors import BatchSplitError
from placement_advisor.tf import split_merging
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.split_step import split_workload
from placement_advisor.tf.trace import tracer

v1 = tf.compat.v1


def write(path: str) -> None:
    """Write a graph that takes a batch from a queue which nothing fills."""
    graph = tf.Graph()
    with graph.as_default():
        rows = v1.placeholder(tf.float32, (8, 4), name="rows")
        queue = v1.FIFOQueue(2, [tf.float32], [(8, 4)], name="queue")
        tf.identity(rows @ tf.ones((4, 4)) + queue.dequeue(name="taken"), name="end")
    Path(path).write_bytes(graph.as_graph_def().SerializeToString())


def split(path: str, limit_s: float) -> str:
    """Return why the batch of that graph is not split, where a step may take so long."""
    split_merging.step_limit_s = lambda graph: limit_s
    tracer.load_workload(ModelSource(path=path))
    traced = tracer.trace_workload(path, None)
    assert isinstance(traced, Traced), traced
    answer = split_workload((4, 4), str(Path(path).parent))
    assert isinstance(answer, BatchSplitError)
    return str(answer)
