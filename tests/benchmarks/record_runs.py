"""Records models and what their splits took, to try predictions on without running again.

    PYTHONPATH=tests python tests/benchmarks/record_runs.py FOLDER SEED|SAMPLE…
    PYTHONPATH=tests python tests/benchmarks/record_runs.py FOLDER --fresh 24

For each seed of a random model, or name of a sample (trained), a file in the folder, which
`Recording.load` reads: the graph, what ops cost on one device, and every split with its rounds.
Splits are the families that place ops, two more cuts, and what the search finds; the whole step on
the second device is beside them. A model whose halves of rounds differ by more than 5 % is measured
up to three times; the steadiest of these counts.
Files are pickles, for whoever wrote them.
"""

import argparse
import gzip
import pickle
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from model_tracing import SAMPLES, on_workers
from proposals import proposals
from random_models import random_model

from placement_advisor.candidates import references
from placement_advisor.defaults import BASELINE
from placement_advisor.graph.placement import Placement
from placement_advisor.measurement.measurement import paired_ratios
from placement_advisor.processes.children import preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort
from placement_advisor.testbed.benchmark import Benchmark, SilentProgress, time_in_rounds
from placement_advisor.testbed.cost_measurement import (
    CostMeasurement,
    calibration_of,
    measure_costs,
)
from placement_advisor.tf.answers import Traced

# All of the step on the second device.
ELSEWHERE = "elsewhere"
_SEEDS = 10**6
# Halves of the rounds that are no farther apart tell of a machine at rest.
_STEADY = 0.05
_TRIES = 3
_STEPS = 4
_EFFORT = Effort(units=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A placement that ran, with what its steps took in each round, in ns."""

    placement: Placement
    rounds: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A model and all that was learned about it; ``splits`` has the single device too."""

    name: str
    traced: Traced
    costing: CostMeasurement
    splits: Mapping[str, Split]

    def save(self, path):
        """Write a file."""
        with gzip.open(path, "wb", compresslevel=3) as file:
            pickle.dump(self, file)

    @classmethod
    def load(cls, path):
        """Read what `save` wrote."""
        with gzip.open(path, "rb") as file:
            return pickle.load(file)

    def ratio(self, label, rounds=slice(None)):
        """Return what a split took, over the single device in the same rounds."""
        alone, split = self.splits[BASELINE], self.splits[label]
        return median(paired_ratios(list(alone.rounds[rounds]), list(split.rounds[rounds])))

    def halves(self):
        """Return how far apart the ratios of half of the rounds each are, the worst of all."""
        labels = [label for label in self.splits if label != BASELINE]
        pairs = [
            (self.ratio(n, slice(0, None, 2)), self.ratio(n, slice(1, None, 2))) for n in labels
        ]
        return max((abs(odd / even - 1) for odd, even in pairs), default=0.0)


def recorded(path, mode, rounds):
    """Run a model and its splits; None if it has no such mode."""
    with on_workers(path, mode) as running:
        if running is None:
            return None
        traced, testbed = running
        calibration = calibration_of(testbed, SilentProgress())
        trial = Benchmark(testbed, steps=_STEPS, watcher=SilentProgress())
        costing = measure_costs(trial, testbed.plan, traced, calibration)
        costs = costing.costs.everywhere(costing.cluster)
        simulator = Simulator(traced.graph, costs, costing.cluster)
        second = testbed.plan.devices[1].name
        trial.enter(replace(references.on_device(traced.graph, second), label=ELSEWHERE))
        for placement in proposals(traced.graph, costing, simulator, _EFFORT):
            trial.enter(placement)
        time_in_rounds(trial, rounds, lambda _: None)
    splits = {
        label: Split(placement=entry.placement, rounds=entry.rounds)
        for label, entry in trial.entries.items()
        if entry.failure is None
    }
    return Recording(name=path.stem, traced=traced, costing=costing, splits=splits)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="SEED|SAMPLE")
    parser.add_argument("--fresh", type=int, default=0, help="draw so many further seeds at random")
    parser.add_argument("--rounds", type=int, default=16)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    preload()
    drawn = [str(secrets.randbelow(_SEEDS)) for _ in range(options.fresh)]
    if drawn:
        print(f"seeds drawn: {' '.join(drawn)}", flush=True)
    for name in [*options.models, *drawn]:
        path, mode = _model(name, options.folder)
        best = _steadiest(path, mode, options.rounds)
        if best is None:
            print(f"{name} has no mode {mode}", flush=True)
            continue
        best.save((options.folder / path.name).with_suffix(".recording"))
        ratios = {label: f"{best.ratio(label):.3f}" for label in best.splits}
        print(f"{name}: halves {best.halves():.1%}, {ratios}", flush=True)


def _steadiest(path, mode, rounds):
    best = None
    for _ in range(_TRIES):
        found = recorded(path, mode, rounds)
        if found is None:
            return None
        if best is None or found.halves() < best.halves():
            best = found
        if best.halves() <= _STEADY:
            break
    return best


def _model(name, folder):
    """Return the file of a model and the mode in which it is recorded."""
    if not name.isdigit():
        return SAMPLES / f"{name}.py", "train"
    model = random_model(int(name))
    path = folder / f"random_{name}.py"
    path.write_text(model.text)
    return path, "train" if model.training else "infer"


if __name__ == "__main__":
    # Pickles name the module of a class, which is another one in a script.
    import record_runs

    record_runs.main()
