"""What devices of a testbed take for single things: copies, products, being driven by another one.

Small graphs of which only one thing differs are run in turns; figures are differences of medians,
most of them slopes over a count, so that what all steps cost falls out. Nothing of a user's model
runs here. Where devices are processes, their processor time is read around the steps, which tells
what a copy costs the core at either end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import MemoryTiming
from placement_advisor.machine.copy_timings import AtOnceTiming, BothWaysTiming, CopyTiming
from placement_advisor.machine.host_figures import Reach
from placement_advisor.tf.run.bench import ROUNDS, STEPS, Bench
from placement_advisor.tf.run.calibration_graphs import (
    answered,
    both,
    chain,
    errand_after_rest,
    errands,
    fan,
    nothing,
    products,
    sums,
    tiny_ops,
)
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.tf.run.bench import Build, Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Few and many copies and hops, of which the slope is taken, and how often.

    Without ``copies`` the core time at their ends is not measured.
    """

    copies: tuple[int, int] | None
    hops: tuple[int, int]
    rounds: int = ROUNDS
    steps: int = STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The time of one product, and how much longer a slow step of products takes than a usual."""

    product_ns: float
    p90_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What a step of one device takes to start and end, and an op that computes next to nothing."""

    overhead_ns: float
    op_ns: float


SMALL_COPIES = Effort(copies=(4, 24), hops=(2, 12))
LARGE_COPIES = Effort(copies=(2, 6), hops=(2, 6))
# Such copies are longer than what disturbs them.
HUGE_COPIES = Effort(copies=(1, 3), hops=(1, 3), rounds=2, steps=1)
# By size: from one network packet to tensors that leave no cache alone.
COPIES = {
    1 << 10: SMALL_COPIES,
    1 << 16: SMALL_COPIES,
    1 << 19: SMALL_COPIES,
    1 << 22: LARGE_COPIES,
    1 << 24: HUGE_COPIES,
    1 << 26: HUGE_COPIES,
}
# An activation of medium size, of which the bytes and not the message are what takes time.
BOTH_WAYS_BYTES = 1 << 19
BOTH_WAYS = Effort(copies=(4, 12), hops=(4, 12))
_FEWEST = (1, 2)
# What two graphs differ in: enough that the difference, of tens of microseconds or more, is larger
# than what medians of twenty steps wander by. Judgement: larger graphs take longer.
_TINY_OPS = (0, 200)
_PRODUCTS = (2, 12)
# Tensors that no core's own cache holds, and how many sums of them.
_SUMMAND_BYTES = 1 << 24
_SUMS = (2, 8)
# A sum reads two tensors and writes one.
_PASSES = 3
# Longer than a scheduler leaves a core to one thread (4 ms at 250 ticks a second, 10 ms at 100).
_LONG_NS = 15_000_000
# For so long the other device has nothing to do. Judgement: as long as a layer of a model computes.
_REST_NS = 4_000_000
# Steps with an errand: a fifth of a second on a machine at rest. Judgement.
_ERRANDS = 40


def copy(bench: Bench, ends: tuple[str, str], size_bytes: int, effort: Effort) -> CopyTiming:
    """Return what one tensor takes between idle devices of one machine, and costs their cores."""
    source, _ = ends
    near, far = effort.hops
    times = bench.times(
        {
            **_fans(ends, size_bytes, effort),
            "near": chain(ends, size_bytes, near),
            "far": chain(ends, size_bytes, far),
            "near at home": chain((source, source), size_bytes, near),
            "far at home": chain((source, source), size_bytes, far),
        },
        rounds=effort.rounds,
        steps=effort.steps,
    )
    there = times["far"].step_ns - times["near"].step_ns
    at_home = times["far at home"].step_ns - times["near at home"].step_ns
    return _timing(times, ends, size_bytes, effort, (there - at_home) / (far - near))


