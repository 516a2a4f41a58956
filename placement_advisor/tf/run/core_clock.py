"""The processor time of a worker, read by an op: the same for a worker here and on another host.

A `PyFunc` op calls a function of the process in which it runs, which that process knows by a
token. Reading takes processor time itself, and as much each time.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Any

import tensorflow as tf

# The clock of a process by its id, as the kernel numbers them (clock_getcpuclockid(3)).
_CLOCK_BITS, _CLOCK_OF_PROCESS = 3, 2
# TensorFlow keeps a function as long as a graph that calls it.
_graphs: list[Any] = []


def offer(carriers: tuple[int, ...]) -> str:
    """Let steps read the processor time of this process, in ns; return the token that they need.

    That of ``carriers``, other processes of this user, is added.
    """
    with tf.Graph().as_default() as graph:
        read = tf.numpy_function(partial(_core_time_ns, carriers), [], tf.int64)
    _graphs.append(graph)
    token: bytes = read.op.get_attr("token")
    return token.decode()


def _core_time_ns(carriers: tuple[int, ...]) -> int:
    others = 0
    for pid in carriers:
        with contextlib.suppress(OSError):  # It has died, and its connections with it.
            others += time.clock_gettime_ns(~pid << _CLOCK_BITS | _CLOCK_OF_PROCESS)
    return time.process_time_ns() + others


def reading(token: str) -> Any:
    """Return the processor time of the process of the device in scope, which offered the token."""
    (time_ns,) = tf.raw_ops.PyFunc(input=[], token=token, Tout=[tf.int64])
    return time_ns
