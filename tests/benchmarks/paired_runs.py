"""Candidates of a model, predicted and then run on the `workers` testbed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from model_tracing import traced_model
from proposals import proposals
from silent import Silent

from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.candidates import references, towers
from placement_advisor.defaults import BASELINE
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.measurement.measurement import compare, paired_ratios
from placement_advisor.report.analysis_folder import AnalysisFolder
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.benchmark import Benchmark, BenchmarkEntry, time_in_rounds
from placement_advisor.testbed.cost_measurement import calibration_of, measure_costs
from placement_advisor.testbed.testbed import STEP, Testbed

if TYPE_CHECKING:
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.tf.answers import Traced

_DEVICES = 2
# Those that the samples' figures in docs/ are of.
_FAMILIES = (towers.TOWERS, references.ALTERNATING)
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


def predicted_and_run(
    path: Path,
    mode: str,
    rounds: int,
    *,
    only: str | None = None,
) -> Model | None:
    """Return what came out for one model, or one candidate of it; None if it has no such mode.

    See `proposals` for which candidates there are.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        traced = traced_model(path, mode, bundle)
        if traced is None:
            return None
        plan = plan_testbed(TestbedKind.WORKERS, _DEVICES)
        testbed = Testbed(plan, scratch=scratch)
        testbed.add_program(STEP, bundle, traced.graph)
        try:
            testbed.start()
            return _compared(f"{path.stem}, {mode}", testbed, traced, rounds, scratch, only)
        finally:
            testbed.close()


def _compared(
    name: str,
    testbed: Testbed,
    traced: Traced,
    rounds: int,
    scratch: Path,
    only: str | None,
) -> Model:
    graph, plan = traced.graph, testbed.plan
    watcher = Silent()
    calibration = calibration_of(testbed, watcher)
    trial = Benchmark(testbed, steps=_STEPS, watcher=watcher)
    costing = measure_costs(trial, plan, traced, calibration)
    cluster = costing.cluster
    simulator = Simulator(graph, costing.costs.everywhere(cluster), cluster)
    folder = AnalysisFolder(scratch, traced)
    alone_there = trial.entries[BASELINE].placement
    placements = [alone_there, *proposals(graph, costing, simulator, _FAMILIES)]
    sensitivity = Sensitivity(simulator, alone_there, MEASURED_UNCERTAINTY)
    predicted: dict[str, Schedule] = {}
    ranges: dict[str, PredictedRatio] = {}
    for placement in placements:
        if only is not None and placement.label not in (BASELINE, only):
            continue
        schedule = simulator.schedule(placement)
        predicted[placement.label] = schedule
        ranges[placement.label] = sensitivity.ratio(placement)
        folder.prediction(placement.label, schedule, None)
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
    alone: BenchmarkEntry,
    entry: BenchmarkEntry,
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
