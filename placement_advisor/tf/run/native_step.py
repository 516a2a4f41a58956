"""Times the user's unmodified step on the whole machine, in `fit`, and its dataset alone.

It also reads the cluster that the environment describes (TF_CONFIG, SLURM).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import AdvisorError, ModelError
from placement_advisor.measurement.measurement import InputTiming, LoopTiming
from placement_advisor.tf.answers import OwnSteps
from placement_advisor.tf.failures import returns_failures
from placement_advisor.tf.load.example_batches import spec_of
from placement_advisor.tf.load.loaded_step import leading_size
from placement_advisor.tf.run.graph_timing import timed
from placement_advisor.tf.run.runner import profiling, run_marked
from placement_advisor.tf.trace.tracer import loaded_workload, traced_step
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_COMPUTING = ("chief", "master", "worker")
# More than any node has tasks: the resolver deals out GPUs, and lists no more tasks than those.
_GPUS_PER_NODE = 1 << 20


def slurm_tasks(variables: Mapping[str, str]) -> list[str]:
    """Return ``host:port`` of each task of a step by its SLURM variables; ports mean nothing.

    Raises:
        AdvisorError: the resolver cannot read them.
    """
    os.environ.update(variables)
    try:
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=_GPUS_PER_NODE, gpus_per_task=1, auto_set_gpu=False
        )
        return _tasks(resolver)
    except (RuntimeError, ValueError) as error:
        raise AdvisorError(f"SLURM variables: {error}") from None


def tf_config_tasks(text: str) -> list[str]:
    """Return ``host:port`` of each task that computes, by the content of TF_CONFIG.

    Raises:
        AdvisorError: the resolver cannot read it.
    """
    os.environ["TF_CONFIG"] = text
    try:
        return _tasks(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    except (AttributeError, TypeError, ValueError) as error:
        raise AdvisorError(f"TF_CONFIG: {error}") from None


def _tasks(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> list[str]:
    spec = resolver.cluster_spec()
    return [
        str(task) for job in _COMPUTING if job in spec.jobs for task in spec.job_tasks(job) if task
    ]


# The first call makes ready what later ones find, and what it leaves in caches is its own.
_WARMUP_STEPS = 2
# As many as a median needs, and for ops that take long no more than that. Each step changes what
# the user's program holds, and does what its Python does: more would be for nothing. Judgement.
_MOST_STEPS, _FEWEST_STEPS = 10, 3
_BUDGET_S = 10.0

_function: Any = None


@returns_failures(Exception)
def run_as_is(batch: int, steps: int) -> list[int]:
    """Run and time steps of the loaded workload, each until its outputs are there."""
    batches = loaded_workload().batches
    return _timed_steps(batches[batch % len(batches)], steps)


@returns_failures(Exception)
def run_at_batches(batch_sizes: tuple[int, ...], rounds: int, steps: int) -> dict[int, list[int]]:
    """Run and time steps of the first batch cut to each of these sizes, in turns.

    Larger ones have its samples several times. A turn begins with a step that is not counted.
    Tensors whose first size is not the batch stay whole.
    """
    workload = loaded_workload()
    cut = {size: workload.of_size(size).batches[0] for size in batch_sizes}
    for data in cut.values():
        _timed_steps(data, 1)  # The first call traces.
    times: dict[int, list[int]] = {size: [] for size in batch_sizes}
    for _ in range(rounds):
        for size, data in cut.items():
            times[size] += _timed_steps(data, 1 + steps)[1:]
    return times


def _timed_steps(data: Any, steps: int) -> list[int]:
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
    return [timed(partial(_run, _function, data)) for _ in range(steps)]


def _run(function: Any, data: Any) -> None:
    """Run a step and wait for its outputs."""
    for output in tf.nest.flatten(function(data)):
        if hasattr(output, "numpy"):
            output.numpy()


@returns_failures(Exception)
def record(folder: str, core: int) -> OwnSteps:
    """Run and time steps as they were traced, all of this process on one core; then profile some.

    The profile goes into ``folder``. From here on the process has no other core.
    """
    step = traced_step()
    function, batches = step.function, step.loaded.batches
    if step.loaded.trace is not None:  # It takes its tensors one by one.
        function = lambda batch: step.function(*tf.nest.flatten(batch))  # noqa: E731
    # What is placed has not been rewritten either, and ops keep their names.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # It has ended.
            os.sched_setaffinity(int(thread.name), {core})
    endless = itertools.cycle(batches)

    def run() -> None:
        _run(function, next(endless))

    warmup_ns = [timed(run) for _ in range(_WARMUP_STEPS)]
    within = int(_BUDGET_S * NS_PER_S / max(1, warmup_ns[-1]))
    steps = max(_FEWEST_STEPS, min(_MOST_STEPS, within))
    step_ns = [timed(run) for _ in range(steps)]
    with profiling(folder):
        run_marked(run, 1 + steps)  # The profiler sets itself up in the first one.
    return OwnSteps(warmup_ns=tuple(warmup_ns), step_ns=tuple(step_ns))


# With ten, nine tenths of what a call costs are gone.
STEPS_PER_CALL = 10
# A round has as many steps as take a tenth of a second: those of one call to five.
_ROUND_NS = 0.1 * NS_PER_S
_MOST_CALLS = 5


@returns_failures(Exception)
def time_fit(rounds: int, step_ns: float) -> LoopTiming | None:
    """Time the loop of the loaded workload, None if it is not Keras' own with a call for each step.

    ``step_ns`` is about what a step takes, by which steps are counted out.
    A `fit` of the user's own is not called: nobody knows what else it does.
    """
    workload = loaded_workload()
    model = workload.model
    if model is None or workload.mode != "train" or model.steps_per_execution != 1:
        return None
    if type(model).fit is not keras.Model.fit:
        return None
    dataset = tf.data.Dataset.from_tensors(_without_lists(workload.batches[0])).repeat()
    calls = round(_ROUND_NS / step_ns / STEPS_PER_CALL)
    steps = STEPS_PER_CALL * max(1, min(_MOST_CALLS, calls))
    functions: dict[int, Any] = {}
    times: dict[int, list[int]] = {1: [], STEPS_PER_CALL: []}
    try:
        for _ in range(1 + rounds):
            for steps_per_call, found in times.items():
                model.steps_per_execution = steps_per_call
                model.train_function = functions.get(steps_per_call)  # None makes it anew.
                found.append(_step_ns(model, dataset, steps_per_call, steps))
                functions[steps_per_call] = model.train_function
    finally:
        model.steps_per_execution, model.train_function = 1, None
    # The first round traces.
    return LoopTiming(
        steps_per_call=STEPS_PER_CALL,
        one_ns=tuple(times[1][1:]),
        several_ns=tuple(times[STEPS_PER_CALL][1:]),
    )


def _step_ns(model: Any, dataset: Any, steps_per_call: int, steps: int) -> int:
    ends_ns: list[int] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends_ns.append(time.perf_counter_ns())
    )
    in_all = steps_per_call + steps
    model.fit(dataset, steps_per_epoch=in_all, shuffle=False, verbose=0, callbacks=[clock])
    return (ends_ns[-1] - ends_ns[0]) // steps


def _without_lists(batch: Any) -> Any:
    """Return the batch with tuples for lists, of which a dataset would make one tensor."""
    if isinstance(batch, list | tuple):
        return tuple(_without_lists(part) for part in batch)
    if isinstance(batch, dict):
        return {name: _without_lists(part) for name, part in batch.items()}
    return batch


# Enough to see a rate: what an analysis can spend on it beside its rounds of steps.
MAX_BATCHES = 200
MAX_TIMED_NS = 4 * NS_PER_S
# What a buffer of prefetched batches, filled while the first one was waited for, can hold.
WARM_UP_BATCHES = 10
MAX_WARM_UP_NS = NS_PER_S
# A cache is worth waiting for; without it, times would be those of the first epoch alone.
MAX_FIRST_PASS_NS = 20 * NS_PER_S
_CACHES = frozenset({"CacheDataset"})
_VERSION = re.compile(r"V\d+$")


@returns_failures(Exception)
def time_input() -> InputTiming | None:
    """Time the dataset of the loaded workload; None if it has none."""
    workload = loaded_workload()
    if workload.dataset is None:
        return None
    return time_dataset(workload.dataset, leading_size(workload.specs), time.perf_counter_ns)


def time_dataset(dataset: Any, batch_size: int | None, clock_ns: Callable[[], int]) -> InputTiming:
    """Time a dataset whose batches should have that leading size.

    Raises:
        ModelError: they have another one, or the first pass takes too long.
    """
    kinds = transformations(dataset)
    sizes = (leading_size(tf.nest.map_structure(spec_of, batch)) for batch in dataset.take(1))
    own_size = next(sizes, None)
    if own_size != batch_size:
        raise ModelError(f"its batches have {own_size} samples, the step has {batch_size}")
    times_ns = _batch_times(dataset, caches=not _CACHES.isdisjoint(kinds), clock_ns=clock_ns)
    if not times_ns:
        limit_s = MAX_FIRST_PASS_NS // NS_PER_S
        raise ModelError(f"its first pass did not end within {limit_s} s")
    return InputTiming(batch_ns=tuple(times_ns), transformations=kinds)


def transformations(dataset: Any) -> tuple[str, ...]:
    """Return the kinds of a dataset's transformations, source first; empty if it does not tell."""
    try:
        return tuple(_kinds(dataset))
    except Exception:  # Inputs are private to TensorFlow, which may change them.
        return ()


