"""What steps take per op beside their ops: the figures behind `costing.MAX_DISPATCH_NS`.

    PYTHONPATH=tests python tests/benchmarks/launches.py [SAMPLE...]

Each sample runs on one worker, as before each analysis; without the limit, what its step takes
longer than its profiled ops is all shared out over these. Steps of small ops tell what launching
takes: in others it drowns in what ops take longer or shorter without the profiler.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from model_tracing import traced_model
from silent import Silent

from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.children import preload
from placement_advisor.testbed import cost_measurement
from placement_advisor.testbed.benchmark import Benchmark
from placement_advisor.testbed.testbed import STEP, Testbed

SAMPLES = Path(__file__).parents[2] / "sample_models"
SMALL_OPS = ("deep_chain", "polynomial_fit", "mixture_of_experts", "lstm_seq2seq")


def launch_ns(path: Path) -> tuple[int, int, int]:
    """Return the number of ops, their mean time, and what a launch took."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        traced = traced_model(path, "train", bundle)
        assert traced is not None
        plan = plan_testbed(TestbedKind.WORKERS, 2)
        testbed = Testbed(plan, scratch=scratch)
        testbed.add_program(STEP, bundle, traced.graph)
        try:
            testbed.start()
            calibration = cost_measurement.calibration_of(testbed, Silent())
            trial = Benchmark(testbed, steps=4, watcher=Silent())
            found = cost_measurement.measure_costs(trial, plan, traced, calibration)
        finally:
            testbed.close()
    count = len(found.costs.costs)
    return count, round(found.costs.total_ns / count), found.cluster.devices[0].launch_overhead_ns


def main() -> None:
    """Print a row for each sample."""
    preload()
    cost_measurement.MAX_DISPATCH_NS = sys.maxsize
    print("| sample | ops | mean op | beside each op |\n|---|---|---|---|")
    for name in sys.argv[1:] or SMALL_OPS:
        count, op_ns, beside_ns = launch_ns(SAMPLES / f"{name}.py")
        print(
            f"| {name} | {count:,} | {op_ns / 1e3:.2f} µs | {beside_ns / 1e3:.2f} µs |", flush=True
        )


if __name__ == "__main__":
    main()
