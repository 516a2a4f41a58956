"""The user's step as it is: unmodified, with the whole machine and their own settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.tracer import loaded_workload

if TYPE_CHECKING:
    from placement_advisor.tf.answers import RunFailure

_function: Any = None


def run_as_is(batch: int, steps: int) -> list[int] | RunFailure:
    """Run and time steps of the loaded workload, each until its outputs are there."""
    try:
        return _timed_steps(batch, steps)
    except Exception as error:  # It is the user's code: anything can come out of it.
        return run_failure(error)


def _timed_steps(batch: int, steps: int) -> list[int]:
    global _function
    workload = loaded_workload()
    if _function is None:
        _function = tf.function(workload.step, autograph=workload.model is None)
    data = workload.batches[batch % len(workload.batches)]
    times = []
    for _ in range(steps):
        start = time.perf_counter_ns()
        for output in tf.nest.flatten(_function(data)):
            if hasattr(output, "numpy"):
                output.numpy()
        times.append(time.perf_counter_ns() - start)
    return times