def _kinds(dataset: Any) -> Iterator[str]:
    if isinstance(dataset, tf.compat.v1.data.Dataset):  # It may stand for the one that it holds.
        dataset = getattr(dataset, "_dataset", dataset)
    for source in dataset._inputs():
        yield from _kinds(source)
    yield _VERSION.sub("", type(dataset).__name__.lstrip("_"))


def _batch_times(dataset: Any, *, caches: bool, clock_ns: Callable[[], int]) -> list[int]:
    """Return the times of batches behind the warm-up; none if that does not end in time."""
    began_ns = clock_ns()
    times_ns: list[int] = []
    timed_ns = 0
    warm_ups = 0
    is_warm = False
    while True:
        start_ns = clock_ns()
        for _ in dataset:
            now_ns = clock_ns()
            if is_warm:
                times_ns.append(now_ns - start_ns)
                timed_ns += times_ns[-1]
                if len(times_ns) == MAX_BATCHES or timed_ns > MAX_TIMED_NS:
                    return times_ns
            else:
                warm_ups += 1
                is_long = warm_ups == WARM_UP_BATCHES or now_ns - began_ns > MAX_WARM_UP_NS
                is_warm = is_long and not caches
                if now_ns - began_ns > MAX_FIRST_PASS_NS and not is_warm:
                    return []
            start_ns = clock_ns()
        is_warm = True