def errand(
    bench: Bench, ends: tuple[str, str], size_bytes: int, effort: Effort, message_ns: float
) -> CopyTiming:
    """Return what one tensor takes one way between idle devices, and costs their cores.

    What comes back is a message of no bytes, which takes ``message_ns``.
    """
    few, many = effort.hops
    times = bench.times(
        {
            **_fans(ends, size_bytes, effort),
            "few errands": errands(ends, size_bytes, few),
            "many errands": errands(ends, size_bytes, many),
        },
        rounds=effort.rounds,
        steps=effort.steps,
    )
    added_ns = times["many errands"].step_ns - times["few errands"].step_ns
    return _timing(times, ends, size_bytes, effort, added_ns / (many - few) - message_ns)


def message_ns(bench: Bench, ends: tuple[str, str], effort: Effort) -> float:
    """Return what a message of no bytes takes, the mean of both directions."""
    return errand(bench, ends, 4, replace(effort, copies=None), 0).copy_ns / 2


def both_ways(
    bench: Bench, ends: tuple[str, str], size_bytes: int, effort: Effort
) -> BothWaysTiming:
    """Return what one more tensor adds one way, and one more each way where they meet."""
    back = ends[::-1]
    ways = (ends,), (back,), (ends, back)
    there_ns, back_ns, both_ns = _added_ns(bench, ways, size_bytes, effort)
    return BothWaysTiming(
        size_bytes=size_bytes,
        one_way_ns=round((there_ns + back_ns) / 2),
        both_ways_ns=round(both_ns),
    )


def at_once(
    bench: Bench,
    one: tuple[str, str],
    other: tuple[str, str],
    size_bytes: int,
    effort: Effort,
) -> AtOnceTiming:
    """Return what one more tensor adds that one pair copies, and one more of each of two pairs."""
    alone_ns, together_ns = _added_ns(bench, ((one,), (one, other)), size_bytes, effort)
    return AtOnceTiming(
        size_bytes=size_bytes, one_pair_ns=round(alone_ns), two_pairs_ns=round(together_ns)
    )


def reference(bench: Bench, device: str) -> Reference:
    """Return what products of matrices take on a device."""
    few, many = _PRODUCTS
    times = bench.times({"few": products(device, few), "many": products(device, many)})
    longer = times["many"]
    return Reference(
        product_ns=(longer.step_ns - times["few"].step_ns) / (many - few),
        p90_ratio=longer.p90_ns / longer.step_ns,
    )


def memory(bench: Bench, one: str, other: str) -> MemoryTiming:
    """Return what a device draws from memory, and how much longer that takes it beside another."""
    few, many = _SUMS

    def alone(count: int) -> Build:
        return sums(one, _SUMMAND_BYTES, count)

    def beside(count: int) -> Build:
        return both(alone(count), sums(other, _SUMMAND_BYTES, count))

    times = bench.times(
        {
            "few": alone(few),
            "many": alone(many),
            "few beside": beside(few),
            "many beside": beside(many),
        }
    )
    alone_ns = max(1.0, times["many"].step_ns - times["few"].step_ns)
    beside_ns = times["many beside"].step_ns - times["few beside"].step_ns
    moved_bytes = _PASSES * _SUMMAND_BYTES * (many - few)
    return MemoryTiming(
        bytes_per_s=moved_bytes / alone_ns * NS_PER_S, ratio=max(1.0, beside_ns / alone_ns)
    )


def steps_of(bench: Bench, device: str) -> Steps:
    """Return what steps of a device take beside ops, and what ops take beside computing."""
    steps = bench.times(
        {"none": nothing(device)}
        | {f"tiny {count}": tiny_ops(device, count) for count in _TINY_OPS}
    )
    few, many = _TINY_OPS
    tiny_ns = steps[f"tiny {many}"].step_ns - steps[f"tiny {few}"].step_ns
    return Steps(overhead_ns=steps["none"].step_ns, op_ns=tiny_ns / (many - few))


