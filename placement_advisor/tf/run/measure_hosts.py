"""What a testbed of several hosts takes: each host for itself, and the ways between two.

A figure is what `measure_devices` makes of it. What differs from one machine: networks are a
thousand times as fast as others, so that how often something is measured goes by how long it takes,
and every direction is measured for itself. Sizes of which one copy takes half a second or more are
left out: there the line through smaller ones is as good.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.cost.links import MIN_SIZES
from placement_advisor.machine.host_figures import HostFigures, RouteFigures, Way
from placement_advisor.machine.middle import middle
from placement_advisor.tf.run.bench import Bench
from placement_advisor.tf.run.measure_devices import (
    BOTH_WAYS,
    BOTH_WAYS_BYTES,
    COPIES,
    SMALL_COPIES,
    Effort,
    at_once,
    both_ways,
    copy,
    errand,
    message_ns,
    reach,
    reference,
    steps_of,
)
from placement_advisor.tf.run.measure_testbed import PASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.machine.copy_timings import AtOnceTiming, CopyTiming
    from placement_advisor.tf.place.placed_step import Runtime

T = TypeVar("T")
_Ends = tuple[str, str]

# How copies are measured, by what one takes at most. Judgement: those of a millisecond are measured
# as on one machine, longer ones so much less often that none of these takes more than some seconds
# one way; a disturbance of a scheduler's length matters less to them.
_EFFORTS = {
    2_000_000: SMALL_COPIES,
    20_000_000: Effort(copies=(2, 6), hops=(1, 4), rounds=3, steps=2),
    100_000_000: Effort(copies=(1, 3), hops=(1, 3), rounds=2, steps=1),
    500_000_000: Effort(copies=None, hops=(1, 2), rounds=2, steps=1),
}
_SLOWEST = _EFFORTS[max(_EFFORTS)]
# A few steps, to learn about what a copy takes.
_FEW = Effort(copies=None, hops=(1, 4), rounds=3, steps=1)
# Judgement: within a host that many steps over a network begin and end, there are half as many.
_WITHIN = {
    size: replace(effort, rounds=min(effort.rounds, 3), steps=min(effort.steps, 2))
    for size, effort in COPIES.items()
}
# Judgement: as many passes as fit into that, but one at least.
_PASSES_S = 20.0


def measure_host(
    runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str], *, drives: bool
) -> HostFigures:
    """Measure the devices of one host; its first one drives all steps if the host ``drives``.

    Devices are our names -> TensorFlow's; ``clocks`` are `core_clock` tokens of those that are
    cores.
    """
    first, *further = devices
    ends = (first, further[0]) if further else None
    bench = Bench(runtime, devices, _clocks_of(ends or (), clocks))

    def once() -> HostFigures:
        references = [reference(bench, name) for name in devices]
        steps = steps_of(bench, first)
        within = reached = None
        if ends is not None:
            within = Way(
                there=_copies_within(bench, ends),
                back=_copies_within(bench, ends[::-1]),
                both_ways=both_ways(bench, ends, BOTH_WAYS_BYTES, BOTH_WAYS),
            )
            if drives:
                reached = reach(bench, *ends, references[0].product_ns)
        return HostFigures(
            reference_ns=tuple(round(found.product_ns) for found in references),
            reference_p90=tuple(found.p90_ratio for found in references),
            op_ns=max(0, round(steps.op_ns)),
            within=within,
            step_overhead_ns=round(steps.overhead_ns) if drives else None,
            reach=reached,
        )

    return middle(_passes(once))


def measure_route(
    runtime: Runtime,
    one: Mapping[str, str],
    other: Mapping[str, str],
    clocks: Mapping[str, str],
    *,
    drives: bool,
) -> RouteFigures:
    """Measure what it takes between the devices of two hosts; ``drives`` is as to the one."""
    ends = next(iter(one)), next(iter(other))
    bench = Bench(runtime, {**one, **other}, _clocks_of(ends, clocks))
    second = _second_pair(tuple(one), tuple(other))
    about_ns = message_ns(bench, ends, _FEW)
    efforts: dict[_Ends, dict[int, Effort]] = {ends: {}, ends[::-1]: {}}

    def once() -> RouteFigures:
        one_way_ns = message_ns(bench, ends, _effort(about_ns) or _SLOWEST)
        there, back = (_errands(bench, each, one_way_ns, efforts[each]) for each in efforts)
        size_bytes = _together_bytes(efforts[ends])
        effort = efforts[ends][size_bytes]
        pairs: list[AtOnceTiming | None] = [None, None]
        if second is not None:
            pairs = [
                at_once(bench, ends, second, size_bytes, effort),
                at_once(bench, ends[::-1], second[::-1], size_bytes, effort),
            ]
        return RouteFigures(
            way=Way(there=there, back=back, both_ways=both_ways(bench, ends, size_bytes, effort)),
            at_once_there=pairs[0],
            at_once_back=pairs[1],
            reach=None,
        )

    found = middle(_passes(once))
    if not drives:
        return found
    product_ns = reference(bench, ends[0]).product_ns
    # Two messages, and as many again: the first device is busy until the other one has ended.
    busy_ns = 4 * about_ns
    reached = _passes(lambda: reach(bench, *ends, product_ns, longer_than_ns=busy_ns, wakes=False))
    return replace(found, reach=middle(reached))


def probe_route(
    runtime: Runtime, one: Mapping[str, str], other: Mapping[str, str], size_bytes: int
) -> tuple[int, int]:
    """Return what a copy of one size takes there and back, from a few copies alone, in ns."""
    ends = next(iter(one)), next(iter(other))
    bench = Bench(runtime, {**one, **other}, {})
    one_way_ns = message_ns(bench, ends, _FEW)
    there, back = (errand(bench, each, size_bytes, _FEW, one_way_ns) for each in (ends, ends[::-1]))
    return there.copy_ns, back.copy_ns


def _clocks_of(ends: Sequence[str], clocks: Mapping[str, str]) -> dict[str, str]:
    return {name: clocks[name] for name in ends if name in clocks}


def _passes(measure: Callable[[], T]) -> list[T]:
    """Return what several passes find, as many as there is time for."""
    begun_s = time.monotonic()
    found = [measure()]
    while len(found) < PASSES:
        each_s = (time.monotonic() - begun_s) / len(found)
        if each_s * (len(found) + 1) > _PASSES_S:
            break
        found.append(measure())
    return found


def _copies_within(bench: Bench, ends: _Ends) -> tuple[CopyTiming, ...]:
    return tuple(copy(bench, ends, *sized) for sized in _WITHIN.items())


def _errands(
    bench: Bench, ends: _Ends, one_way_ns: float, efforts: dict[int, Effort]
) -> tuple[CopyTiming, ...]:
    """Measure copies one way, of growing sizes until one takes too long.

    ``efforts`` is filled by the first pass, for those to come.
    """
    if efforts:
        return tuple(errand(bench, ends, *sized, one_way_ns) for sized in efforts.items())
    found: list[CopyTiming] = []
    expected_ns = one_way_ns
    for size_bytes, next_bytes in zip_longest(COPIES, list(COPIES)[1:]):
        effort = _effort(expected_ns)
        if effort is None and len(found) >= MIN_SIZES:
            break
        efforts[size_bytes] = effort = effort or _SLOWEST
        found.append(errand(bench, ends, size_bytes, effort, one_way_ns))
        if next_bytes is not None:
            bytes_ns = max(0.0, found[-1].copy_ns - one_way_ns)
            expected_ns = one_way_ns + bytes_ns * next_bytes / size_bytes
    return tuple(found)


def _together_bytes(efforts: Mapping[int, Effort]) -> int:
    """Return the size at which copies meet: medium, and not so long that few of them are made."""
    sizes = [size for size, effort in efforts.items() if effort.copies is not None]
    return max((size for size in sizes if size <= BOTH_WAYS_BYTES), default=min(efforts))


def _effort(copy_ns: float) -> Effort | None:
    """Return how to measure copies that take about that long, None if they take too long."""
    return next((effort for most_ns, effort in _EFFORTS.items() if copy_ns <= most_ns), None)


def _second_pair(one: Sequence[str], other: Sequence[str]) -> _Ends | None:
    """Return devices beside the first of each host, as far as there are; None if there are none."""
    if len(one) == len(other) == 1:
        return None
    return one[len(one) > 1], other[len(other) > 1]
