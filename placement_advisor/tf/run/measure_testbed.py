"""What a testbed takes for what is no op: copies, starting a step, waiting for a busy device.

Small graphs of which only one thing differs are run in turns; figures are differences of medians,
most of them slopes over a count, so that what all steps cost falls out. All of it is done in
several passes, and the middle one of each figure counts: other work on a machine comes for seconds.
Nothing of a user's model runs here. Where devices are processes, their processor time is read
around the steps, which tells what a copy costs the core at either end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import BothWaysTiming, Calibration, CopyTiming, middle
from placement_advisor.tf.run.bench import ROUNDS, STEPS, Bench
from placement_advisor.tf.run.calibration_graphs import (
    answered,
    both,
    chain,
    fan,
    nothing,
    products,
    tiny_ops,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.tf.place.placed_step import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """Few and many copies and hops, of which the slope is taken, and how often."""

    copies: tuple[int, int]
    hops: tuple[int, int]
    rounds: int
    steps: int


# Judgement: a pass over two devices takes about 7 s, and three are the fewest of which one can be
# wrong while the middle one is right. Before there were three, a calibration that other work
# disturbed for some seconds priced small copies four times too high (docs/cost-model.md). How far
# passes are apart on a machine is seen by `advisor calibrate`, run twice.
_PASSES = 3
_SMALL = _Effort(copies=(4, 24), hops=(2, 12), rounds=ROUNDS, steps=STEPS)
_LARGE = _Effort(copies=(2, 6), hops=(2, 6), rounds=ROUNDS, steps=STEPS)
# Such copies are longer than what disturbs them.
_HUGE = _Effort(copies=(1, 3), hops=(1, 3), rounds=2, steps=1)
# By size: from one network packet to tensors that leave no cache alone.
_COPIES = {
    1 << 10: _SMALL,
    1 << 16: _SMALL,
    1 << 19: _SMALL,
    1 << 22: _LARGE,
    1 << 24: _HUGE,
    1 << 26: _HUGE,
}
# An activation of medium size, of which the bytes and not the message are what takes time.
_BOTH_WAYS_BYTES = 1 << 19
_BOTH_WAYS_COPIES = (4, 12)
# What two graphs differ in: enough that the difference, of tens of microseconds or more, is larger
# than what medians of twenty steps wander by. Judgement: larger graphs take longer.
_TINY_OPS = (0, 200)
_PRODUCTS = (2, 12)
# Longer than a scheduler leaves a core to one thread (4 ms at 250 ticks a second, 10 ms at 100).
_LONG_NS = 15_000_000


def measure(
    runtime: Runtime, devices: Mapping[str, str], processes: Mapping[str, int]
) -> Calibration:
    """Measure a testbed of devices (our name -> TensorFlow's).

    ``processes`` are the ids of the processes in which devices live, empty if they live in this
    one: then copies cost no processor time, and a device does not keep another one waiting.
    """
    return middle([_pass(runtime, devices, processes) for _ in range(_PASSES)])


def _pass(
    runtime: Runtime, devices: Mapping[str, str], processes: Mapping[str, int]
) -> Calibration:
    bench = Bench(runtime, devices, {name: _clock(pid) for name, pid in processes.items()})
    links: dict[tuple[str, str], tuple[CopyTiming, ...]] = {}
    for ends in permutations(devices, 2):
        links[ends] = tuple(_copy(bench, ends, *sized) for sized in _COPIES.items())
    both_ways = {ends: _both_ways(bench, ends) for ends in combinations(devices, 2)}
    first, *further = devices
    references = {name: _reference(bench, name) for name in devices}
    steps = bench.times(
        {"none": nothing(first)} | {f"tiny {count}": tiny_ops(first, count) for count in _TINY_OPS}
    )
    few, many = _TINY_OPS
    op_ns = (steps[f"tiny {many}"].step_ns - steps[f"tiny {few}"].step_ns) / (many - few)
    partition_ns = remote_ns = quantum_ns = 0.0
    if processes and further:
        other = further[0]
        long = round(_LONG_NS / max(1.0, references[first].product_ns))
        beside = bench.times(
            {
                "none": nothing(first),
                "remote": nothing(other),
                "local": products(first, _PRODUCTS[1]),
                "with remote": both(products(first, _PRODUCTS[1]), nothing(other)),
                "from idle": answered(first, other, long, 0),
                "from busy": answered(first, other, long, long),
            }
        )
        partition_ns = beside["with remote"].step_ns - beside["local"].step_ns
        remote_ns = beside["remote"].step_ns - beside["none"].step_ns
        quantum_ns = beside["from busy"].step_ns - beside["from idle"].step_ns
    return Calibration(
        links=links,
        both_ways=both_ways,
        step_overhead_ns=round(steps["none"].step_ns),
        partition_overhead_ns=max(0, round(partition_ns)),
        remote_ns=max(0, round(remote_ns)),
        quantum_ns=max(0, round(quantum_ns)),
        op_ns=max(0, round(op_ns)),
        reference_ns={name: round(found.product_ns) for name, found in references.items()},
        reference_p90={name: found.p90_ratio for name, found in references.items()},
    )


def speed(runtime: Runtime, devices: Mapping[str, str]) -> dict[str, int]:
    """Return the time of a reference product on each device as it is now."""
    bench = Bench(runtime, devices, {})
    return {name: max(1, round(_reference(bench, name).product_ns)) for name in devices}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """The time of one product, and how much longer a slow step of products takes than a usual."""

    product_ns: float
    p90_ratio: float


def _copy(bench: Bench, ends: tuple[str, str], size_bytes: int, effort: _Effort) -> CopyTiming:
    """Return what one tensor takes between idle devices, and what it costs their cores."""
    source, target = ends
    few, many = effort.copies
    near, far = effort.hops
    times = bench.times(
        {
            "few": fan(ends, size_bytes, few),
            "many": fan(ends, size_bytes, many),
            "near": chain(ends, size_bytes, near),
            "far": chain(ends, size_bytes, far),
            "near at home": chain((source, source), size_bytes, near),
            "far at home": chain((source, source), size_bytes, far),
        },
        rounds=effort.rounds,
        steps=effort.steps,
    )

    def core_ns(device: str) -> int | None:
        if device not in times["few"].core_ns:
            return None
        added = times["many"].core_ns[device] - times["few"].core_ns[device]
        return max(0, round(added / (many - few)))

    there = times["far"].step_ns - times["near"].step_ns
    at_home = times["far at home"].step_ns - times["near at home"].step_ns
    return CopyTiming(
        size_bytes=size_bytes,
        copy_ns=round((there - at_home) / (far - near)),
        send_ns=core_ns(source),
        receive_ns=core_ns(target),
    )


def _both_ways(bench: Bench, ends: tuple[str, str]) -> BothWaysTiming:
    """Return what one more tensor adds one way, and one more each way where they meet."""
    there, back = ends, ends[::-1]
    few, many = _BOTH_WAYS_COPIES
    times = bench.times(
        {
            f"{name} {count}": build
            for count in (few, many)
            for name, build in {
                "there": fan(there, _BOTH_WAYS_BYTES, count),
                "back": fan(back, _BOTH_WAYS_BYTES, count),
                "both": both(
                    fan(there, _BOTH_WAYS_BYTES, count), fan(back, _BOTH_WAYS_BYTES, count)
                ),
            }.items()
        }
    )

    def added_ns(name: str) -> float:
        return (times[f"{name} {many}"].step_ns - times[f"{name} {few}"].step_ns) / (many - few)

    return BothWaysTiming(
        size_bytes=_BOTH_WAYS_BYTES,
        one_way_ns=round((added_ns("there") + added_ns("back")) / 2),
        both_ways_ns=round(added_ns("both")),
    )


def _reference(bench: Bench, device: str) -> _Reference:
    few, many = _PRODUCTS
    times = bench.times({"few": products(device, few), "many": products(device, many)})
    longer = times["many"]
    return _Reference(
        product_ns=(longer.step_ns - times["few"].step_ns) / (many - few),
        p90_ratio=longer.p90_ns / longer.step_ns,
    )


def _clock(process: int) -> int:
    """Return the clock of a process's processor time.

    Source: clock_getcpuclockid(3), whose Linux implementation this is; Python does not have it.
    """
    processor_time = 2
    return (~process << 3) | processor_time
