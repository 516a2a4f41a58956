"""Models as files, written by the process that has TensorFlow."""

import shutil
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf


def write(folder: str) -> None:
    """Write one model of each kind into a folder."""
    here = Path(folder)
    _keras_files(here)
    _saved_models(here)
    _graphs(here)


def _keras_files(here: Path) -> None:
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
    def double(self, rows: tf.Tensor) -> tf.Tensor:
        return 2.0 * rows

    @tf.function(input_signature=[tf.TensorSpec([4, None], name="rows")])
    def total(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(rows)


def _saved_models(here: Path) -> None:
    served = Served()
    signatures = {"double": served.double, "total": served.total}
    tf.saved_model.save(served, here / "two_signatures", signatures)
    tf.saved_model.save(served, here / "one_signature", {"double": served.double})
    (here / "damaged").mkdir()
    (here / "damaged" / "saved_model.pb").write_bytes(b"no message")


def _graphs(here: Path) -> None:
    """Write a TF1 SavedModel whose loop is made of TF1's ops; frozen; and not frozen."""
    v1 = tf.compat.v1
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
