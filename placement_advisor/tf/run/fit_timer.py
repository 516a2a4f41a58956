"""Times steps in `fit` of the user's Keras model, with one step for each call and with several.

Runs in the loader's child, with the whole machine. Each `fit` trains on the first batch, over and
over, so that no input pipeline is in the time, and without a progress bar. A step's time is that
from the end of the first call to the end of the last, over the steps between: what an epoch begins
and ends with is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.trace.tracer import loaded_workload

if TYPE_CHECKING:
    from placement_advisor.processes.calls import CallFailure

# With ten, nine tenths of what a call costs are gone.
STEPS_PER_CALL = 10
# Calls between the first and the last: a tenth of a second at a millisecond for each step.
_STEPS = 50


def time_fit(rounds: int) -> LoopTiming | CallFailure | None:
    """Time the loop of the loaded workload, None if it is not Keras' own with a call for each step.

    A `fit` of the user's own is not called: nobody knows what else it does.
    """
    workload = loaded_workload()
    model = workload.model
    if model is None or workload.mode != "train" or model.steps_per_execution != 1:
        return None
    if type(model).fit is not keras.Model.fit:
        return None
    try:
        return _timed(model, workload.batches[0], rounds)
    except Exception as error:  # It is the user's code: anything can come out of it.
        return run_failure(error)
    finally:
        model.steps_per_execution, model.train_function = 1, None


def _timed(model: Any, batch: Any, rounds: int) -> LoopTiming:
    dataset = tf.data.Dataset.from_tensors(_without_lists(batch)).repeat()
    functions: dict[int, Any] = {}
    times: dict[int, list[int]] = {1: [], STEPS_PER_CALL: []}
    for _ in range(1 + rounds):
        for steps_per_call, found in times.items():
            model.steps_per_execution = steps_per_call
            model.train_function = functions.get(steps_per_call)  # None makes it anew.
            found.append(_step_ns(model, dataset, steps_per_call))
            functions[steps_per_call] = model.train_function
    # The first round traces.
    return LoopTiming(
        steps_per_call=STEPS_PER_CALL,
        one_ns=tuple(times[1][1:]),
        several_ns=tuple(times[STEPS_PER_CALL][1:]),
    )


def _step_ns(model: Any, dataset: Any, steps_per_call: int) -> int:
    ends_ns: list[int] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends_ns.append(time.perf_counter_ns())
    )
    steps = steps_per_call + _STEPS
    model.fit(dataset, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[clock])
    return (ends_ns[-1] - ends_ns[0]) // _STEPS


def _without_lists(batch: Any) -> Any:
    """Return the batch with tuples for lists, of which a dataset would make one tensor."""
    if isinstance(batch, list | tuple):
        return tuple(_without_lists(part) for part in batch)
    if isinstance(batch, dict):
        return {name: _without_lists(part) for name, part in batch.items()}
    return batch
