"""The stages after tracing: costs, candidates, predictions, runs, and the analysis of it all."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.analysis.advice.instructions import (
    how_to_mirror,
    how_to_split,
    how_to_split_batch,
    how_to_split_over_pairs,
)
from placement_advisor.analysis.advice.recommend import recommend
from placement_advisor.analysis.analysis_result import (
    AdviceVerdict,
    Analysis,
    Candidate,
    HowToSplit,
    ModelSummary,
    Recommendation,
    TestbedSummary,
)
from placement_advisor.analysis.findings.evidence import Evidence, gather
from placement_advisor.analysis.findings.rules import find_all
from placement_advisor.analysis.forecast import Forecast, PricedSplit
from placement_advisor.analysis.prices import ASSUMED_DOUBT, Prices
from placement_advisor.analysis.recorder import Review
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.programs import SPLIT, share_folder
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_towers import FAMILY as BATCH_TOWERS
from placement_advisor.candidates.choose import to_run
from placement_advisor.candidates.families import BAD_ON_PURPOSE, NAMES, PER_DEVICE, SPLITS
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostSource
from placement_advisor.errors import BatchSplitError
from placement_advisor.machine.fingerprints import testbed_fingerprint
from placement_advisor.measurement.failure import Failure, FailureKind
from placement_advisor.measurement.laws import of_comparison, of_measurement
from placement_advisor.processes.children import Child, ChildFailure
from placement_advisor.simulator.sensitivity import Doubt
from placement_advisor.testbed.batch_sizes import batch_points
from placement_advisor.testbed.costing import calibrated, measure_costs, measure_split_costs
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
from placement_advisor.testbed.trial import BASELINE, Entry, Trial, failure_of
from placement_advisor.tf.answers import RunFailure, TracedSplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.prices import Elsewhere
    from placement_advisor.analysis.recorder import Recorder
    from placement_advisor.clock import Clock
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.measurement.compare import Comparison
    from placement_advisor.measurement.input_timing import InputTiming
    from placement_advisor.measurement.measurement import Measurement
    from placement_advisor.testbed.costing import Costing
    from placement_advisor.testbed.testbed import Testbed
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.answers import Traced

_AS_IS = "placement_advisor.tf.run.as_is"
_INPUT_TIMER = "placement_advisor.tf.run.input_timer"
# A pipeline is timed for a few seconds; one batch that takes most of a minute is a hang.
_INPUT_LIMIT_S = 60.0
_ADDS_UP = (
    "; tf.distribute adds up the gradients of replicas: a loss that is a mean over samples has to "
    "be divided by strategy.num_replicas_in_sync, which Keras does in its own train_step"
)
_HOW_TO_SPLIT_BATCH = {
    BATCH: how_to_split_batch,
    MIRRORED: how_to_mirror,
    BATCH_TOWERS: how_to_split_over_pairs,
}
# Where both were measured: meant to hold nine in ten ratios (docs/cost-model.md: how many it did).
MEASURED_DOUBT = Doubt(copies=1.5, launches=1.5, ops=1.1)


class Study:
    """The stages after tracing, with what they have found so far."""

    def __init__(
        self,
        options: AnalyzeOptions,
        plan: TestbedPlan,
        traced: Traced,
        recorder: Recorder,
        bundles: Path,
        scratch: Path,
        clock: Clock,
        watcher: Watcher,
        elsewhere: Elsewhere | None = None,
        splits: Mapping[tuple[str, ...], TracedSplit | BatchSplitError] = MappingProxyType({}),
    ) -> None:
        """Take what was asked, planned and traced, and what is to be predicted for and not run.

        ``splits`` has the step with its batch split, by the families that are of it.
        """
        self._splits = splits
        self._elsewhere = elsewhere
        self._options, self._plan, self._traced = options, plan, traced
        self._recorder, self._clock, self._watcher = recorder, clock, watcher
        self._bundles, self._scratch = bundles, scratch
        self._forecast: Forecast | None = None
        self._trial: Trial | None = None
        self._mirrored: MirroredTestbed | None = None
        self._as_is: list[int] = []
        self._weak_ns: list[int] = []
        self._batch_points: tuple[Throughput, ...] = ()
        self._as_is_failed = False
        self._input_timing: InputTiming | None = None
        self._profile_runs: dict[str, str] = {}
        self._warnings = list(plan.warnings)

    @property
    def _graph(self) -> OpGraph:
        return self._traced.graph

    def imagine(self) -> None:
        """Predict all candidates from assumed costs; nothing runs."""
        self._show("predicting")
        if self._elsewhere is not None:
            prices = self._elsewhere.prices(self._traced)
        else:
            cluster = assumed_cluster(self._options.devices)
            costs = roofline_by_place(self._graph, cluster)
            prices = Prices(
                cluster=cluster, costs=costs, source=CostSource.ASSUMED, doubt=ASSUMED_DOUBT
            )
        self._warnings += prices.notes
        self._foresee(
            prices,
            {
                families: _assumed(split, prices.cluster)
                if isinstance(split, TracedSplit)
                else split
                for families, split in self._splits.items()
            },
        )
        for label in self._known.placements:
            self._predict(label)

    def run(self, testbed: Testbed, loader: Child) -> None:
        """Predict all candidates from measured costs, then run them."""
        self._show("measuring costs")
        with self._clock.stage("calibrate"):
            self._watcher.working("starting devices", 0, 1)
            testbed.start()
            calibration = calibrated(testbed, self._watcher)
            self._watcher.working("measuring op times on one device", 0, 1)
            self._trial = Trial(
                testbed,
                steps=self._options.steps,
                watcher=self._watcher,
                line_of=self._traced.update_lines(),
            )
            costing = measure_costs(self._trial, self._plan, self._traced, calibration)
            collectives = self._start_mirrored(testbed)
            splits = {
                families: self._priced_split(families, testbed, costing, collectives)
                for families in self._splits
            }
        costs = costing.costs.everywhere(costing.cluster)
        prices = Prices(
            cluster=costing.cluster, costs=costs, source=CostSource.MEASURED, doubt=MEASURED_DOUBT
        )
        self._foresee(prices, splits)
        for label in self._known.placements:
            self._predict(label)
        chosen = self._to_run()
        for i, label in enumerate(chosen):
            self._watcher.working("preparing", i, len(chosen), label)
            self._show(f"preparing {label}")
            self._enter(self._known.placements[label])
        with self._clock.stage("run"):
            self._time_as_is(loader, 0)
            self._as_is.clear()  # The first call traces.
            self._time_weak_scaling(0)
            self._weak_ns.clear()
            self._trial.race(self._options.rounds, lambda number: self._beside(loader, number))
            self._watcher.working("timing other batch sizes", 0, 1)
            self._batch_points = batch_points(loader, self._traced.batch_size, self._as_is)
            self._time_input(loader)
        loader.close()
        self._show("profiling")
        with self._clock.stage("profile"):
            self._trial.profile_all()
        self.close()
        testbed.close()

    def close(self) -> None:
        """End what a mirrored step runs on."""
        if self._mirrored is not None:
            self._mirrored.close()

    def _start_mirrored(self, testbed: Testbed) -> CollectiveTimes | None:
        """Start what a mirrored step runs on, if one is wanted; return what collectives take."""
        wanted = MIRRORED in (self._options.candidates or NAMES)
        split = self._splits.get(PER_DEVICE)
        if not wanted or not isinstance(split, TracedSplit) or MIRRORED not in split.graphs:
            return None
        self._watcher.working("measuring collectives", 0, 1)
        self._mirrored = MirroredTestbed(
            testbed,
            self._options.source,
            self._bundles,
            self._traced.created,
            program=PER_DEVICE[0],
            draws=split.draws,
            statistics=split.statistics,
            scratch=self._scratch,
        )
        return self._mirrored.start()

    def _priced_split(
        self,
        families: tuple[str, ...],
        testbed: Testbed,
        costing: Costing,
        collectives: CollectiveTimes | None,
    ) -> PricedSplit | BatchSplitError:
        split = self._splits[families]
        if not isinstance(split, TracedSplit):
            return split
        program, folder = families[0], self._bundles / families[0]
        assert self._trial is not None
        self._watcher.working("measuring op times on shares of the batch", 0, 1)
        testbed.add_program(program, folder / SPLIT, split.graphs[program].graph)
        for samples, share in split.shares.items():
            name = share_folder(samples)
            testbed.add_program(name, folder / name, share.graph)
        costs = measure_split_costs(self._trial, split, costing, collectives)
        if isinstance(costs, BatchSplitError):
            return costs
        here, weak = (
            {name: table.everywhere(costing.cluster) for name, table in tables.items()}
            for tables in costs
        )
        return PricedSplit(traced=split, costs=here, weak_costs=weak, collectives=collectives)

    def _enter(self, placement: Placement) -> None:
        assert self._trial is not None
        if placement.family == MIRRORED:
            self._trial.enter(placement, bench=self._mirrored, if_wrong=_ADDS_UP)
        elif placement.family in SPLITS:
            self._trial.enter(placement, placement.family)
        else:
            self._trial.enter(placement)

    def analysis(self) -> Analysis:
        """Put everything together."""
        self._keep_profiles()
        candidates = self._candidates()
        testbed = self._testbed_summary()
        as_is = tuple(self._as_is) or None
        with self._clock.stage("simulate"):
            bound = self._known.bound()
            sweep = self._known.break_even(self._traced.batch_size, candidates)
        recommendation = recommend(candidates, testbed, as_is, bound)
        recommended = self._known.placements.get(recommendation.candidate or "")
        analysis = Analysis(
            advisor_version=__version__,
            tensorflow_version=self._traced.tensorflow_version,
            model=self._model_summary(),
            testbed=testbed,
            as_is=as_is,
            candidates=candidates,
            recommendation=recommendation,
            findings=find_all(self._evidence(candidates, recommendation)),
            warnings=(
                *self._warnings,
                *_failures_in_words(candidates),
                *_broken_laws_in_words(candidates),
            ),
            bound=bound,
            break_even=sweep,
            input_timing=self._input_timing,
            timings_ns=self._clock.timings_ns(),
            how=None
            if recommended is None or recommended.family in BAD_ON_PURPOSE
            else self._how(recommended),
        )
        self._recorder.review(
            Review(
                model=analysis.model,
                testbed=testbed,
                candidates=candidates,
                doing=None,
                recommendation=recommendation,
                findings=analysis.findings,
                warnings=analysis.warnings,
            )
        )
        return analysis

    def _show(self, doing: str) -> None:
        """Let the tab Placement show how far this is."""
        is_foreseen = self._forecast is not None
        self._recorder.review(
            Review(
                model=self._model_summary(),
                testbed=self._testbed_summary() if is_foreseen else None,
                candidates=self._candidates() if is_foreseen else (),
                doing=doing,
            )
        )

    def _how(self, placement: Placement) -> HowToSplit:
        split = self._known.splits.get(placement.family)
        if split is None:
            return how_to_split(self._graph, placement)
        how = _HOW_TO_SPLIT_BATCH[placement.family]
        return how(placement.label, split.samples, self._known.cluster)

    def _evidence(
        self, candidates: tuple[Candidate, ...], recommendation: Recommendation
    ) -> Evidence:
        """Return what rules may look at."""
        splits = self._known.splits.values()
        is_to_split = recommendation.verdict in (AdviceVerdict.SPLIT, AdviceVerdict.CANNOT_FIT)
        return gather(
            graph=self._graph,
            cluster=self._known.cluster,
            simulator=self._known.simulator,
            candidates=candidates,
            requested_device_of=self._traced.requested_device_of,
            line_of=self._traced.line_of,
            batch_size=self._traced.batch_size,
            batch_points=self._batch_points,
            input_timing=self._input_timing,
            own_of_replicas=next((split.own for split in splits), ()),
            recommended=recommendation.candidate if is_to_split else None,
        )

    @property
    def _known(self) -> Forecast:
        assert self._forecast is not None
        return self._forecast

    def _foresee(
        self, prices: Prices, splits: Mapping[tuple[str, ...], PricedSplit | BatchSplitError]
    ) -> None:
        """Find the candidates."""
        families = self._options.candidates or NAMES
        self._watcher.working("searching placements", 0, 1)
        with self._clock.stage("search"):
            self._forecast = Forecast(
                self._graph, prices, families, self._options.effort, self._recorder, splits
            )

    def _predict(self, label: str) -> None:
        with self._clock.stage("simulate"):
            self._known.predict(label)

    def _to_run(self) -> tuple[str, ...]:
        """Return the candidates to run beside the baseline: those that were named, else the best.

        What does not fit is not run.
        """
        fits = [label for label in self._known.placements if self._known.too_large(label) is None]
        if self._options.candidates is None:
            fits = list(to_run({label: self._known.predicted[label].step_ns for label in fits}))
        return tuple(label for label in fits if label != BASELINE)

    def _beside(self, loader: Child, number: int) -> None:
        """Time once a round what is no candidate."""
        self._time_as_is(loader, number)
        self._time_weak_scaling(number)
        self._show(f"timing, round {number + 1} done")

    def _time_weak_scaling(self, number: int) -> None:
        """Time a mirrored step with the whole batch on every device."""
        assert self._trial is not None
        entry = self._trial.entries.get(MIRRORED)
        if entry is None or entry.failure is not None:
            return
        answer = entry.bench.call(
            "run_weak_steps",
            MIRRORED,
            number,
            1 + self._options.steps,
            time_limit_s=self._options.source.time_limit_s,
        )
        if isinstance(answer, ChildFailure | RunFailure):
            self._warnings.append(f"weak scaling was not timed: {failure_of(answer).message}")
        else:
            self._weak_ns += answer[1:]

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

    def _candidates(self) -> tuple[Candidate, ...]:
        entries = self._trial.entries if self._trial else {}
        comparisons = self._trial.comparisons() if self._trial else {}
        baseline = entries[BASELINE].measurement(None) if BASELINE in entries else None
        return tuple(
            self._candidate(name, proposal, entries.get(name), comparisons, baseline)
            for name, proposal in self._known.proposed.items()
        )

    def _candidate(
        self,
        name: str,
        proposal: Placement | NotApplicable,
        entry: Entry | None,
        comparisons: Mapping[str, Comparison],
        baseline: Measurement | None,
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
        split = self._known.splits.get(proposal.family)
        samples = split.samples if split is not None else None
        measured = entry.measurement(self._profile_runs.get(name)) if entry else None
        comparison = comparisons.get(name)
        broken = self._known.broken_laws.get(name, ())
        if measured is not None:
            broken += of_measurement(measured)
        if measured is not None and comparison is not None and baseline is not None:
            broken += of_comparison(comparison, baseline, measured)
        return Candidate(
            name=name,
            family=proposal.family,
            rationale=proposal.rationale,
            placement=proposal,
            by_layer=None if samples else proposal.by_layer(self._graph),
            samples=samples,
            weak_predicted_ns=self._known.weak_step_ns.get(name),
            weak_measured_ns=tuple(self._weak_ns) if name == MIRRORED else (),
            predicted=self._known.predicted.get(name),
            predicted_ratio=self._known.ratios.get(name),
            measured=measured,
            comparison=comparison,
            failure=entry.failure if entry else self._known.too_large(name),
            broken_laws=broken,
        )

    def _keep_profiles(self) -> None:
        for name, entry in self._trial.entries.items() if self._trial else ():
            if entry.files is not None:
                files = {**entry.files.devices, "client": entry.files.client}
                self._profile_runs[name] = self._recorder.profile(name, files)

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
        return TestbedSummary(
            kind=self._plan.kind.value,
            stand_in=self._plan.stand_in,
            description=self._plan.description,
            cluster=self._known.cluster,
            fingerprint=testbed_fingerprint(self._plan),
            not_run=self._plan.not_run,
        )


def _assumed(split: TracedSplit, cluster: Cluster) -> PricedSplit:
    """Return a split at costs that are assumed."""
    here, weak = (
        {name: roofline_by_place(each.graph, cluster) for name, each in graphs.items()}
        for graphs in (split.graphs, split.weak)
    )
    return PricedSplit(traced=split, costs=here, weak_costs=weak)


def _failures_in_words(candidates: Sequence[Candidate]) -> list[str]:
    return [
        f"{candidate.name} has no result: {candidate.failure.kind}: {candidate.failure.message}"
        for candidate in candidates
        if candidate.failure and candidate.failure.kind is not FailureKind.NOT_APPLICABLE
    ]


def _broken_laws_in_words(candidates: Sequence[Candidate]) -> list[str]:
    return [
        f"{candidate.name}: {candidate.broken_laws[0].what}, which cannot be: nothing is concluded "
        "from its profile"
        for candidate in candidates
        if candidate.broken_laws
    ]
