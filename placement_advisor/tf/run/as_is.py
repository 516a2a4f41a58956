"""The user's step as it is: unmodified, with the whole machine and their own settings.

A step that calls Python is recorded as it was traced, too, with one core of the machine.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.tf.answers import OwnSteps
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.run.runner import profiler_options
from placement_advisor.tf.trace.tracer import loaded_workload, traced_step
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.processes.calls import CallFailure

# The first call makes ready what later ones find, and what it leaves in caches is its own.
_WARMUP_STEPS = 2
# As many as a median needs, and for ops that take long no more than that. Each step changes what
# the user's program holds, and does what its Python does: more would be for nothing. Judgement.
_MOST_STEPS, _FEWEST_STEPS = 10, 3
_BUDGET_S = 10.0

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


def record(folder: str, core: int) -> OwnSteps | CallFailure:
    """Run and time steps as they were traced, all of this process on one core; then profile some.

    The profile goes into ``folder``. From here on the process has no other core.
    """
    try:
        return _recorded(folder, core)
    except Exception as error:  # Their Python runs in it.
        return run_failure(error)


def _recorded(folder: str, core: int) -> OwnSteps:
    step = traced_step()
    function, batches = step.function, step.loaded.batches
    if step.loaded.trace is not None:  # It takes its tensors one by one.
        function = lambda batch: step.function(*tf.nest.flatten(batch))  # noqa: E731
    # What is placed has not been rewritten either, and ops keep their names.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # It has ended.
            os.sched_setaffinity(int(thread.name), {core})
    number = 0

    def run() -> int:
        nonlocal number
        number += 1
        return _timed(function, batches[number % len(batches)])

    warmup_ns = [run() for _ in range(_WARMUP_STEPS)]
    within = int(_BUDGET_S * NS_PER_S / max(1, warmup_ns[-1]))
    steps = max(_FEWEST_STEPS, min(_MOST_STEPS, within))
    step_ns = [run() for _ in range(steps)]
    tf.profiler.experimental.start(folder, options=profiler_options())
    for _ in range(1 + steps):  # The profiler sets itself up in the first one.
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            run()
    tf.profiler.experimental.stop()
    return OwnSteps(warmup_ns=tuple(warmup_ns), step_ns=tuple(step_ns))


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
    return [_timed(_function, data) for _ in range(steps)]


def _timed(function: Any, data: Any) -> int:
    start = time.perf_counter_ns()
    for output in tf.nest.flatten(function(data)):
        if hasattr(output, "numpy"):
            output.numpy()
    return time.perf_counter_ns() - start
