"""What a testbed of one machine takes for what is no op.

All of it is done in several passes, and the middle one of each figure counts: other work on a
machine comes for seconds.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

import tensorflow as tf

from placement_advisor.machine.calibration import Calibration
from placement_advisor.machine.middle import middle
from placement_advisor.tf.run.bench import Bench
from placement_advisor.tf.run.measure_devices import (
    BOTH_WAYS,
    BOTH_WAYS_BYTES,
    COPIES,
    both_ways,
    copy,
    memory,
    reach,
    reference,
    steps_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.machine.copy_timings import BothWaysTiming, CopyTiming
    from placement_advisor.tf.place.placed_step import Runtime

# Judgement: a pass over two devices takes about 7 s, and three are the fewest of which one can be
# wrong while the middle one is right. Before there were three, a calibration that other work
# disturbed for some seconds priced small copies four times too high (docs/cost-model.md). How far
# passes are apart on a machine is seen by `advisor calibrate`, run twice.
PASSES = 3


def measure(runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str]) -> Calibration:
    """Measure a testbed of devices (our name -> TensorFlow's).

    ``clocks`` are the `core_clock` tokens of devices that are processes, empty if they all live in
    this one: then copies cost no processor time, and a device does not keep another one waiting.
    """
    return middle([_pass(runtime, devices, clocks) for _ in range(PASSES)])


def _pass(runtime: Runtime, devices: Mapping[str, str], clocks: Mapping[str, str]) -> Calibration:
    bench = Bench(runtime, devices, clocks)

    def one_way(ends: tuple[str, str]) -> tuple[CopyTiming, ...]:
        return tuple(copy(bench, ends, *sized) for sized in COPIES.items())

    def meet(ends: tuple[str, str]) -> BothWaysTiming:
        return both_ways(bench, ends, BOTH_WAYS_BYTES, BOTH_WAYS)

    pairs = list(combinations(devices, 2))
    if not clocks and all(map(_is_cpu, devices.values())):
        # Within a process a copy is a pointer, from wherever to wherever.
        links = dict.fromkeys(permutations(devices, 2), one_way(pairs[0]))
        meeting = dict.fromkeys(pairs, meet(pairs[0]))
    else:
        links = {ends: one_way(ends) for ends in permutations(devices, 2)}
        meeting = {ends: meet(ends) for ends in pairs}
    first, *further = devices
    references = {name: reference(bench, name) for name in devices}
    steps = steps_of(bench, first)
    reached = None
    if clocks and further:
        reached = reach(bench, first, further[0], references[first].product_ns)
    return Calibration(
        links=links,
        both_ways=meeting,
        step_overhead_ns=round(steps.overhead_ns),
        partition_overhead_ns=reached.partition_overhead_ns if reached else 0,
        remote_ns=reached.remote_ns if reached else 0,
        quantum_ns=reached.quantum_ns if reached else 0,
        wake_ns=reached.wake_ns if reached else 0,
        op_ns=max(0, round(steps.op_ns)),
        reference_ns={name: round(found.product_ns) for name, found in references.items()},
        reference_p90={name: found.p90_ratio for name, found in references.items()},
        memory=memory(bench, first, further[0]) if clocks and further else None,
    )


def _is_cpu(tensorflow_name: str) -> bool:
    return bool(tf.DeviceSpec.from_string(tensorflow_name).device_type == "CPU")


def speed(runtime: Runtime, devices: Mapping[str, str]) -> dict[str, int]:
    """Return the time of a reference product on each device as it is now."""
    bench = Bench(runtime, devices, {})
    return {name: max(1, round(reference(bench, name).product_ns)) for name in devices}
