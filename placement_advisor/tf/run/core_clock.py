"""The processor time of a worker, read by an op: the same for a worker here and on another host.

A `PyFunc` op calls a function of the process in which it runs, which that process knows by a
token. Reading takes processor time itself, and as much each time.
"""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

# TensorFlow keeps a function as long as a graph that calls it.
_graphs: list[Any] = []


def offer() -> str:
    """Let steps read the processor time of this process, in ns; return the token that they need."""
    with tf.Graph().as_default() as graph:
        read = tf.numpy_function(time.process_time_ns, [], tf.int64)
    _graphs.append(graph)
    token: bytes = read.op.get_attr("token")
    return token.decode()


def reading(token: str) -> Any:
    """Return the processor time of the process of the device in scope, which offered the token."""
    (time_ns,) = tf.raw_ops.PyFunc(input=[], token=token, Tout=[tf.int64])
    return time_ns
