"""Measures a testbed's devices, hosts and routes: copies, products, calls to another device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, reduce
from itertools import combinations, permutations, zip_longest
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import tensorflow as tf

from placement_advisor.cost.links import MIN_SIZES
from placement_advisor.machine import calibration as calibrations
from placement_advisor.machine.host_figures import HostFigures, Reach, RouteFigures, Way
from placement_advisor.tf.run import graph_timing
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from placement_advisor.tf.placed_step import Runtime

    # What makes a graph with so many of something, and few and many.
    _Ramp = tuple[Callable[[int], graph_timing.Build], tuple[int, int]]


T = TypeVar("T")


def middle(values: Sequence[T]) -> T:
    """Return a value of the same shape with the median of each number; whole numbers stay whole.

    Shapes are dataclasses, mappings and tuples of numbers. Where some are None, the median is that
    of the others.
    """
    return _middle(values)  # type: ignore[no-any-return]


def _middle(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    first = known[0] if known else None
    if is_dataclass(first) and not isinstance(first, type):
        parts = {part.name: [getattr(each, part.name) for each in known] for part in fields(first)}
        return replace(first, **{name: _middle(each) for name, each in parts.items()})
    if isinstance(first, Mapping):
        return {key: _middle([each[key] for each in known]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_middle, zip(*known, strict=True)))
    if isinstance(first, int):
        return round(median(known))
    return None if first is None else median(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Few and many copies and hops, of which the slope is taken, and how often.

    Without ``copies`` the core time at their ends is not measured.
    """

    copies: tuple[int, int] | None
    hops: tuple[int, int]
    rounds: int = graph_timing.ROUNDS
    steps: int = graph_timing.STEPS


class Reference(NamedTuple):
    """The time of one product, and how much longer a slow step of products takes than a usual."""

    product_ns: float
    p90_ratio: float


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
_USUAL = Effort(copies=None, hops=_FEWEST)
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
# Steps with a round trip: a fifth of a second on a machine at rest. Judgement.
_ROUND_TRIPS = 40


def copy(
    bench: graph_timing.GraphTimer, ends: tuple[str, str], size_bytes: int, effort: Effort
) -> calibrations.CopyTiming:
    """Time one tensor between idle devices of a machine, and the core time at both ends."""
    source, _ = ends
    found = _slopes(
        bench,
        {
            **_fans(ends, size_bytes, effort),
            "there": (partial(graph_timing.chain, ends, size_bytes), effort.hops),
            "at home": (partial(graph_timing.chain, (source, source), size_bytes), effort.hops),
        },
        effort,
    )
    return _timing(found, ends, size_bytes, found["there"].step_ns - found["at home"].step_ns)


def round_trip(
    bench: graph_timing.GraphTimer,
    ends: tuple[str, str],
    size_bytes: int,
    effort: Effort,
    message_ns: float,
) -> calibrations.CopyTiming:
    """Time one tensor one way between idle devices, and the core time at both ends.

    What comes back is a message of no bytes, which takes ``message_ns``.
    """
    trips = partial(graph_timing.round_trips, ends, size_bytes), effort.hops
    found = _slopes(bench, {**_fans(ends, size_bytes, effort), "trips": trips}, effort)
    return _timing(found, ends, size_bytes, found["trips"].step_ns - message_ns)


def message_ns(bench: graph_timing.GraphTimer, ends: tuple[str, str], effort: Effort) -> float:
    """Time a message of no bytes, as the mean of both directions."""
    return round_trip(bench, ends, 4, replace(effort, copies=None), 0).copy_ns / 2


def both_ways(
    bench: graph_timing.GraphTimer,
    ends: tuple[str, str],
    size_bytes: int = BOTH_WAYS_BYTES,
    effort: Effort = BOTH_WAYS,
) -> calibrations.BothWaysTiming:
    """Time what one more tensor adds one way, and one more each way at once."""
    back = ends[::-1]
    ways = (ends,), (back,), (ends, back)
    there_ns, back_ns, both_ns = _added_ns(bench, ways, size_bytes, effort)
    return calibrations.BothWaysTiming(
        size_bytes=size_bytes,
        one_way_ns=round((there_ns + back_ns) / 2),
        both_ways_ns=round(both_ns),
    )


