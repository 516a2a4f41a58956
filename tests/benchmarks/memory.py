"""Peak memory per device: predicted, against what TensorFlow's allocator reports.

A sample runs on the `workers` testbed, under every candidate and two more cuts, one at a time and
each alone in its workers, which have the allocator of accelerators: it reports every piece.

Compared is the peak of the simulated schedule with what the step asked for: what it held at its
worst moment (median of the profiled steps) above what lay there between steps, plus the state that
the placement puts there, which is known.
"""

from itertools import product
from types import SimpleNamespace

import numpy as np
import typer
from model_tracing import Names, models_of, on_workers, proposed
from tables import spread, table_head, table_row

from placement_advisor.candidates import references, towers
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.processes.children import preload
from placement_advisor.profile.steps import host_lines, step_windows
from placement_advisor.profile.worker_steps import measured_memory
from placement_advisor.profile.xplane import space_file
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress
from placement_advisor.testbed.cost_measurement import calibration_of, measure_costs
from placement_advisor.tf.calls import runner
from placement_advisor.units import format_bytes

# Those that the figures in docs/ are of.
_FAMILIES = (references.SINGLE, towers.TOWERS, references.ALTERNATING)
_TARGET = 0.10
# Scalars come and go with threads: below this two peaks are the same.
_EQUAL = 0.01


def main(samples: Names = None, modes: str = "train,infer"):
    preload()
    sizes = "predicted | asked for | from | to"
    print(table_head(f"model | candidate | device | {sizes} | error | at the peak"))
    rows = []
    for path, mode in product(models_of(samples), modes.split(",")):
        with on_workers(path, mode) as running:
            if running:
                rows += _rows(f"{path.stem}, {mode}", *running)
    if not rows:
        return
    errors = np.abs([row.error for row in rows])
    middle, tenth = spread(errors)
    in_range = np.mean([row.is_in_range or abs(row.error) <= _TARGET for row in rows])
    print(
        f"\n{len(rows)} peaks of {len({row.model for row in rows})} models: "
        f"{np.mean(errors <= _TARGET):.0%} within {_TARGET:.0%} of what the median step asked for, "
        f"{in_range:.0%} so or between the least and the most that a step asked for\n"
        f"error median {middle}, 90th percentile {tenth}, largest {errors.max():.1%}"
    )


def _rows(model, traced, testbed):
    graph = traced.graph
    watcher = SilentProgress()
    trial = Benchmark(testbed, steps=1, watcher=watcher)
    costing = measure_costs(trial, testbed.plan, traced, calibration_of(testbed, watcher))
    for label in trial.entries:
        testbed.call(runner.discard, label)
    simulator = Simulator(graph, costing.costs.everywhere(costing.cluster), costing.cluster)
    for placement in proposed(_FAMILIES, graph, costing).values():
        if isinstance(placement, NotApplicable):
            continue
        predicted = simulator.schedule(placement).peak_memory
        entry = trial.enter(placement)
        if entry.failure is None:
            trial.profile(entry)
        if entry.failure is not None:
            raise SystemExit(f"{model}, {placement.label}: {entry.failure.message}")
        windows = step_windows(space_file(entry.files.client))
        for device, path in entry.files.devices.items():
            measured = measured_memory(host_lines(space_file(path)), windows)
            if measured:
                yield _row(model, placement.label, device, predicted[device], measured)
        testbed.call(runner.discard, placement.label)


def _row(model, candidate, device, predicted, measured):
    """Print what a device held under a candidate, and return how far the prediction is off.

    What the step held at its worst moment is as it was asked for.
    """
    asked = (predicted.resident_bytes + of(measured) for of in (np.median, min, max))
    median_bytes, least, most = map(round, asked)
    error = predicted.size_bytes / median_bytes - 1
    sizes = map(format_bytes, (predicted.size_bytes, median_bytes, least, most))
    at_peak = ", ".join(each.name for each in predicted.contributors[:2])
    print(table_row(model, candidate, device, *sizes, f"{error:+.1%}", at_peak), flush=True)
    step_bytes = predicted.size_bytes - predicted.resident_bytes
    is_in_range = min(measured) * (1 - _EQUAL) <= step_bytes <= max(measured) * (1 + _EQUAL)
    return SimpleNamespace(model=model, error=error, is_in_range=is_in_range)


if __name__ == "__main__":
    typer.run(main)
