"""Files that are written by the process with TensorFlow."""

import shutil
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.tf import split_merging
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.hand_over import hand_over
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.split_step import split_workload
from placement_advisor.tf.trace import tracer

v1 = tf.compat.v1


def write_saved(folder):
    """Write one model of each kind into a folder."""
    here = Path(folder)
    _keras_files(here)
    _saved_models(here)
    _graphs(here)


def _keras_files(here):
    ids = keras.Input((5,), dtype="int32", name="ids")
    vectors = keras.layers.Embedding(9, 4)(ids)
    classes = keras.layers.Dense(3)(keras.layers.Flatten()(vectors))
    model = keras.Model(ids, classes, name="classifier")
    model.save(here / "plain.keras")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    model.save(here / "compiled.keras")
    model.export(here / "exported", verbose=False)
    (here / "damaged.keras").write_bytes(b"no archive")
    own = type("Own", (keras.layers.Dense,), {})
    keras.Sequential([keras.Input((2,)), own(3)]).save(here / "own_class.keras")


class Served(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="rows")])
    def double(self, rows):
        return 2.0 * rows

    @tf.function(input_signature=[tf.TensorSpec([4, None], name="rows")])
    def total(self, rows):
        return tf.reduce_sum(rows)


def _saved_models(here):
    served = Served()
    signatures = {"double": served.double, "total": served.total}
    tf.saved_model.save(served, here / "two_signatures", signatures)
    tf.saved_model.save(served, here / "one_signature", {"double": served.double})
    (here / "damaged").mkdir()
    (here / "damaged" / "saved_model.pb").write_bytes(b"no message")


def _graphs(here):
    """Write a TF1 SavedModel whose loop is made of TF1's ops; frozen; and not frozen."""
    v1.disable_control_flow_v2()
    graph = tf.Graph()
    with graph.as_default(), tf.device("/gpu:0"):
        rows = v1.placeholder(tf.float32, (None, 4), name="rows")
        _, looped = v1.while_loop(
            lambda i, _: i < 3, lambda i, value: (i + 1, 2.0 * value), (tf.constant(0), rows)
        )
        weights = v1.get_variable("weights", initializer=np.ones((4, 2), np.float32))
        tf.add(tf.matmul(looped, weights), 1.0, name="sum")
    with v1.Session(graph=graph) as running:
        running.run(v1.variables_initializer([weights]))
        result = graph.get_tensor_by_name("sum:0")
        v1.saved_model.simple_save(running, str(here / "tf1"), {"rows": rows}, {"sum": result})
        frozen = v1.graph_util.convert_variables_to_constants(
            running, graph.as_graph_def(), ["sum"]
        )
    v1.enable_control_flow_v2()
    (here / "frozen.pb").write_bytes(frozen.SerializeToString())
    (here / "not_frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    shutil.copy(here / "tf1" / "saved_model.pb", here / "renamed.pb")
    (here / "damaged.pb").write_bytes(b"no message")
    two = tf.Graph()
    with two.as_default():
        used = v1.placeholder(tf.float32, (2, 3), name="used")
        unused = v1.placeholder(tf.float32, None, name="unused")
        tf.negative(used, name="first")
        tf.negative(unused, name="second")
    (here / "two_ends.pb").write_bytes(two.as_graph_def().SerializeToString())


def write_loops(folder):
    """Write one model of each kind into a folder."""
    here = Path(folder)
    words = keras.Input((6, 4), name="words")
    state = keras.layers.LSTM(8)(words)
    keras.Model(words, keras.layers.Dense(2)(state)).export(here / "lstm", verbose=False)
    served = Vocabulary()
    tf.saved_model.save(served, here / "lookup", {"embed": served.embed})
    v1.disable_control_flow_v2()
    _loop_graph(
        here / "loop.pb", lambda rows: _counted(rows, lambda value: value @ np.ones((4, 4), "f"))
    )
    _loop_graph(
        here / "growing.pb", lambda rows: _counted(rows, lambda v: tf.concat([v, v], 0), (None, 4))
    )
    _loop_graph(here / "array.pb", _items_doubled)
    v1.enable_control_flow_v2()


class Vocabulary(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), 0
        )
        self.vectors = tf.Variable(tf.ones((3, 5)))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.string, name="words")])
    def embed(self, words):
        return tf.gather(self.vectors, self.table.lookup(words))


def _loop_graph(path, build):
    graph = tf.Graph()
    with graph.as_default():
        rows = v1.placeholder(tf.float32, (None, 4), name="rows")
        tf.identity(build(rows), name="end")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def _counted(rows, step, shape=None):
    invariants = (tf.TensorShape(()), tf.TensorShape(shape)) if shape else None
    counted = (tf.constant(0), rows)
    return v1.while_loop(
        lambda i, _: i < 3, lambda i, value: (i + 1, step(value)), counted, invariants
    )[1]


def _items_doubled(rows):
    read = tf.TensorArray(tf.float32, 5, infer_shape=False).unstack(tf.stack([rows] * 5))
    written = tf.TensorArray(tf.float32, 5, infer_shape=False)
    start = (tf.constant(0), written)
    body = lambda i, items: (i + 1, items.write(i, 2.0 * read.read(i)))  # noqa: E731
    return v1.while_loop(lambda i, _: i < 5, body, start)[1].stack()


def write_waiting(path):
    """Write a graph that takes a batch from a queue which nothing fills."""
    graph = tf.Graph()
    with graph.as_default():
        rows = v1.placeholder(tf.float32, (8, 4), name="rows")
        queue = v1.FIFOQueue(2, [tf.float32], [(8, 4)], name="queue")
        tf.identity(rows @ tf.ones((4, 4)) + queue.dequeue(name="taken"), name="end")
    Path(path).write_bytes(graph.as_graph_def().SerializeToString())


def split(path, limit_s):
    """Return why the batch of that graph is not split, where a step may take so long."""
    split_merging.step_limit_s = lambda graph: limit_s
    tracer.load_workload(ModelSource(path=path))
    traced = tracer.trace_workload(path, None)
    assert isinstance(traced, Traced), traced
    answer = split_workload((4, 4), str(Path(path).parent))
    assert isinstance(answer, BatchSplitError)
    return str(answer)


class Doubled(keras.layers.Layer):
    """A class that no other process knows."""

    def call(self, x):
        return 2 * x


def _small_model(*, own_class):
    inputs = keras.Input((6,), name="features")
    x = keras.layers.Dense(4, activation="relu", name="hidden")(inputs)
    x = Doubled()(x) if own_class else x
    made = keras.Model(inputs, keras.layers.Dense(1, name="score")(x), name="small")
    made.compile("adam", "mse")
    return made


def write_handed_over(kind, folder):
    """Hand something over; return the file, or what is said of it."""
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
    y = x[:, :1] ** 2
    weight = tf.Variable(tf.fill((6, 1), 0.5), name="weight")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    @tf.function
    def calls_python(x):
        return tf.py_function(lambda value: value, [x @ weight], tf.float32)

    given = {
        "model": (_small_model(own_class=False), x, y),
        "own class": (_small_model(own_class=True), x, y),
        "dataset": (train_step, tf.data.Dataset.from_tensors((x, y))),
        "function": (train_step, x, y),
        "python": (calls_python, x),
    }
    step, *inputs = given[kind]
    try:
        return str(hand_over(step, tuple(inputs), None, Path(folder) / "object"))
    except AdvisorError as error:
        return f"{error}; {error.hint}"
