"""Records models and what their splits took, and prints how far predictions are off.

    PYTHONPATH=tests python tests/benchmarks/record_runs.py FOLDER [SEED|SAMPLE…] [--fresh 24]

For each seed of a random model, or name of a sample (trained), a file in the folder with
a `Recording`: the graph, what ops cost on one device, and every split with its rounds.
Splits are the families that place ops, two more cuts, and what the search finds; the whole step on
the second device is beside them. A model whose halves of rounds differ by more than 5 % is measured
up to three times; the steadiest of these counts.
Files are pickles, for whoever wrote them.

Then, for all recordings of the folder, errors by kind of split. *Measured* costs are those that one
device showed before any split ran; *assumed* ones are those of ``--no-run``. Beside the errors of
the ratio to ``single`` stands how well that repeats: half of what the even rounds and the odd ones
are apart. Regret is how much longer a step of the placement with the least predicted time takes
than that with the least measured one, by the same rounds, one device included. At the end stands
where errors come from, by model: how far the step of one device, by the times that its ops took
alone, is off from what it took in rounds, and what the errors of its splits have in common, their
median. Then for all: what is left of errors without that, and errors of splits against what one
device took in rounds.
"""

import gzip
import pickle
import secrets
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import typer
from model_tracing import SAMPLES, Names, on_workers, proposals
from random_models import random_model
from tables import spread, table_head, table_row

from placement_advisor.analysis.target_costs import ASSUMED_UNCERTAINTY, MEASURED_UNCERTAINTY
from placement_advisor.candidates import references
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import paired_ratios
from placement_advisor.processes.children import preload
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.effort import Effort
from placement_advisor.testbed import benchmark, cost_measurement
from placement_advisor.tf.answers import Traced

# All of the step on the second device.
ELSEWHERE = "elsewhere"
# Halves of the rounds that are no farther apart tell of a machine at rest.
_STEADY = 0.05
_TRIES = 3
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)

