"""The stages after tracing: costs, candidates, predictions, runs, and the analysis of it all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.advice.findings.evidence import Evidence, gather
from placement_advisor.advice.findings.rules import find_all
from placement_advisor.advice.how import how_to_split
from placement_advisor.advice.recommend import recommend
from placement_advisor.analysis import (
    Analysis,
    Candidate,
    Failure,
    FailureKind,
    ModelSummary,
    TestbedSummary,
)
from placement_advisor.batch_sizes import batch_points
from placement_advisor.candidates.families import propose
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.children import Child, ChildFailure
from placement_advisor.compare import WORTHWHILE_RATIO
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.costing import calibrated, measure_costs
from placement_advisor.elsewhere import ASSUMED_DOUBT, Prices
from placement_advisor.fingerprints import testbed_fingerprint
from placement_advisor.placement import Placement
from placement_advisor.report.write import write_prediction
from placement_advisor.simulate.break_even import break_even
from placement_advisor.simulate.engine import Simulator
from placement_advisor.simulate.peak import shortages
from placement_advisor.simulate.sensitivity import Doubt, Sensitivity
from placement_advisor.tf.answers import RunFailure
from placement_advisor.trial import BASELINE, Entry, Trial, failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.clock import Clock
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.cost.table import CostTable
    from placement_advisor.devices import Cluster
    from placement_advisor.elsewhere import Elsewhere
    from placement_advisor.graph import OpGraph
    from placement_advisor.input_timing import InputTiming
    from placement_advisor.model_source import ModelSource
    from placement_advisor.simulate.break_even import BreakEven
    from placement_advisor.simulate.schedule import Schedule
    from placement_advisor.simulate.sensitivity import PredictedRatio
    from placement_advisor.testbed import Testbed, TestbedKind, TestbedPlan
    from placement_advisor.tf.answers import Traced
    from placement_advisor.trial import Watcher

_AS_IS = "placement_advisor.tf.as_is"
_INPUT_TIMER = "placement_advisor.tf.input_timer"
# A pipeline is timed for a few seconds; one batch that takes most of a minute is a hang.
_INPUT_LIMIT_S = 60.0
# Where both were measured: meant to hold nine in ten ratios (docs/cost-model.md: how many it did).
MEASURED_DOUBT = Doubt(copies=1.5, launches=1.5, ops=1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked; see its help."""

    source: ModelSource
    devices: int
    hardware: str | None
    costs: Path | None
    testbed: TestbedKind | None
    candidates: tuple[str, ...]
    steps: int
    rounds: int
    run: bool
    output: Path


