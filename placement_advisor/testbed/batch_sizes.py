"""The user's own step at several batch sizes, measured: what PA302 fits its line to.

Model: the example batch, whole, cut in half and to a quarter, run in turns in the process that has
loaded the model, with all of the machine. Left out: batches larger than the example; steps that
take no other batch than their own, and those too slow for it to be worth the wait.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.cost.batch import Throughput
from placement_advisor.processes.call_failure import CallFailure
from placement_advisor.tf.calls import as_is
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.processes.children import Child

# A third size says whether the two others lie on a line by chance.
_PARTS = (1, 2, 4)
# Judgement: a median of nine steps, in turns, for a finding that a misfit silences. The time that
# it may take is below; more would lengthen every analysis.
_ROUNDS, _STEPS = 3, 3
# With the steps that are not counted, twelve of each size: half a minute at most, and tracing.
_SLOWEST_STEP_S = 1.5
_TIME_LIMIT_S = 120.0


def batch_points(
    loader: Child, batch_size: int | None, as_is_ns: Sequence[int]
) -> tuple[Throughput, ...]:
    """Return the rate of the loaded step at several batch sizes, the largest first.

    ``as_is_ns`` are step times at the whole batch. None are returned where they are too slow, the
    batch is too small to be cut, or the step fails at another size.
    """
    if batch_size is None or batch_size < max(_PARTS) or not as_is_ns:
        return ()
    if median(as_is_ns) > _SLOWEST_STEP_S * NS_PER_S:
        return ()
    sizes = tuple(batch_size // part for part in _PARTS)
    times = loader.call(as_is.run_at_batches, sizes, _ROUNDS, _STEPS, time_limit_s=_TIME_LIMIT_S)
    if isinstance(times, CallFailure):
        return ()
    return tuple(
        Throughput(batch=size, samples_per_s=size / median(times[size]) * NS_PER_S)
        for size in sizes
    )
