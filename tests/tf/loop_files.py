"""Files whose shapes TensorFlow leaves open, written by the process that has TensorFlow."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def write(folder: str) -> None:
    """Write one model of each kind into a folder."""
    here = Path(folder)
    _lstm(here)
    _lookup(here)
    v1.disable_control_flow_v2()
    _graph(here / "loop.pb", lambda rows: _loop(rows, lambda value: value @ np.ones((4, 4), "f")))
    _graph(here / "growing.pb", lambda rows: _loop(rows, lambda v: tf.concat([v, v], 0), (None, 4)))
    _graph(here / "array.pb", _items_doubled)
    v1.enable_control_flow_v2()


def _lstm(here: Path) -> None:
    words = keras.Input((6, 4), name="words")
    state = keras.layers.LSTM(8)(words)
    keras.Model(words, keras.layers.Dense(2)(state)).export(here / "lstm", verbose=False)


class Vocabulary(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), 0
        )
        self.vectors = tf.Variable(tf.ones((3, 5)))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.string, name="words")])
    def embed(self, words: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.vectors, self.table.lookup(words))


def _lookup(here: Path) -> None:
    served = Vocabulary()
    tf.saved_model.save(served, here / "lookup", {"embed": served.embed})


def _graph(path: Path, build: object) -> None:
    graph = tf.Graph()
    with graph.as_default():
        rows = v1.placeholder(tf.float32, (None, 4), name="rows")
        tf.identity(build(rows), name="end")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def _loop(rows: tf.Tensor, step: object, shape: tuple[int | None, ...] | None = None) -> tf.Tensor:
    invariants = (tf.TensorShape(()), tf.TensorShape(shape)) if shape else None
    counted = (tf.constant(0), rows)
    return v1.while_loop(
        lambda i, _: i < 3, lambda i, value: (i + 1, step(value)), counted, invariants
    )[1]


def _items_doubled(rows: tf.Tensor) -> tf.Tensor:
    read = tf.TensorArray(tf.float32, 5, infer_shape=False).unstack(tf.stack([rows] * 5))
    written = tf.TensorArray(tf.float32, 5, infer_shape=False)
    start = (tf.constant(0), written)
    body = lambda i, items: (i + 1, items.write(i, 2.0 * read.read(i)))  # noqa: E731
    return v1.while_loop(lambda i, _: i < 5, body, start)[1].stack()
