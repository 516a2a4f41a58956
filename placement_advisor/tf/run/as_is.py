"""The user's step as it is: unmodified, with the whole machine and their own settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.trace.tracer import loaded_workload

if TYPE_CHECKING:
    from placement_advisor.processes.call_failure import CallFailure

_function: Any = None


def run_as_is(batch: int, steps: int) -> list[int] | CallFailure:
    """Run and time steps of the loaded workload, each until its outputs are there."""
    try:
        return _timed_steps(batch, steps)
    except Exception as error:  # It is the user's code: anything can come out of it.
        return run_failure(error)


def run_at_batches(
    batch_sizes: tuple[int, ...], rounds: int, steps: int
) -> dict[int, list[int]] | CallFailure:
    """Run and time steps of the first batch cut to each of these sizes, in turns.

    Larger ones have its samples several times. A turn begins with a step that is not counted.
    Tensors whose first size is not the batch stay whole.
    """
    try:
        return _timed_at_batches(batch_sizes, rounds, steps)
    except Exception as error:  # A step need not take another batch than its own.
        return run_failure(error)


def _timed_at_batches(
    batch_sizes: tuple[int, ...], rounds: int, steps: int
) -> dict[int, list[int]]:
    workload = loaded_workload()
    cut = {size: workload.of_size(size).batches[0] for size in batch_sizes}
    for data in cut.values():
        _timed_steps_on(data, 1)  # The first call traces.
    times: dict[int, list[int]] = {size: [] for size in batch_sizes}
    for _ in range(rounds):
        for size, data in cut.items():
            times[size] += _timed_steps_on(data, 1 + steps)[1:]
    return times


def _timed_steps(batch: int, steps: int) -> list[int]:
    batches = loaded_workload().batches
    return _timed_steps_on(batches[batch % len(batches)], steps)


def _timed_steps_on(data: Any, steps: int) -> list[int]:
    global _function
    workload = loaded_workload()
    if _function is None and workload.is_eager:
        _function = workload.step
    elif _function is None:
        _function = tf.function(
            workload.step,
            autograph=workload.model is None,
            jit_compile=True if workload.is_for_xla else None,
        )
    times = []
    for _ in range(steps):
        start = time.perf_counter_ns()
        for output in tf.nest.flatten(_function(data)):
            if hasattr(output, "numpy"):
                output.numpy()
        times.append(time.perf_counter_ns() - start)
    return times
