"""Peak memory per device: predicted, against what TensorFlow's allocator reports.

A sample runs on the `workers` testbed, under every candidate and two more cuts, one at a time and
each alone in its workers, which have the allocator of accelerators: it reports every piece.

Compared is the peak of the simulated schedule with what the step asked for: what it held at its
worst moment (median of the profiled steps) above what lay there between steps, plus the state that
the placement puts there, which is known.
"""

import argparse
from dataclasses import dataclass
from itertools import product

import numpy as np
from model_tracing import SAMPLES, on_workers
from proposals import proposed

from placement_advisor.candidates import references, towers
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.processes.children import preload
from placement_advisor.profile.steps import host_lines, step_windows
from placement_advisor.profile.worker_steps import measured_memory
from placement_advisor.profile.xplane import space_file
from placement_advisor.simulator.schedule import PeakMemory
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


@dataclass(frozen=True, slots=True)
class Row:
    """One device under one candidate."""

    model: str
    candidate: str
    device: str
    predicted: PeakMemory
    measured: tuple[int, ...]

    @property
    def asked_bytes(self):
        """What the step held at its worst moment, as asked for."""
        return self.predicted.resident_bytes + round(np.median(self.measured))

    @property
    def error(self):
        """How far the prediction is off, in proportion."""
        return self.predicted.size_bytes / self.asked_bytes - 1

    @property
    def is_in_range(self):
        """Whether some step held as much, or steps held more and less."""
        step_bytes = self.predicted.size_bytes - self.predicted.resident_bytes
        asked = self.measured
        return min(asked) * (1 - _EQUAL) <= step_bytes <= max(asked) * (1 + _EQUAL)


def main():
    names = sorted(path.stem for path in SAMPLES.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"of {', '.join(names)}")
    parser.add_argument("--modes", default="train,infer", help="train,infer")
    options = parser.parse_args()
    preload()
    print(
        f"{'model':<28}{'candidate':<13}{'device':<10}{'predicted':>10}"
        f"{'asked for':>10}{'from':>10}{'to':>10}{'error':>8}  at the peak"
    )
    rows = []
    for name, mode in product(options.samples or names, options.modes.split(",")):
        with on_workers(SAMPLES / f"{name}.py", mode) as running:
            for row in _rows(f"{name}, {mode}", *running) if running else ():
                _print(row)
                rows.append(row)
    _print_summary(rows)


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
                yield Row(model, placement.label, device, predicted[device], measured)
        testbed.call(runner.discard, placement.label)


def _print(row):
    resident_bytes = row.predicted.resident_bytes
    asked = [row.asked_bytes, *(f(row.measured) + resident_bytes for f in (min, max))]
    sizes = "".join(f"{format_bytes(size):>10}" for size in (row.predicted.size_bytes, *asked))
    predicted = ", ".join(each.name for each in row.predicted.contributors[:2])
    print(
        f"{row.model:<28}{row.candidate:<13}{row.device:<10}{sizes}{row.error:>+8.1%}  {predicted}",
        flush=True,
    )


def _print_summary(rows):
    if not rows:
        return
    errors = np.abs([row.error for row in rows])
    in_range = np.mean([row.is_in_range or abs(row.error) <= _TARGET for row in rows])
    print(
        f"\n{len(rows)} peaks of {len({row.model for row in rows})} models: "
        f"{np.mean(errors <= _TARGET):.0%} within {_TARGET:.0%} of what the median step asked for, "
        f"{in_range:.0%} so or between the least and the most that a step asked for\n"
        f"error median {np.median(errors):.1%}, 90th percentile {np.quantile(errors, 0.9):.1%}, "
        f"largest {errors.max():.1%}"
    )


if __name__ == "__main__":
    main()
