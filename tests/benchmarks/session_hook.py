"""What a run of a TF1 session takes longer under the advisor, and why.

    PYTHONPATH=tests python tests/benchmarks/session_hook.py

A small step runs with the hook of `Session.run` and without it, in blocks of 300 runs by turns; and
without the hook, with variables of TF1's own kind and with resource variables, which the advisor
puts in their place.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from machine_facts import machine_facts

from placement_advisor.tf.load.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNS, _BLOCKS = 300, 30
v1 = tf.compat.v1


class _Waiting(Capture):
    def _is_enough(self, step: Any, now_s: float) -> bool:
        super()._is_enough(step, now_s)
        return False


def block_of(*, use_resource: bool) -> Callable[[], float]:
    """Return what runs a step of two dense layers and Adam, and returns us a run."""
    draw = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        x, y = v1.placeholder(tf.float32, [None, 1]), v1.placeholder(tf.float32, [None, 1])
        first, second = (
            v1.get_variable(name, shape, use_resource=use_resource)
            for name, shape in (("first", [1, 10]), ("second", [10, 1]))
        )
        loss = tf.reduce_mean((tf.nn.relu(x @ first) @ second - y) ** 2)
        train = v1.train.AdamOptimizer(0.1).minimize(loss)
        session = v1.Session(graph=graph)
        session.run(v1.global_variables_initializer())
    feeds = {x: draw.random((100, 1)), y: draw.random((100, 1))}

    def block() -> float:
        began_s = time.perf_counter()
        for _ in range(_RUNS):
            session.run([train, loss], feeds)
        return (time.perf_counter() - began_s) / _RUNS * 1e6

    return block


def main() -> None:
    """Print medians, and the median of the ratios."""
    print(machine_facts())
    capture = _Waiting(lambda file: file == __file__, lambda _: None)
    base = v1.Session.__mro__[1]
    resource, reference = block_of(use_resource=True), block_of(use_resource=False)
    plain_run = base.run
    taken: dict[str, list[float]] = {"plain": [], "hooked": [], "reference": []}
    with capture.watching():
        hooked_run = base.run
        for _ in range(1 + _BLOCKS):
            base.run = hooked_run
            taken["hooked"].append(resource())
            base.run = plain_run
            taken["plain"].append(resource())
            taken["reference"].append(reference())
        base.run = hooked_run
    for name, block_us in taken.items():
        ratio = median(
            us / plain for us, plain in zip(block_us[1:], taken["plain"][1:], strict=True)
        )
        print(f"{name}: {median(block_us[1:]):.0f} us, {ratio - 1:+.0%} of plain")


if __name__ == "__main__":
    main()