# A placement that ran, with what its steps took in each round, in ns.
Split = namedtuple("Split", "placement rounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A model and all that was learned about it; ``splits`` has the single device too."""

    name: str
    traced: Traced
    costing: cost_measurement.CostMeasurement
    splits: Mapping[str, Split]

    def ratio(self, label, rounds=slice(None)):
        """Return what a split took, over the single device in the same rounds."""
        alone, split = self.splits[BASELINE], self.splits[label]
        return median(paired_ratios(list(alone.rounds[rounds]), list(split.rounds[rounds])))

    def halves(self):
        """Return how far apart the ratios of half of the rounds each are, the worst of all."""
        labels = self.splits.keys() - {BASELINE}
        apart = (abs(self.ratio(n, EVEN) / self.ratio(n, ODD) - 1) for n in labels)
        return max(apart, default=0.0)


def recorded(path, mode, rounds):
    """Run a model and its splits; None if it has no such mode."""
    with on_workers(path, mode) as running:
        if running is None:
            return None
        traced, testbed = running
        calibration = cost_measurement.calibration_of(testbed, benchmark.SilentProgress())
        trial = benchmark.Benchmark(testbed, steps=4, watcher=benchmark.SilentProgress())
        costing = cost_measurement.measure_costs(trial, testbed.plan, traced, calibration)
        costs = costing.costs.everywhere(costing.cluster)
        simulator = Simulator(traced.graph, costs, costing.cluster)
        second = testbed.plan.devices[1].name
        trial.enter(replace(references.on_device(traced.graph, second), label=ELSEWHERE))
        for placement in proposals(traced.graph, costing, simulator, Effort(units=2.0)):
            trial.enter(placement)
        benchmark.time_in_rounds(trial, rounds, lambda _: None)
    splits = {
        label: Split(entry.placement, entry.rounds)
        for label, entry in trial.entries.items()
        if entry.failure is None
    }
    return Recording(name=path.stem, traced=traced, costing=costing, splits=splits)


def main(folder: Path, models: Names = None, fresh: int = 0, rounds: int = 16):
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    drawn = [str(secrets.randbelow(10**6)) for _ in range(fresh)]
    if drawn:
        print(f"seeds drawn: {' '.join(drawn)}", flush=True)
    for name in [*(models or []), *drawn]:
        path, mode = _model(name, folder)
        best = _steadiest(path, mode, rounds)
        if best is None:
            print(f"{name} has no mode {mode}", flush=True)
            continue
        with gzip.open((folder / path.name).with_suffix(".recording"), "wb", 3) as file:
            pickle.dump(best, file)
        ratios = {label: f"{best.ratio(label):.3f}" for label in best.splits}
        print(f"{name}: halves {best.halves():.1%}, {ratios}", flush=True)
    _print_errors(
        [pickle.loads(gzip.decompress(p.read_bytes())) for p in sorted(folder.glob("*.recording"))]
    )


def _steadiest(path, mode, rounds):
    tries = []
    while len(tries) < _TRIES and (not tries or tries[-1].halves() > _STEADY):
        tries.append(recorded(path, mode, rounds))
        if tries[-1] is None:
            return None
    return min(tries, key=lambda recording: recording.halves())


def _model(name, folder):
    """Return the file of a model and the mode in which it is recorded."""
    if not name.isdigit():
        return SAMPLES / f"{name}.py", "train"
    model = random_model(int(name))
    path = folder / f"random_{name}.py"
    path.write_text(model.text)
    return path, "train" if model.training else "infer"


def outcomes(recording):
    """Return the splits of a recording, predicted without any of their runs.

    ``even`` and ``odd`` are the ratios of half of the rounds. Beside them how far the step of one
    device is off, by its own ops, from what it took in rounds.
    """
    graph, cluster = recording.traced.graph, recording.costing.cluster
    alone = recording.splits[BASELINE].placement
    simulator = Simulator(graph, recording.costing.costs.everywhere(cluster), cluster)
    measured = Sensitivity(simulator, alone, MEASURED_UNCERTAINTY)
    steps_ns = [step for turn in recording.splits[BASELINE].rounds for step in turn]
    own_error = float(simulator.step_ns(alone) / np.median(steps_ns) - 1)
    stand_ins = assumed_cluster(len(cluster.devices))
    roofline = Simulator(graph, roofline_by_place(graph, stand_ins), stand_ins)
    assumed = Sensitivity(roofline, alone, ASSUMED_UNCERTAINTY)
    return [
        SimpleNamespace(
            family=label,
            measured=recording.ratio(label),
            even=recording.ratio(label, EVEN),
            odd=recording.ratio(label, ODD),
            by_measured=measured.ratio(split.placement),
            by_assumed=assumed.ratio(split.placement),
        )
        for label, split in recording.splits.items()
        if label not in (BASELINE, ELSEWHERE)
    ], own_error


def regret(of_one_model):
    measured = [1.0, *(each.measured for each in of_one_model)]
    predicted = [1.0, *(each.by_measured.ratio for each in of_one_model)]
    return measured[int(np.argmin(predicted))] / min(measured) - 1


def _print(found, basis):
    print(f"\nby {basis} costs")
    names = "splits | median | p90 | signed | repeats | p90 | in range | ends"
    print(table_head(f"family | {names}"))
    for family in [*sorted({each.family for each in found}), "all"]:
        of = [each for each in found if family in ("all", each.family)]
        ratios = [getattr(each, f"by_{basis}") for each in of]
        off = np.array([r.ratio / each.measured - 1 for r, each in zip(ratios, of, strict=True)])
        repeats = np.array([abs(each.odd / each.even - 1) / 2 for each in of])
        inside = [r.low <= each.measured <= r.high for r, each in zip(ratios, of, strict=True)]
        width = np.median([ratio.high / ratio.low for ratio in ratios])
        told = f"{np.median(off):+.1%}", *spread(repeats), f"{np.mean(inside):.0%}"
        print(table_row(family, len(of), *spread(abs(off)), *told, f"{width:.2f}×"))


def _print_errors(recordings):
    found, alone = zip(*map(outcomes, recordings), strict=True)
    splits = [each for of_one in found for each in of_one]
    _print(splits, "measured")
    _print(splits, "assumed")
    regrets = sorted(regret(of_one) for of_one in found)
    print(f"\nregret: {np.median(regrets):.1%} (median), {regrets[-1]:.1%} at most")
    left, against_rounds = [], []
    for recording, own, of_one in zip(recordings, alone, found, strict=True):
        off = np.log([each.by_measured.ratio / each.measured for each in of_one])
        common = np.median(off)
        left += list(abs(np.expm1(off - common)))
        against_rounds += list(abs(np.expm1(off + np.log1p(own))))
        ratios = (f"{x.family} {x.by_measured.ratio:.2f} / {x.measured:.2f}" for x in of_one)
        print(f"{recording.name}: predicted / measured {', '.join(ratios)}")
        print(f"one device {own:+.1%}, splits {np.expm1(common):+.1%} in common")
    print(
        f"one device {np.median(np.abs(alone)):.1%} off (median), {np.median(alone):+.1%} signed; "
        f"splits without what they have in common {np.median(left):.1%}, "
        f"against what one device took in rounds {np.median(against_rounds):.1%}"
    )


if __name__ == "__main__":
    # Pickles name the module of a class, which is another one in a script.
    import record_runs

    typer.run(record_runs.main)