def at_once(
    bench: graph_timing.GraphTimer,
    one: tuple[str, str],
    other: tuple[str, str],
    size_bytes: int,
    effort: Effort,
) -> calibrations.AtOnceTiming:
    """Time what one more tensor of one pair adds, and one more of each of two pairs at once."""
    alone_ns, together_ns = _added_ns(bench, ((one,), (one, other)), size_bytes, effort)
    return calibrations.AtOnceTiming(
        size_bytes=size_bytes, one_pair_ns=round(alone_ns), two_pairs_ns=round(together_ns)
    )


def reference(bench: graph_timing.GraphTimer, device: str) -> Reference:
    """Time products of matrices on a device."""
    product = _slopes(bench, {"": (partial(graph_timing.products, device), _PRODUCTS)})[""]
    return Reference(
        product_ns=product.step_ns, p90_ratio=product.most.p90_ns / product.most.step_ns
    )


def memory(bench: graph_timing.GraphTimer, one: str, other: str) -> calibrations.MemoryTiming:
    """Measure the memory bandwidth of a device, and its slowdown beside another device."""

    def alone(count: int) -> graph_timing.Build:
        return graph_timing.sums(one, _SUMMAND_BYTES, count)

    def beside(count: int) -> graph_timing.Build:
        return graph_timing.both(alone(count), graph_timing.sums(other, _SUMMAND_BYTES, count))

    found = _slopes(bench, {"alone": (alone, _SUMS), "beside": (beside, _SUMS)})
    alone_ns = max(1.0, found["alone"].step_ns)
    return calibrations.MemoryTiming(
        bytes_per_s=_PASSES * _SUMMAND_BYTES / alone_ns * NS_PER_S,
        ratio=max(1.0, found["beside"].step_ns / alone_ns),
    )


def step_and_op_ns(bench: graph_timing.GraphTimer, device: str) -> tuple[int, int]:
    """Time an empty step of a device, and an op that computes next to nothing."""
    empty = bench.times({"": graph_timing.nothing(device)})[""]
    tiny = _slopes(bench, {"": (partial(graph_timing.tiny_ops, device), _TINY_OPS)})[""]
    return round(empty.step_ns), max(0, round(tiny.step_ns))


def reach(
    bench: graph_timing.GraphTimer,
    first: str,
    other: str,
    product_ns: float,
    *,
    longer_than_ns: float = 0,
    wakes: bool = True,
) -> Reach:
    """Time what it costs the first device of a testbed to drive another one.

    ``product_ns`` is what a product takes on the first, which computes for ``longer_than_ns`` at
    least while the other one starts and ends. Where copies to it are measured between ends that
    sleep, nothing ``wakes``: no wake is measured. Devices that are no cores have engines that copy,
    which neither wait for ops nor sleep.
    """
    product_ns = max(1.0, product_ns)
    local = max(_PRODUCTS[1], math.ceil(longer_than_ns / product_ns))
    long, rest = round(_LONG_NS / product_ns), math.ceil(_REST_NS / product_ns)
    alone = {"none": graph_timing.nothing(first), "remote": graph_timing.nothing(other)}
    # A device that is started has rested since the step before.
    rested = bench.times(alone, before=graph_timing.products(first, rest))
    together = {
        "local": graph_timing.products(first, local),
        "with remote": graph_timing.both(
            graph_timing.products(first, local), graph_timing.nothing(other)
        ),
    }
    if bench.reads_cores:
        together["from idle"] = graph_timing.answered(first, other, long, 0)
        together["from busy"] = graph_timing.answered(first, other, long, long)
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


def _wake_ns(bench: graph_timing.GraphTimer, first: str, other: str, rest: int) -> int:
    """Return how much longer a small copy takes to a device that has rested for some products.

    Both round trips are of one step, so that nothing else differs; what comes back finds its device
    awake both times.
    """
    found = bench.values(graph_timing.round_trip_after_rest(first, other, rest), _ROUND_TRIPS)
    return max(0, round(median(rested - awake for rested, awake in found) * NS_PER_S))


