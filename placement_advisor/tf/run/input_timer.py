"""Times the user's dataset alone: its batches one after the other, and no step in between.

Runs in the loader's child, with the whole machine, on the dataset as the user wrote it. A pass that
ends is followed by another, each counted from its start as an epoch is. The first pass is warm-up,
or its first batches where it is long; where the dataset caches, all of it is, since later passes
read the cache. Left out: what a step that runs at the same time takes from the pipeline's cores.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.measurement.measurement import InputTiming
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.load.loaded_step import leading_size
from placement_advisor.tf.load.static_specs import spec_of
from placement_advisor.tf.trace.tracer import loaded_workload
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

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


def time_input() -> InputTiming | CallFailure | None:
    """Time the dataset of the loaded workload; None if it has none."""
    workload = loaded_workload()
    if workload.dataset is None:
        return None
    try:
        return timed(workload.dataset, leading_size(workload.specs), time.perf_counter_ns)
    except Exception as error:  # It is the user's code: anything can come out of it.
        return run_failure(error)


def timed(
    dataset: Any, batch_size: int | None, clock_ns: Callable[[], int]
) -> InputTiming | CallFailure:
    """Time a dataset whose batches should have that leading size."""
    kinds = transformations(dataset)
    own_size = next((_batch_size(batch) for batch in dataset.take(1)), None)
    if own_size != batch_size:
        return _not_timed(f"its batches have {own_size} samples, the step has {batch_size}")
    times_ns = _batch_times(dataset, caches=not _CACHES.isdisjoint(kinds), clock_ns=clock_ns)
    if not times_ns:
        return _not_timed(f"its first pass did not end within {MAX_FIRST_PASS_NS // NS_PER_S} s")
    return InputTiming(batch_ns=tuple(times_ns), transformations=kinds)


def transformations(dataset: Any) -> tuple[str, ...]:
    """Return the kinds of a dataset's transformations, source first; empty if it does not tell."""
    kinds: list[str] = []
    try:
        _collect(dataset, kinds)
    except Exception:  # Inputs are private to TensorFlow, which may change them.
        return ()
    return tuple(kinds)


def _collect(dataset: Any, kinds: list[str]) -> None:
    if isinstance(dataset, tf.compat.v1.data.Dataset):  # It may stand for the one that it holds.
        dataset = getattr(dataset, "_dataset", dataset)
    for source in dataset._inputs():
        _collect(source, kinds)
    kinds.append(_VERSION.sub("", type(dataset).__name__.lstrip("_")))


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


def _batch_size(batch: Any) -> int | None:
    return leading_size(tf.nest.map_structure(spec_of, batch))


def _not_timed(reason: str) -> CallFailure:
    return CallFailure(cause=FailureCause.CRASHED, message=reason)
