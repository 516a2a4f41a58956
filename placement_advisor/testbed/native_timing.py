"""The user's own step is measured in the process that has loaded the model.

It has all of the machine. It runs at several batch sizes (PA302): the example batch, whole,
halved and quartered in turns, then a larger batch to which these lead. It also runs in Keras'
`fit`, with one step for each call and with several (PA308). Steps that are too slow, too
large for the memory, or take no other batch size are left out; so are the progress bar and
callbacks of the user.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.candidates import references
from placement_advisor.cost.batch import Throughput, larger_batch_by
from placement_advisor.measurement.measurement import LoopTiming
from placement_advisor.processes import children
from placement_advisor.processes.calls import CallFailure
from placement_advisor.tf.calls import native_step
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.simulator.step_growth import GrowingStep


# A third size says whether the two others lie on a line by chance.
_PARTS = (1, 2, 4)
# Judgement: a median of nine steps, in turns, for a finding that a misfit silences. The time that
# it may take is below; more would lengthen every analysis.
_ROUNDS, _STEPS = 3, 3
# With the steps that are not counted, twelve of each size: half a minute at most, and tracing.
_SLOWEST_STEP_S = 1.5
_TIME_LIMIT_S = 120.0
# Of the memory that is free. Judgement: a step holds more than is simulated, and the user's other
# programs want some.
_MEMORY_SHARE = 0.25


def batch_points(
    loader: children.Child, growing: GrowingStep, as_is_ns: Sequence[int]
) -> tuple[Throughput, ...]:
    """Return the rate of the loaded step at several batch sizes, its own first.

    ``as_is_ns`` are step times at the whole batch. None are returned where they are too slow, the
    batch is too small to be cut, or the step fails at another size.
    """
    batch = growing.growth.batch
    if batch < max(_PARTS) or not as_is_ns or median(as_is_ns) > _SLOWEST_STEP_S * NS_PER_S:
        return ()
    times = _timed(loader, tuple(batch // part for part in _PARTS))
    points = tuple(
        Throughput(batch=size, samples_per_s=size / median(steps_ns) * NS_PER_S)
        for size, steps_ns in times.items()
    )
    larger = _worth_a_run(points, growing)
    again = {} if larger is None else _timed(loader, (batch, larger))
    if larger is None or not again:
        return points
    # The machine may have become slower meanwhile: what counts is the one over the other.
    ratio = median(again[larger]) / median(again[batch])
    now_ns = median(times[batch])
    before, here, there = map(_turns, (times[batch], again[batch], again[larger]))
    point = Throughput(
        batch=larger,
        samples_per_s=larger / (now_ns * ratio) * NS_PER_S,
        within=_within(ratio, [over / of for over, of in zip(there, here, strict=True)]),
    )
    own = replace(points[0], within=_within(now_ns, [*before, *here]))
    return (own, *points[1:], point)


def _turns(steps_ns: Sequence[int]) -> list[float]:
    """Return the median step of each turn."""
    return [median(steps_ns[start : start + _STEPS]) for start in range(0, len(steps_ns), _STEPS)]


def _within(middle: float, turns: Sequence[float]) -> float:
    """Return the factor by which turns were off at most."""
    return max(max(turn / middle, middle / turn) for turn in turns)


def _worth_a_run(points: Sequence[Throughput], growing: GrowingStep) -> int | None:
    """Return the larger batch to which points lead, if a step of it is neither slow nor large."""
    growth = growing.growth
    found = larger_batch_by(points, growth.batch, growing.worth, is_even=not growth.faster)
    if found is None or found.batch is None or found.step_ns > _SLOWEST_STEP_S * NS_PER_S:
        return None
    device = growing.cluster.devices[0]
    alone = references.on_device(growth.graph, device.name)
    held_bytes = growing.simulator(found.batch).schedule(alone).peak_memory_bytes[device.name]
    there_bytes = device.memory_bytes or _MEMORY_SHARE * children.available_memory_bytes()
    return found.batch if held_bytes <= there_bytes else None


def _timed(loader: children.Child, sizes: tuple[int, ...]) -> dict[int, list[int]]:
    """Return the steps at each of several batches, turn by turn; none if it fails at one."""
    times = loader.call(
        native_step.run_at_batches, sizes, _ROUNDS, _STEPS, time_limit_s=_TIME_LIMIT_S
    )
    if isinstance(times, CallFailure):
        return {}
    return times


# A call costs up to 2 ms on a slow machine (pages/PA308.md): of a longer step that is less than the
# tenth that makes a finding.
_SLOWEST_FIT_STEP_S = 0.02
# As many as say whether all of them agree, in some seconds. Judgement.
_FIT_ROUNDS = 5
_FIT_LIMIT_S = 120.0


def loop_timing(loader: children.Child, as_is_ns: Sequence[int]) -> LoopTiming | None:
    """Return what a step takes in `fit` of the loaded model.

    ``as_is_ns`` are step times outside of it. None is returned where they are too slow, the step is
    not one of `fit`, or `fit` fails.
    """
    if not as_is_ns or (step_ns := median(as_is_ns)) > _SLOWEST_FIT_STEP_S * NS_PER_S:
        return None
    answer = loader.call(native_step.time_fit, _FIT_ROUNDS, step_ns, time_limit_s=_FIT_LIMIT_S)
    return answer if isinstance(answer, LoopTiming) else None