class _Slope(NamedTuple):
    """What one more of something adds to a step and to the cores, and a step with the most."""

    step_ns: float
    core_ns: Mapping[str, float]
    most: graph_timing.Timing


def _slopes(
    bench: graph_timing.GraphTimer, ramps: Mapping[str, _Ramp], effort: Effort = _USUAL
) -> dict[str, _Slope]:
    """Time graphs with few and with many of something, all in turns."""
    times = bench.times(
        {
            f"{name} {count}": build(count)
            for name, (build, counts) in ramps.items()
            for count in counts
        },
        rounds=effort.rounds,
        steps=effort.steps,
    )
    found = {}
    for name, (_, (few, many)) in ramps.items():
        less, most = times[f"{name} {few}"], times[f"{name} {many}"]
        found[name] = _Slope(
            step_ns=(most.step_ns - less.step_ns) / (many - few),
            core_ns={of: (ns - less.core_ns[of]) / (many - few) for of, ns in most.core_ns.items()},
            most=most,
        )
    return found


def _fans(ends: tuple[str, str], size_bytes: int, effort: Effort) -> dict[str, _Ramp]:
    if effort.copies is None:
        return {}
    return {"fan": (partial(graph_timing.fan, ends, size_bytes), effort.copies)}


def _timing(
    found: Mapping[str, _Slope], ends: tuple[str, str], size_bytes: int, copy_ns: float
) -> calibrations.CopyTiming:
    def core_ns(device: str) -> int | None:
        if "fan" not in found or device not in found["fan"].core_ns:
            return None
        return max(0, round(found["fan"].core_ns[device]))

    source, target = ends
    return calibrations.CopyTiming(
        size_bytes=size_bytes,
        copy_ns=round(copy_ns),
        send_ns=core_ns(source),
        receive_ns=core_ns(target),
    )


def _added_ns(
    bench: graph_timing.GraphTimer,
    ways: Sequence[Sequence[tuple[str, str]]],
    size_bytes: int,
    effort: Effort,
) -> list[float]:
    """Return what one more tensor on each of some ways together adds to a step, for several."""

    def fans(together: Sequence[tuple[str, str]], count: int) -> graph_timing.Build:
        return reduce(
            graph_timing.both, (graph_timing.fan(ends, size_bytes, count) for ends in together)
        )

    copies = effort.copies or _FEWEST
    ramps = {str(number): (partial(fans, way), copies) for number, way in enumerate(ways)}
    return [each.step_ns for each in _slopes(bench, ramps, effort).values()]


# Judgement: a pass over two devices takes about 7 s, and three are the fewest of which one can be
# wrong while the middle one is right. Before there were three, a calibration that other work
# disturbed for some seconds priced small copies four times too high
# (docs/explanation/cost-model.md). How far passes are apart on a machine is seen by `advisor
# calibrate`, run twice.
PASSES = 3


def measure(
    runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str]
) -> calibrations.Calibration:
    """Measure a testbed of devices (our name -> TensorFlow's).

    ``clocks`` are the `core_clock` tokens of devices that are processes, empty if they all live in
    this one: then copies cost no processor time, and a device does not keep another one waiting.
    """
    return middle([_pass(runtime, devices, clocks) for _ in range(PASSES)])


def _pass(
    runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str]
) -> calibrations.Calibration:
    bench = graph_timing.GraphTimer(runtime, devices, clocks)
    pairs = list(combinations(devices, 2))
    if not clocks and all(map(_is_cpu, devices.values())):
        # Within a process a copy is a pointer, from wherever to wherever.
        links = dict.fromkeys(permutations(devices, 2), _copies(bench, pairs[0], COPIES))
        meeting = dict.fromkeys(pairs, both_ways(bench, pairs[0]))
    else:
        links = {ends: _copies(bench, ends, COPIES) for ends in permutations(devices, 2)}
        meeting = {ends: both_ways(bench, ends) for ends in pairs}
    first, *further = devices
    references = {name: reference(bench, name) for name in devices}
    step_overhead_ns, op_ns = step_and_op_ns(bench, first)
    reached = Reach(partition_overhead_ns=0, remote_ns=0, quantum_ns=0, wake_ns=0)
    if clocks and further:
        reached = reach(bench, first, further[0], references[first].product_ns)
    return calibrations.Calibration(
        links=links,
        both_ways=meeting,
        step_overhead_ns=step_overhead_ns,
        partition_overhead_ns=reached.partition_overhead_ns,
        remote_ns=reached.remote_ns,
        quantum_ns=reached.quantum_ns,
        wake_ns=reached.wake_ns,
        op_ns=op_ns,
        reference_ns={name: round(found.product_ns) for name, found in references.items()},
        reference_p90={name: found.p90_ratio for name, found in references.items()},
        memory=memory(bench, first, further[0]) if clocks and further else None,
    )


