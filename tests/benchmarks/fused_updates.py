"""What compiling the optimizer's update alone saves, by the code of PA306's page, on one core.

    PYTHONPATH=. python tests/benchmarks/fused_updates.py

Dense layers train by Adam at batch 32 in a process of one thread, with the update as Keras has it
and compiled by XLA, in turns. Printed is the ratio of a step's times: the median over rounds, the
lowest and the highest.
"""

from __future__ import annotations

import os
import re
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from placement_advisor.analysis.findings.rules import finding_page

if TYPE_CHECKING:
    from collections.abc import Callable

_CODE = re.findall(r"```python\n(.*?)```", finding_page("PA306"), re.DOTALL)[0]
_BATCH, _STEPS, _ROUNDS = 32, 20, 9


def main() -> None:
    """Print a line for each model."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    made: dict[str, Any] = {}
    exec(_CODE, made)
    for layers, width in ((30, 16), (10, 256), (4, 1024)):
        plain, fused = _model(layers, width), _model(layers, width)
        made["fuse_updates"](fused)
        ratios = _ratios(_step(plain, width), _step(fused, width))
        print(
            f"{layers} layers of {width}: x {median(ratios):.2f} ({min(ratios):.2f}-"
            f"{max(ratios):.2f})",
            flush=True,
        )


def _model(layers: int, width: int) -> Any:
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((width,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model


def _step(model: Any, width: int) -> Callable[[], Any]:
    x = np.random.default_rng(0).normal(size=(_BATCH, width)).astype("float32")
    batch = tf.constant(x), tf.zeros((_BATCH, 1))
    train = tf.function(lambda: model.train_step(batch))
    return lambda: train()["loss"].numpy()


def _ratios(plain: Callable[[], Any], fused: Callable[[], Any]) -> list[float]:
    """Return the time of the second step over that of the first, by round."""
    ratios = []
    for _ in range(1 + _ROUNDS):
        spent = []
        for step in (plain, fused):
            began = time.perf_counter()
            for _ in range(_STEPS):
                step()
            spent.append(time.perf_counter() - began)
        ratios.append(spent[1] / spent[0])
    return ratios[1:]  # The first round traces.


if __name__ == "__main__":
    main()
