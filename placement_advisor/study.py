"""The stages after tracing: costs, candidates, predictions, runs, and the analysis of it all."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.advice.recommend import recommend
from placement_advisor.analysis import (
    Analysis,
    Candidate,
    Failure,
    FailureKind,
    ModelSummary,
    TestbedSummary,
)
from placement_advisor.candidates.families import propose
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.children import Child, ChildFailure
from placement_advisor.cost.links import assumed_cluster, fit_link
from placement_advisor.cost.measured import dispatch_overhead_ns, measured_costs, with_members
from placement_advisor.cost.roofline import STAND_IN_CPU, roofline_costs
from placement_advisor.cost.table import CostTable
from placement_advisor.devices import Cluster
from placement_advisor.errors import TestbedError
from placement_advisor.machine import fingerprint
from placement_advisor.placement import Placement
from placement_advisor.report.write import write_prediction
from placement_advisor.simulate.engine import simulate
from placement_advisor.testbed import Testbed, TestbedKind, TestbedPlan
from placement_advisor.tf.answers import RunFailure
from placement_advisor.trial import BASELINE, Entry, Trial, failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.clock import Clock
    from placement_advisor.graph import OpGraph
    from placement_advisor.model_source import ModelSource
    from placement_advisor.simulate.schedule import Schedule
    from placement_advisor.tf.answers import Traced
    from placement_advisor.trial import Watcher

_AS_IS = "placement_advisor.tf.as_is"
_CALIBRATION_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """What `advisor analyze` was asked."""

    source: ModelSource
    devices: int
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
    ) -> None:
        self._options, self._plan, self._traced = options, plan, traced
        self._staging, self._clock, self._watcher = staging, clock, watcher
        self._devices = tuple(device.name for device in plan.devices)
        self._cluster: Cluster | None = None
        self._proposed: dict[str, Placement | NotApplicable] = {}
        self._predicted: dict[str, Schedule] = {}
        self._trial: Trial | None = None
        self._as_is: list[int] = []
        self._as_is_failed = False
        self._warnings: list[str] = []

    @property
    def _graph(self) -> OpGraph:
        return self._traced.graph

    def imagine(self) -> None:
        """Predict all candidates from assumed costs; nothing runs."""
        self._cluster = assumed_cluster(self._options.devices)
        costs = roofline_costs(self._graph, STAND_IN_CPU)
        self._propose(costs)
        for label in self._placements():
            self._predict(label, costs)

    def run(self, testbed: Testbed, loader: Child) -> None:
        """Predict all candidates from measured costs, then run them."""
        with self._clock.stage("calibrate"):
            self._watcher.working("starting devices", 0, 1)
            testbed.start()
            self._warnings += testbed.warnings
            self._watcher.working("calibrating links", 0, 1)
            self._trial = Trial(testbed, steps=self._options.steps, watcher=self._watcher)
            costs = self._measure_costs(testbed)
        self._propose(costs)
        for i, (label, placement) in enumerate(self._placements().items()):
            self._predict(label, costs)
            self._watcher.working("preparing", i, len(self._placements()), label)
            if label != BASELINE:
                self._trial.enter(placement)
        with self._clock.stage("run"):
            self._time_as_is(loader, 0)
            self._as_is.clear()  # The first call traces.
            self._trial.race(self._options.rounds, lambda number: self._time_as_is(loader, number))
        loader.close()
        with self._clock.stage("profile"):
            self._trial.profile_all()
        testbed.close()

    def analysis(self) -> Analysis:
        """Put everything together."""
        candidates = self._candidates()
        testbed = self._testbed_summary()
        as_is = tuple(self._as_is) or None
        return Analysis(
            advisor_version=__version__,
            tensorflow_version=self._traced.tensorflow_version,
            model=self._model_summary(),
            testbed=testbed,
            as_is=as_is,
            candidates=candidates,
            recommendation=recommend(candidates, testbed, as_is),
            findings=(),
            warnings=tuple(self._warnings + _failures_in_words(candidates)),
            timings_ns=self._clock.timings_ns(),
        )

    def _propose(self, costs: CostTable) -> None:
        names = (BASELINE, *(n for n in self._options.candidates if n != BASELINE))
        with self._clock.stage("simulate"):
            self._proposed = propose(names, self._graph, costs, self._devices)
            folder = self._staging / "placements"
            folder.mkdir()
            for label, placement in self._placements().items():
                placement.check(self._graph, self._devices)
                placement.save(folder / f"{label}.json", self._graph, self._devices)

    def _placements(self) -> dict[str, Placement]:
        return {n: p for n, p in self._proposed.items() if isinstance(p, Placement)}

    def _predict(self, label: str, costs: CostTable) -> None:
        """Simulate a candidate and write the prediction down, before it runs."""
        assert self._cluster is not None
        with self._clock.stage("simulate"):
            schedule = simulate(self._graph, self._placements()[label], costs, self._cluster)
            self._predicted[label] = schedule
            write_prediction(schedule, self._staging / "predictions" / f"{label}.json")

    def _measure_costs(self, testbed: Testbed) -> CostTable:
        """Measure links, then every op's time on one device, and set up the cluster."""
        assert self._trial is not None
        calibration = testbed.call("calibrate", time_limit_s=_CALIBRATION_LIMIT_S)
        if isinstance(calibration, ChildFailure):
            raise TestbedError(
                f"testbed {self._plan.kind}: calibration failed: {calibration.message}"
            )
        alone = propose((BASELINE,), self._graph, CostTable(costs={}), self._devices)[BASELINE]
        assert isinstance(alone, Placement)
        self._watcher.working("measuring op times on one device", 0, 1)
        entry = self._trial.enter(alone)
        step_ns = self._trial.settle(entry)
        if entry.failure is None:
            self._trial.profile(entry)
        if step_ns is None or entry.failure is not None or entry.profile is None:
            reason = entry.failure.message if entry.failure else "the profile shows no step"
            raise TestbedError(
                f"the model does not run on one device of testbed {self._plan.kind}: {reason}"
            )
        op_ns = with_members(entry.profile.op_ns, self._traced.members)
        costs = measured_costs(self._graph, op_ns)
        launch_ns = dispatch_overhead_ns(
            step_ns=step_ns,
            compute_ns=sum(cost.time_ns for cost in costs.costs.values()),
            step_overhead_ns=calibration.step_overhead_ns,
            op_count=len(costs.costs),
        )
        self._cluster = Cluster(
            devices=tuple(replace(d, launch_overhead_ns=launch_ns) for d in self._plan.devices),
            links=tuple(
                fit_link(source, target, samples)
                for (source, target), samples in sorted(calibration.links.items())
            ),
            copies_occupy_devices=self._plan.kind is not TestbedKind.GPUS,
            step_overhead_ns=calibration.step_overhead_ns,
        )
        return costs

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
            measured=entry.measurement(profile_run) if entry else None,
            comparison=comparisons.get(name),
            failure=entry.failure if entry else None,
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
            fingerprint=fingerprint(
                (self._plan.kind.value, *self._devices, self._traced.tensorflow_version)
            ),
            not_run=self._plan.not_run,
        )


def _failures_in_words(candidates: Sequence[Candidate]) -> list[str]:
    return [
        f"{candidate.name} has no result: {candidate.failure.kind}: {candidate.failure.message}"
        for candidate in candidates
        if candidate.failure and candidate.failure.kind is not FailureKind.NOT_APPLICABLE
    ]