def _is_cpu(tensorflow_name: str) -> bool:
    return bool(tf.DeviceSpec.from_string(tensorflow_name).device_type == "CPU")


def speed(runtime: Runtime, devices: Mapping[str, str]) -> dict[str, int]:
    """Return the time of a reference product on each device as it is now."""
    bench = graph_timing.GraphTimer(runtime, devices, {})
    return {name: max(1, round(reference(bench, name).product_ns)) for name in devices}


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
    bench = graph_timing.GraphTimer(runtime, devices, _clocks_of(ends or (), clocks))

    def once() -> HostFigures:
        references = [reference(bench, name) for name in devices]
        step_overhead_ns, op_ns = step_and_op_ns(bench, first)
        within = reached = None
        if ends is not None:
            within = Way(
                there=_copies(bench, ends, _WITHIN),
                back=_copies(bench, ends[::-1], _WITHIN),
                both_ways=both_ways(bench, ends),
            )
            if drives:
                reached = reach(bench, *ends, references[0].product_ns)
        return HostFigures(
            reference_ns=tuple(round(found.product_ns) for found in references),
            reference_p90=tuple(found.p90_ratio for found in references),
            op_ns=op_ns,
            within=within,
            step_overhead_ns=step_overhead_ns if drives else None,
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
    """Measure copies between the devices of two hosts; ``drives`` says whether the first drives."""
    ends = next(iter(one)), next(iter(other))
    bench = graph_timing.GraphTimer(runtime, {**one, **other}, _clocks_of(ends, clocks))
    second = _second_pair(tuple(one), tuple(other))
    about_ns = message_ns(bench, ends, _FEW)
    efforts: dict[_Ends, dict[int, Effort]] = {ends: {}, ends[::-1]: {}}

    def once() -> RouteFigures:
        one_way_ns = message_ns(bench, ends, _effort(about_ns) or _SLOWEST)
        there, back = (_round_trips(bench, each, one_way_ns, efforts[each]) for each in efforts)
        size_bytes = _together_bytes(efforts[ends])
        effort = efforts[ends][size_bytes]
        pairs: list[calibrations.AtOnceTiming | None] = [None, None]
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
    bench = graph_timing.GraphTimer(runtime, {**one, **other}, {})
    one_way_ns = message_ns(bench, ends, _FEW)
    there, back = (
        round_trip(bench, each, size_bytes, _FEW, one_way_ns) for each in (ends, ends[::-1])
    )
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


def _copies(
    bench: graph_timing.GraphTimer, ends: _Ends, efforts: Mapping[int, Effort]
) -> tuple[calibrations.CopyTiming, ...]:
    return tuple(copy(bench, ends, *sized) for sized in efforts.items())


def _round_trips(
    bench: graph_timing.GraphTimer, ends: _Ends, one_way_ns: float, efforts: dict[int, Effort]
) -> tuple[calibrations.CopyTiming, ...]:
    """Measure copies one way, of growing sizes until one takes too long.

    ``efforts`` is filled by the first pass, for those to come.
    """
    if efforts:
        return tuple(round_trip(bench, ends, *sized, one_way_ns) for sized in efforts.items())
    found: list[calibrations.CopyTiming] = []
    expected_ns = one_way_ns
    for size_bytes, next_bytes in zip_longest(COPIES, list(COPIES)[1:]):
        effort = _effort(expected_ns)
        if effort is None and len(found) >= MIN_SIZES:
            break
        efforts[size_bytes] = effort = effort or _SLOWEST
        found.append(round_trip(bench, ends, size_bytes, effort, one_way_ns))
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
