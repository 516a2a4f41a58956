"""What a step takes in Keras' `fit` with 1, 10 and 50 steps for each call.

    PYTHONPATH=. python tests/benchmarks/steps_per_execution.py

Dense layers of several widths train by Adam on batches of 32 from a cached dataset, an epoch of
each in turn, after one that traces. Printed are medians over rounds, the ratio to one step for each
call within rounds with its lowest and highest, and what PA308 measures of the same model.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.tf.run import native_step
from placement_advisor.units import format_ns

_STEPS, _BATCH = 200, 32
_STEPS_PER_CALL = (1, 10, 50)


def main() -> None:
    """Print two lines for each width."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--widths", default="16,256,1024")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for width in map(int, options.widths.split(",")):
        times = _times_ns(width, options.rounds)
        for steps_per_call in _STEPS_PER_CALL:
            pairs = zip(times[steps_per_call], times[1], strict=True)
            ratios = [several / one for several, one in pairs]
            print(
                f"width {width}, {steps_per_call} for each call: "
                f"{format_ns(median(times[steps_per_call]))}, "
                f"x {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            )
        _print_finding(width)


def _model(width: int, steps_per_call: int = 1) -> Any:
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input((32,)), *hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse", steps_per_execution=steps_per_call, jit_compile=False)
    return model


def _batches(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(count * _BATCH, 32)), random.normal(size=(count * _BATCH, 1))
    return x.astype("float32"), y.astype("float32")


def _times_ns(width: int, rounds: int) -> dict[int, list[float]]:
    dataset = tf.data.Dataset.from_tensor_slices(_batches(_STEPS)).batch(_BATCH).cache()
    models = {steps: _model(width, steps) for steps in _STEPS_PER_CALL}
    times: dict[int, list[float]] = {steps: [] for steps in models}
    for _ in range(1 + rounds):
        for steps, model in models.items():
            began_ns = time.perf_counter_ns()
            model.fit(dataset, shuffle=False, verbose=0)
            times[steps].append((time.perf_counter_ns() - began_ns) / _STEPS)
    return {steps: found[1:] for steps, found in times.items()}


def _print_finding(width: int) -> None:
    workload = SimpleNamespace(model=_model(width), mode="train", batches=(_batches(1),))
    began_s = time.monotonic()
    native_step.loaded_workload = lambda: workload  # type: ignore[assignment,return-value]
    timing = native_step.time_fit(5)
    assert isinstance(timing, LoopTiming), timing
    print(
        f"    PA308: {format_ns(median(timing.one_ns))}, with {timing.steps_per_call} for each "
        f"call {format_ns(median(timing.several_ns))}; took {time.monotonic() - began_s:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
