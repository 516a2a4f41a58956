"""Predicted against measured: every sample, trained and inferred, under all its candidates.

    PYTHONPATH=tests python tests/benchmarks/fidelity.py

For each model, on the `workers` testbed: calibrate it (nothing of the model runs), run the model on
one device to learn what its ops cost, predict every candidate; only
then run the candidates, in interleaved rounds. Compared is the predicted ratio to `single` with the
measured one, taken within rounds. Beside the advisor's own candidates, two more cuts of each model
are made here: `halves` of its work by layer, and a `sandwich` of thirds. Models that nobody tuned
for are measured by `record_runs` and `recorded_errors`.

Printed are the errors, by family, next to how well the measurement repeats itself (the ratio of the
even rounds against that of the odd ones); how many ratios lie in their predicted range; whether the
order of candidates is kept where their intervals do not overlap; the regret of whoever trusts the
prediction, measured afresh; copies, predicted and counted.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from machine_facts import machine_facts
from model_tracing import SAMPLES, on_workers
from proposals import proposals

from placement_advisor.analysis.doubts import MEASURED_DOUBT
from placement_advisor.candidates import alternating, towers
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.verdict import compare, paired_ratios
from placement_advisor.processes.children import preload
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.added_rounds import time_in_rounds
from placement_advisor.testbed.costing import calibrated, measure_costs
from placement_advisor.testbed.trial import Entry, SilentWatcher, Trial

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.tf.answers import Traced

# Those that the samples' figures in docs/ are of.
_FAMILIES = (towers.FAMILY, alternating.FAMILY)
_STEPS = 4
_FRESH_ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One candidate of one model. ``odd`` and ``even`` are the ratios of half of the rounds each.

    ``least`` and ``most`` are the ends of the predicted range, ``low`` and ``high`` those of the
    measured interval. ``fresh`` is the ratio in rounds of their own, after all others.
    """

    model: str
    candidate: str
    predicted: float
    least: float
    most: float
    measured: float
    low: float
    high: float
    odd: float
    even: float
    fresh: float
    copies_predicted: int
    copies_counted: int | None

    @property
    def error(self) -> float:
        """How far the prediction is off, in proportion."""
        return self.predicted / self.measured - 1

    @property
    def is_in_range(self) -> bool:
        """Whether the predicted range holds what was measured."""
        return self.least <= self.measured <= self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All candidates of a model that use more than one device."""

    name: str
    single_ns: int
    single_predicted_ns: int
    pairs: tuple[Pair, ...]


_TOLERANCE = 0.2


def main() -> None:
    """Measure the samples named on the command line, all without a name."""
    names = sorted(path.stem for path in SAMPLES.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samples", nargs="*", metavar="SAMPLE", help=f"of {', '.join(names)}")
    parser.add_argument("--modes", default="train,infer", help="of samples: train,infer")
    parser.add_argument("--rounds", type=int, default=20, help="timing rounds per model (20)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw predicted over measured into this file")
    options = parser.parse_args()
    preload()
    models = []
    for model in _samples(options.samples or names, options.modes.split(","), options.rounds):
        _print(model)
        models.append(model)
    _print_summary(models)
    if options.json:
        content = {"machine": machine_facts(), "models": [asdict(model) for model in models]}
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    if options.plot:
        points = [(pair.candidate, pair.measured, pair.predicted) for pair in _pairs(models)]
        _scatter(points, options.plot)


def _samples(names: Sequence[str], modes: Sequence[str], rounds: int) -> Iterator[Model]:
    for name in names:
        for mode in modes:
            model = predicted_and_run(SAMPLES / f"{name}.py", mode, rounds)
            if model is not None:
                yield model


def _pairs(models: Iterable[Model]) -> list[Pair]:
    return [pair for model in models for pair in model.pairs]


def _print(model: Model) -> None:
    off = model.single_predicted_ns / model.single_ns - 1
    print(f"\n{model.name}: single {model.single_ns / 1e6:.2f} ms, predicted {off:+.0%}")
    for pair in model.pairs:
        print(
            f"  {pair.candidate:<12} predicted {pair.predicted:6.3f}  measured {pair.measured:6.3f}"
            f" ({pair.low:.3f} to {pair.high:.3f})  error {pair.error:+6.1%}"
            f"  repeated {pair.odd / pair.even - 1:+5.1%}"
            f"  copies {pair.copies_predicted} / {pair.copies_counted}",
            flush=True,
        )


def _print_summary(models: Sequence[Model]) -> None:
    pairs = _pairs(models)
    by_family: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_family[pair.candidate].append(pair)
    print(f"\n{'':<37}errors{'':>20}repeated")
    print(f"{'family':<14}{'pairs':>6}{'median':>9}{'p90':>8}{'signed':>9}{'median':>12}{'p90':>8}")
    for family, of in [*by_family.items(), ("all", pairs)]:
        errors = np.abs([pair.error for pair in of])
        repeats = np.abs([pair.odd / pair.even - 1 for pair in of])
        print(
            f"{family:<14}{len(of):>6}{np.median(errors):>9.1%}{np.quantile(errors, 0.9):>8.1%}"
            f"{np.median([pair.error for pair in of]):>+9.1%}"
            f"{np.median(repeats):>12.1%}{np.quantile(repeats, 0.9):>8.1%}"
        )
    held = sum(pair.is_in_range for pair in pairs)
    width = np.median([pair.most / pair.least for pair in pairs])
    print(
        f"\nranges: {held} of {len(pairs)} measured ratios lie in the predicted one, "
        f"whose ends are {width:.2f}× apart (median)"
    )
    wrong = [each for model in models for each in _order_broken(model)]
    print(f"\norder of candidates: {len(wrong)} pairs predicted the wrong way round")
    for line in wrong:
        print(f"  {line}")
    print("regret of the prediction:")
    for model in models:
        trusted = min(
            [(1.0, 1.0, BASELINE), *((p.predicted, p.fresh, p.candidate) for p in model.pairs)]
        )
        best = min(
            [(1.0, 1.0, BASELINE), *((p.measured, p.fresh, p.candidate) for p in model.pairs)]
        )
        regret = trusted[1] / best[1] - 1
        print(f"  {model.name:<30} trusts {trusted[2]:<12} best {best[2]:<12} {regret:+.1%}")
    uncounted = [p for p in pairs if p.copies_predicted != p.copies_counted]
    print(f"copies per step: {len(pairs) - len(uncounted)} of {len(pairs)} predicted as counted")
    for pair in uncounted:
        print(f"  {pair.model} {pair.candidate}: {pair.copies_predicted} / {pair.copies_counted}")


def _order_broken(model: Model) -> Iterable[str]:
    """Yield the pairs of candidates whose intervals are apart, and that were predicted reversed."""
    rows = [(BASELINE, 1.0, 1.0, 1.0)]
    rows += [(pair.candidate, pair.predicted, pair.low, pair.high) for pair in model.pairs]
    for one, other in combinations(rows, 2):
        faster, slower = sorted((one, other), key=lambda row: row[2])
        if faster[3] < slower[2] and faster[1] > slower[1]:
            yield f"{model.name}: {faster[0]} before {slower[0]}"


def predicted_and_run(path: Path, mode: str, rounds: int) -> Model | None:
    """Return what came out for one model; None if it has no such mode."""
    with on_workers(path, mode) as running:
        if running is None:
            return None
        traced, testbed = running
        return _compared(f"{path.stem}, {mode}", testbed, traced, rounds)


def _compared(name: str, testbed: Testbed, traced: Traced, rounds: int) -> Model:
    graph, plan = traced.graph, testbed.plan
    watcher = SilentWatcher()
    calibration = calibrated(testbed, watcher)
    trial = Trial(testbed, steps=_STEPS, watcher=watcher)
    costing = measure_costs(trial, plan, traced, calibration)
    cluster = costing.cluster
    simulator = Simulator(graph, costing.costs.everywhere(cluster), cluster)
    alone_there = trial.entries[BASELINE].placement
    placements = [alone_there, *proposals(graph, costing, simulator, _FAMILIES)]
    sensitivity = Sensitivity(simulator, alone_there, MEASURED_DOUBT)
    predicted: dict[str, Schedule] = {}
    ranges: dict[str, PredictedRatio] = {}
    for placement in placements:
        schedule = simulator.schedule(placement)
        predicted[placement.label] = schedule
        ranges[placement.label] = sensitivity.ratio(placement)
        if placement.label != BASELINE:
            trial.enter(placement)
    time_in_rounds(trial, rounds, lambda _: None)
    done = len(trial.entries[BASELINE].rounds)
    time_in_rounds(trial, _FRESH_ROUNDS, lambda _: None)
    trial.profile_all()
    alone = trial.entries[BASELINE]
    return Model(
        name=name,
        single_ns=round(median(alone_step for turn in alone.rounds[:done] for alone_step in turn)),
        single_predicted_ns=predicted[BASELINE].step_ns,
        pairs=tuple(
            _pair(name, alone, entry, predicted[label], ranges[label], done)
            for label, entry in trial.entries.items()
            if label != BASELINE and entry.failure is None
        ),
    )


def _pair(
    model: str,
    alone: Entry,
    entry: Entry,
    predicted: Schedule,
    predicted_range: PredictedRatio,
    done: int,
) -> Pair:
    def ratio(rounds: slice) -> float:
        return median(paired_ratios(alone.rounds[rounds], entry.rounds[rounds]))

    comparison = compare(BASELINE, alone.rounds[:done], entry.rounds[:done], among=1)
    assert comparison is not None
    whole = comparison.ratio
    return Pair(
        model=model,
        candidate=predicted.label,
        predicted=predicted_range.ratio,
        least=predicted_range.low,
        most=predicted_range.high,
        measured=whole.median,
        low=whole.low,
        high=whole.high,
        odd=ratio(slice(0, done, 2)),
        even=ratio(slice(1, done, 2)),
        fresh=ratio(slice(done, None)),
        copies_predicted=predicted.transfer_count,
        copies_counted=entry.profile.transfer_count if entry.profile else None,
    )


def _scatter(points: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Draw points of (family, measured, predicted) on logarithmic axes, with a band of ±20 %."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
    ratios = [ratio for _, *pair in points for ratio in pair]
    ends = (min(ratios) * 0.9, max(ratios) * 1.1)
    axes.plot(ends, ends, color="0.4", linewidth=1)
    axes.fill_between(
        ends,
        [end * (1 - _TOLERANCE) for end in ends],
        [end * (1 + _TOLERANCE) for end in ends],
        color="0.92",
        label="within 20 %",
    )
    for family in dict.fromkeys(family for family, _, _ in points):
        of = [(measured, predicted) for name, measured, predicted in points if name == family]
        axes.scatter(*zip(*of, strict=True), s=24, label=family)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("measured step time over that of single")
    axes.set_ylabel("predicted (simulated) step time over that of single")
    axes.set_aspect("equal")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
