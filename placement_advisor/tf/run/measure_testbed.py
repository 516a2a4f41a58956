"""What a testbed of one machine takes for what is no op.

All of it is done in several passes, and the middle one of each figure counts: other work on a
machine comes for seconds.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import Calibration
from placement_advisor.machine.middle import middle
from placement_advisor.tf.run.bench import Bench
from placement_advisor.tf.run.measure_devices import (
    BOTH_WAYS,
    BOTH_WAYS_BYTES,
    COPIES,
    both_ways,
    copy,
    reach,
    reference,
    steps_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    links = {
        ends: tuple(copy(bench, ends, *sized) for sized in COPIES.items())
        for ends in permutations(devices, 2)
    }
    meeting = {
        ends: both_ways(bench, ends, BOTH_WAYS_BYTES, BOTH_WAYS)
        for ends in combinations(devices, 2)
    }
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
        op_ns=max(0, round(steps.op_ns)),
        reference_ns={name: round(found.product_ns) for name, found in references.items()},
        reference_p90={name: found.p90_ratio for name, found in references.items()},
    )


def speed(runtime: Runtime, devices: Mapping[str, str]) -> dict[str, int]:
    """Return the time of a reference product on each device as it is now."""
    bench = Bench(runtime, devices, {})
    return {name: max(1, round(reference(bench, name).product_ns)) for name in devices}