class Study:
    """The stages after tracing, with what they have found so far."""

    def __init__(
        self,
        options: AnalyzeOptions,
        plan: TestbedPlan,
        traced: Traced,
        staging: Path,
        clock: Clock,
        watcher: Watcher,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Take what was asked, planned and traced, and what is to be predicted for and not run."""
        self._elsewhere = elsewhere
        self._options, self._plan, self._traced = options, plan, traced
        self._staging, self._clock, self._watcher = staging, clock, watcher
        self._devices = tuple(device.name for device in plan.devices)
        self._cluster: Cluster | None = None
        self._proposed: dict[str, Placement | NotApplicable] = {}
        self._simulator: Simulator | None = None
        self._sensitivity: Sensitivity | None = None
        self._predicted: dict[str, Schedule] = {}
        self._ratios: dict[str, PredictedRatio] = {}
        self._trial: Trial | None = None
        self._as_is: list[int] = []
        self._batch_points: tuple[Throughput, ...] = ()
        self._as_is_failed = False
        self._input_timing: InputTiming | None = None
        self._warnings: list[str] = []

    @property
    def _graph(self) -> OpGraph:
        return self._traced.graph

    def imagine(self) -> None:
        """Predict all candidates from assumed costs; nothing runs."""
        if self._elsewhere is not None:
            prices = self._elsewhere.prices(self._traced)
        else:
            cluster = assumed_cluster(self._options.devices)
            costs = roofline_by_place(self._graph, cluster)
            prices = Prices(cluster=cluster, costs=costs, doubt=ASSUMED_DOUBT)
        self._cluster = prices.cluster
        self._warnings += prices.notes
        self._propose(prices.costs, prices.doubt)
        for label in self._placements():
            self._predict(label)

    def run(self, testbed: Testbed, loader: Child) -> None:
        """Predict all candidates from measured costs, then run them."""
        with self._clock.stage("calibrate"):
            self._watcher.working("starting devices", 0, 1)
            testbed.start()
            self._warnings += testbed.warnings
            calibration = calibrated(testbed, self._watcher)
            self._watcher.working("measuring op times on one device", 0, 1)
            self._trial = Trial(testbed, steps=self._options.steps, watcher=self._watcher)
            costing = measure_costs(self._trial, self._plan, self._traced, calibration)
        self._cluster = costing.cluster
        self._propose(costing.costs.everywhere(self._cluster), MEASURED_DOUBT)
        for i, (label, placement) in enumerate(self._placements().items()):
            self._predict(label)
            self._watcher.working("preparing", i, len(self._placements()), label)
            if label != BASELINE and self._too_large(label) is None:
                self._trial.enter(placement)
        with self._clock.stage("run"):
            self._time_as_is(loader, 0)
            self._as_is.clear()  # The first call traces.
            self._trial.race(self._options.rounds, lambda number: self._time_as_is(loader, number))
            self._time_input(loader)
            self._watcher.working("timing other batch sizes", 0, 1)
            self._batch_points = batch_points(loader, self._traced.batch_size, self._as_is)
        loader.close()
        with self._clock.stage("profile"):
            self._trial.profile_all()
        testbed.close()

    def analysis(self) -> Analysis:
        """Put everything together."""
        candidates = self._candidates()
        testbed = self._testbed_summary()
        as_is = tuple(self._as_is) or None
        recommendation = recommend(candidates, testbed, as_is)
        recommended = self._placements().get(recommendation.candidate or "")
        return Analysis(
            advisor_version=__version__,
            tensorflow_version=self._traced.tensorflow_version,
            model=self._model_summary(),
            testbed=testbed,
            as_is=as_is,
            candidates=candidates,
            recommendation=recommendation,
            findings=find_all(self._evidence(candidates)),
            warnings=tuple(self._warnings + _failures_in_words(candidates)),
            break_even=self._break_even(),
            input_timing=self._input_timing,
            timings_ns=self._clock.timings_ns(),
            how=None if recommended is None else how_to_split(self._graph, recommended),
        )

    def _evidence(self, candidates: tuple[Candidate, ...]) -> Evidence:
        """Return what rules may look at."""
        assert self._cluster is not None
        assert self._simulator is not None
        return gather(
            graph=self._graph,
            cluster=self._cluster,
            simulator=self._simulator,
            candidates=candidates,
            requested_device_of=self._traced.requested_device_of,
            line_of=self._traced.line_of,
            batch_size=self._traced.batch_size,
            batch_points=self._batch_points,
        )

    def _propose(self, costs: Mapping[str, CostTable], doubt: Doubt) -> None:
        """Find the candidates, and make ready to simulate them with costs that may be wrong."""
        assert self._cluster is not None
        names = (BASELINE, *(n for n in self._options.candidates if n != BASELINE))
        with self._clock.stage("simulate"):
            self._proposed = propose(names, self._graph, costs, self._cluster)
            folder = self._staging / "placements"
            folder.mkdir()
            for label, placement in self._placements().items():
                placement.check(self._graph, self._cluster.place_names())
                hosts = (host.name for host in self._cluster.hosts)
                used = (*self._devices, *(h for h in hosts if h in placement.device_of.values()))
                placement.save(folder / f"{label}.json", self._graph, used)
            alone = self._placements()[BASELINE]
            self._simulator = Simulator(self._graph, costs, self._cluster)
            self._sensitivity = Sensitivity(self._simulator, self._cluster, alone, doubt)

    def _placements(self) -> dict[str, Placement]:
        return {n: p for n, p in self._proposed.items() if isinstance(p, Placement)}

    def _predict(self, label: str) -> None:
        """Simulate a candidate and write the prediction down, before it runs."""
        assert self._simulator is not None
        assert self._sensitivity is not None
        placement = self._placements()[label]
        with self._clock.stage("simulate"):
            schedule = self._simulator.schedule(placement)
            self._predicted[label] = schedule
            if label != BASELINE:
                self._ratios[label] = self._sensitivity.ratio(placement)
            path = self._staging / "predictions" / f"{label}.json"
            write_prediction(schedule, self._ratios.get(label), path)

    def _too_large(self, label: str) -> Failure | None:
        """Return why a predicted candidate does not fit, None if it does."""
        assert self._cluster is not None
        short = shortages(self._predicted[label].peak_memory, self._cluster.devices)
        message = "; ".join(map(str, short))
        return Failure(kind=FailureKind.DOES_NOT_FIT, message=message) if short else None

    def _time_as_is(self, loader: Child, number: int) -> None:
        if self._as_is_failed:
            return
        answer = loader.call(
            f"{_AS_IS}:run_as_is",
            number,
            self._options.steps,
            time_limit_s=self._options.source.time_limit_s,
        )
        if isinstance(answer, ChildFailure | RunFailure):
            self._as_is_failed = True
            self._as_is = []  # Some rounds do not compare with candidates that ran in all.
            self._warnings.append(f"as-is was not timed: {failure_of(answer).message}")
        else:
            self._as_is += answer

    def _time_input(self, loader: Child) -> None:
        """Time the user's dataset alone; last of all that the loader does, as it may hang."""
        if loader.failure() is not None:  # A step of theirs ended it, which has been said.
            return
        self._watcher.working("timing the dataset alone", 0, 1)
        answer = loader.call(f"{_INPUT_TIMER}:time_input", time_limit_s=_INPUT_LIMIT_S)
        if isinstance(answer, ChildFailure | RunFailure):
            self._warnings.append(f"the dataset was not timed alone: {answer.message}")
        else:
            self._input_timing = answer

    def _break_even(self) -> BreakEven | None:
        """Sweep what would have to change for a split to win, of those that fit."""
        assert self._cluster is not None
        assert self._simulator is not None
        fits = {n: p for n, p in self._placements().items() if self._too_large(n) is None}
        baseline = fits.pop(BASELINE, None)
        if baseline is None:
            return None
        with self._clock.stage("simulate"):
            return break_even(
                self._graph,
                self._cluster,
                self._simulator,
                baseline=baseline,
                splits=tuple(fits.values()),
                batch_size=self._traced.batch_size,
                worthwhile_ratio=WORTHWHILE_RATIO,
            )

    def _candidates(self) -> tuple[Candidate, ...]:
        entries = self._trial.entries if self._trial else {}
        comparisons = self._trial.comparisons() if self._trial else {}
        return tuple(
            self._candidate(name, proposal, entries.get(name), comparisons)
            for name, proposal in self._proposed.items()
        )

    def _candidate(
        self,
        name: str,
        proposal: Placement | NotApplicable,
        entry: Entry | None,
        comparisons: Mapping[str, Any],
    ) -> Candidate:
        if isinstance(proposal, NotApplicable):
            return Candidate(
                name=name,
                family=proposal.family,
                rationale=proposal.reason,
                placement=None,
                predicted=None,
                measured=None,
                comparison=None,
                failure=Failure(kind=FailureKind.NOT_APPLICABLE, message=proposal.reason),
            )
        profile_run = self._keep_profile(name, entry) if entry and entry.files else None
        return Candidate(
            name=name,
            family=proposal.family,
            rationale=proposal.rationale,
            placement=proposal,
            by_layer=proposal.by_layer(self._graph),
            predicted=self._predicted.get(name),
            predicted_ratio=self._ratios.get(name),
            measured=entry.measurement(profile_run) if entry else None,
            comparison=comparisons.get(name),
            failure=entry.failure if entry else self._too_large(name),
        )

    def _keep_profile(self, name: str, entry: Entry) -> str:
        """Copy the raw profiles to where TensorBoard looks; return the run's folder."""
        assert entry.files is not None
        run = Path("tensorboard") / "plugins" / "profile" / name
        folder = self._staging / run
        folder.mkdir(parents=True, exist_ok=True)
        for host, path in {**entry.files.devices, "client": entry.files.client}.items():
            shutil.copy2(path, folder / f"{host.replace(':', '-')}.xplane.pb")
        return str(run)

    def _model_summary(self) -> ModelSummary:
        return ModelSummary(
            path=self._options.source.path,
            name=self._traced.name,
            mode=self._traced.mode,
            batch_size=self._traced.batch_size,
            ops=len(self._graph),
            edges=len(self._graph.edges),
            parameter_bytes=self._graph.parameter_bytes,
            edge_bytes_known_share=self._graph.edge_bytes_known_share,
            chosen=self._traced.chosen,
        )

    def _testbed_summary(self) -> TestbedSummary:
        assert self._cluster is not None
        return TestbedSummary(
            kind=self._plan.kind.value,
            stand_in=self._plan.stand_in,
            description=self._plan.description,
            cluster=self._cluster,
            fingerprint=testbed_fingerprint(self._plan),
            not_run=self._plan.not_run,
        )


def _failures_in_words(candidates: Sequence[Candidate]) -> list[str]:
    return [
        f"{candidate.name} has no result: {candidate.failure.kind}: {candidate.failure.message}"
        for candidate in candidates
        if candidate.failure and candidate.failure.kind is not FailureKind.NOT_APPLICABLE
    ]
