"""What it takes to start a device, and to send it a small tensor, by how long it has rested.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/rested_devices.py

Two workers. *Start*: a step of nothing on the second one against one on the first, each after a
step in which the first one computes for so long and the second one rests. *Errand*: within a step,
the first one computes, sends a small tensor and waits for an answer, and does so again at once.
Clocks are read by the step itself.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import quantiles

from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure, RemoteModule
from placement_advisor.processes.children import preload
from placement_advisor.testbed.testbed import Testbed

# Products of the reference size, of which one takes 0.2 ms on a core at rest.
RESTS = (1, 2, 5, 10, 20, 80)
_STEPS = 60
_LIMIT_S = 300.0

rested_devices = RemoteModule("rested_devices")


def measure(rests: tuple[int, ...]) -> list[tuple[float, ...]]:
    """Return the start, and both errands, in µs by rest; runs in the client of a testbed."""
    from placement_advisor.tf.run import runner
    from placement_advisor.tf.run.graph_timing import (
        GraphTimer,
        errand_after_rest,
        nothing,
        products,
    )

    first, other = tuple(runner._devices)[:2]
    bench = GraphTimer(runner._runtime, runner._devices, {})
    rows = []
    for rest in rests:
        alone = {"near": nothing(first), "far": nothing(other)}
        before = products(first, rest) if rest else None
        times = bench.times(alone, rounds=10, before=before)
        start_ns = times["far"].step_ns - times["near"].step_ns
        errands = bench.values(errand_after_rest(first, other, rest), _STEPS)
        quarters = [quantiles(each, n=4) for each in zip(*errands, strict=True)]
        rows.append((start_ns / 1e3, *(quarter * 1e6 for each in quarters for quarter in each)))
    return rows


def main() -> None:
    """Print a row for each rest."""
    preload()
    with tempfile.TemporaryDirectory() as folder:
        testbed = Testbed(plan_testbed(TestbedKind.WORKERS, 2), scratch=Path(folder))
        try:
            testbed.start()
            found = testbed.call(rested_devices.measure, RESTS, time_limit_s=_LIMIT_S)
        finally:
            testbed.close()
    if isinstance(found, CallFailure):
        raise SystemExit(found.message)
    print("| rest, products | start and end of a further device | errand (quartiles) | next one |")
    print("|---|---|---|---|")
    for rest, (start_us, *errands) in zip(RESTS, found, strict=True):
        first, second = (
            f"{middle:.0f} µs ({low:.0f} to {high:.0f})"
            for low, middle, high in (errands[:3], errands[3:])
        )
        print(f"| {rest} | {start_us:.0f} µs | {first} | {second} |")


if __name__ == "__main__":
    main()
