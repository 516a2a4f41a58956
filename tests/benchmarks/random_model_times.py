"""How long steps of randomly drawn models take on one core, beside what they were drawn for.

    PYTHONPATH=tests python tests/benchmarks/random_model_times.py FIRST_SEED LAST_SEED

Each runs alone in this process, without a testbed: 0.5 to 200 ms are drawn, and this shows whether
they come out. Prints a line for each model and the ratios' quantiles.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from random_models import random_model

from placement_advisor.tf.load.loader import load

STEPS = 30
ENOUGH_S = 1.0


def least_step_ms(path: Path) -> float:
    """Return the shortest of some steps of a model file, after one to warm up."""
    loaded = load(str(path), name=None, mode=None, batch_size=None)
    batch = loaded.batches[0]
    step = tf.function(loaded.step, autograph=loaded.model is None).get_concrete_function(batch)
    step(batch)
    times: list[float] = []
    while len(times) < STEPS and sum(times) < ENOUGH_S:
        start = time.perf_counter()
        for result in tf.nest.flatten(step(batch)):
            np.asarray(result)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    """Print a line for each seed."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(sys.argv[1]), int(sys.argv[2])):
            keras.backend.clear_session()
            model = random_model(seed)
            path = Path(folder) / f"model_{seed}.py"
            path.write_text(model.text)
            took_ms = least_step_ms(path)
            ratios.append(took_ms / model.target_ms)
            what = " ".join(sorted(model.features))
            print(f"{seed:4} drawn {model.target_ms:6.1f} ms, took {took_ms:6.1f} ms: {what}")
    quantiles = np.quantile(ratios, (0, 0.1, 0.5, 0.9, 1))
    print(
        "took / drawn, least, 10 %, median, 90 %, most:", *(f"{value:.2f}" for value in quantiles)
    )


if __name__ == "__main__":
    main()
