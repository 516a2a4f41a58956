"""How long copies between devices take, and an empty step.

A tensor is sent to and fro; the same chain on one device is subtracted, repeat by repeat.
"""

from __future__ import annotations

import time
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.answers import Calibration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.tf.placed_step import Runtime

# From one network packet to a large activation; a step's copies lie between.
_SIZES_BYTES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22)
_HOPS = 4
_REPEATS = 12
_WARMUPS = 2


def measure(runtime: Runtime, devices: Mapping[str, str]) -> Calibration:
    """Time copies between every pair of devices (our name -> TensorFlow's)."""
    links: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for one, other in combinations(devices, 2):
        samples = _pair(runtime, devices[one], devices[other])
        links[one, other] = links[other, one] = samples
    graph = tf.Graph()
    with graph.as_default(), tf.device(next(iter(devices.values()))):
        empty = tf.no_op()
    with runtime.session(graph) as session:
        run = session.make_callable([empty])
        overhead = [timed(run) for _ in range(_WARMUPS + 2 * _REPEATS)]
    return Calibration(links=links, step_overhead_ns=round(median(overhead[_WARMUPS:])))


def timed(function: Callable[[], Any]) -> int:
    """Return how long a call takes, in ns."""
    start = time.perf_counter_ns()
    function()
    return time.perf_counter_ns() - start


def _pair(runtime: Runtime, one: str, other: str) -> list[tuple[int, int]]:
    graph = tf.Graph()
    chains: dict[int, list[Any]] = {}
    with graph.as_default():
        starts = []
        for size in _SIZES_BYTES:
            with tf.device(one):
                start = tf.raw_ops.VarHandleOp(
                    dtype=tf.float32, shape=[size // 4], shared_name=f"calibration_{size}"
                )
                zeros = tf.zeros([size // 4])
                starts.append(tf.raw_ops.AssignVariableOp(resource=start, value=zeros))
            chains[size] = []
            for far in (other, one):
                with tf.device(one):
                    tensor = tf.raw_ops.ReadVariableOp(resource=start, dtype=tf.float32)
                for hop in range(_HOPS):
                    with tf.device(far if hop % 2 == 0 else one):
                        tensor = tf.identity(tensor)
                chains[size].append(tensor.op)
    samples = []
    with runtime.session(graph) as session:
        session.run(starts)
        for size, (crossing, local) in chains.items():
            there, here = session.make_callable([crossing]), session.make_callable([local])
            there(), here()
            samples += [(size, (timed(there) - timed(here)) // _HOPS) for _ in range(_REPEATS)]
    return samples