def reach(
    bench: Bench,
    first: str,
    other: str,
    product_ns: float,
    *,
    longer_than_ns: float = 0,
    wakes: bool = True,
) -> Reach:
    """Return what it takes that the first device of a testbed drives another one.

    ``product_ns`` is what a product takes on the first, which computes for ``longer_than_ns`` at
    least while the other one starts and ends. Where copies to it are measured between ends that
    sleep, nothing ``wakes``: no wake is measured. Devices that are no cores have engines that copy,
    which neither wait for ops nor sleep.
    """
    product_ns = max(1.0, product_ns)
    local = max(_PRODUCTS[1], math.ceil(longer_than_ns / product_ns))
    long, rest = round(_LONG_NS / product_ns), math.ceil(_REST_NS / product_ns)
    alone = {"none": nothing(first), "remote": nothing(other)}
    # A device that is started has rested since the step before.
    rested = bench.times(alone, before=products(first, rest))
    together = {
        "local": products(first, local),
        "with remote": both(products(first, local), nothing(other)),
    }
    if bench.reads_cores:
        together["from idle"] = answered(first, other, long, 0)
        together["from busy"] = answered(first, other, long, long)
    beside = bench.times(together)
    partition_ns = beside["with remote"].step_ns - beside["local"].step_ns
    remote_ns = rested["remote"].step_ns - rested["none"].step_ns
    quantum_ns = wake_ns = 0
    if bench.reads_cores:
        quantum_ns = round(beside["from busy"].step_ns - beside["from idle"].step_ns)
        wake_ns = _wake_ns(bench, first, other, rest) if wakes else 0
    return Reach(
        partition_overhead_ns=max(0, round(partition_ns)),
        remote_ns=max(0, round(remote_ns)),
        quantum_ns=max(0, quantum_ns),
        wake_ns=wake_ns,
    )


def _wake_ns(bench: Bench, first: str, other: str, rest: int) -> int:
    """Return how much longer a small copy takes to a device that has rested for some products.

    Both errands are of one step, so that nothing else differs; what comes back finds its device
    awake both times.
    """
    found = bench.values(errand_after_rest(first, other, rest), _ERRANDS)
    return max(0, round(median(rested - awake for rested, awake in found) * NS_PER_S))


def _fans(ends: tuple[str, str], size_bytes: int, effort: Effort) -> dict[str, Build]:
    if effort.copies is None:
        return {}
    few, many = effort.copies
    return {"few": fan(ends, size_bytes, few), "many": fan(ends, size_bytes, many)}


def _timing(
    times: Mapping[str, Timing],
    ends: tuple[str, str],
    size_bytes: int,
    effort: Effort,
    copy_ns: float,
) -> CopyTiming:
    def core_ns(device: str) -> int | None:
        if effort.copies is None or device not in times["few"].core_ns:
            return None
        few, many = effort.copies
        added = times["many"].core_ns[device] - times["few"].core_ns[device]
        return max(0, round(added / (many - few)))

    source, target = ends
    return CopyTiming(
        size_bytes=size_bytes,
        copy_ns=round(copy_ns),
        send_ns=core_ns(source),
        receive_ns=core_ns(target),
    )


def _added_ns(
    bench: Bench, ways: Sequence[Sequence[tuple[str, str]]], size_bytes: int, effort: Effort
) -> list[float]:
    """Return what one more tensor on each of some ways together adds to a step, for several."""
    copies = few, many = effort.copies or _FEWEST

    def fans(together: Sequence[tuple[str, str]], count: int) -> Build:
        return reduce(both, (fan(ends, size_bytes, count) for ends in together))

    times = bench.times(
        {
            f"{number} {count}": fans(together, count)
            for count in copies
            for number, together in enumerate(ways)
        },
        rounds=effort.rounds,
        steps=effort.steps,
    )
    return [
        (times[f"{number} {many}"].step_ns - times[f"{number} {few}"].step_ns) / (many - few)
        for number in range(len(ways))
    ]
