"""What is predicted and what was measured, put together: candidates, and the analysis of it all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor import __version__
from placement_advisor.analysis import analysis_result, instructions
from placement_advisor.analysis.findings.evidence import Evidence
from placement_advisor.analysis.findings.rules import find_all, placements_to_time
from placement_advisor.analysis.recommendation import recommend
from placement_advisor.analysis.resume import AnalysisSnapshot
from placement_advisor.analysis.runs import RunResults
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import WORST_CASE_FAMILIES
from placement_advisor.cost.gpu import assumed_times
from placement_advisor.defaults import AS_WRITTEN, BASELINE
from placement_advisor.machine.calibration import testbed_fingerprint
from placement_advisor.measurement.invariants import comparison_violations, measurement_violations
from placement_advisor.measurement.measurement import CandidateFailure, FailureKind, Violation
from placement_advisor.simulator.step_growth import GrowingStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.analysis.tracing import AnalysisRequest
    from placement_advisor.analysis.verdict import RerunEstimate
    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.break_even import BreakEven


# What Keras calls a model that was given no name: its class, and a number from the second on.
_MADE_UP = re.compile(r"(functional|sequential|model)(_\d+)?")


def snapshot(
    request: AnalysisRequest,
    doing: str,
    predictions: Predictions | None = None,
    results: RunResults | None = None,
) -> AnalysisSnapshot:
    """Return what there is to show while an analysis is ``doing`` something.

    ``predictions`` is None before costs are known, ``results`` before candidates run.
    """
    return AnalysisSnapshot(
        doing=doing,
        title=_title(request),
        model=_model(request),
        testbed=_testbed(request, predictions) if predictions else None,
        candidates=candidates_of(predictions, results or RunResults()) if predictions else (),
    )


def candidates_of(
    predictions: Predictions, results: RunResults
) -> tuple[analysis_result.Candidate, ...]:
    """Return the candidates with what is predicted and what was measured of each."""
    return tuple(
        _not_applicable(name, answer)
        if isinstance(answer, NotApplicable)
        else _candidate(name, answer, predictions, results)
        for name, answer in predictions.proposals.answers.items()
    )


def answer_of(
    request: AnalysisRequest,
    predictions: Predictions,
    results: RunResults,
    candidates: tuple[analysis_result.Candidate, ...],
    bound: analysis_result.UncertainBound | None = None,
    again: RerunEstimate | None = None,
) -> analysis_result.Recommendation:
    """Return the answer that these candidates give; see `recommend` for ``again``."""
    return recommend(
        candidates,
        _testbed(request, predictions),
        results.beside.as_is_ns,
        bound,
        again,
        calls_python=request.traced.python_call is not None,
    )


def advice_placements(
    request: AnalysisRequest, predictions: Predictions, results: RunResults
) -> list[Placement]:
    """Return what to time so that savings of moves in a split are known (`what_to_time`)."""
    candidates = candidates_of(predictions, results)
    answer = answer_of(request, predictions, results, candidates)
    return placements_to_time(_evidence(request, predictions, results, candidates, answer, None))


def assemble(
    request: AnalysisRequest,
    predictions: Predictions,
    results: RunResults,
    candidates: tuple[analysis_result.Candidate, ...],
    bound: analysis_result.UncertainBound,
    break_even: BreakEven | None,
    again: RerunEstimate | None,
) -> analysis_result.Analysis:
    """Return the analysis, but for the time that it took; see `recommend` for ``again``."""
    recommendation = answer_of(request, predictions, results, candidates, bound, again)
    evidence = _evidence(request, predictions, results, candidates, recommendation, break_even)
    return analysis_result.Analysis(
        advisor_version=__version__,
        tensorflow_version=request.traced.tensorflow_version,
        options=request.options,
        title=_title(request),
        model=_model(request),
        testbed=_testbed(request, predictions),
        as_is=results.beside.as_is_ns or None,
        candidates=candidates,
        recommendation=recommendation,
        findings=find_all(evidence),
        warnings=(
            *request.plan.warnings,
            *predictions.proposals.prices.notes,
            *results.warnings,
            *_warnings_of(candidates),
        ),
        timings_ns={},
        bound=bound,
        break_even=break_even,
        input_timing=results.input_timing,
        how=_how(predictions, recommendation, request.options.folder),
        assumed_times=_assumed_times(predictions),
        sessions=results.sessions,
    )


def _not_applicable(name: str, answer: NotApplicable) -> analysis_result.Candidate:
    return analysis_result.Candidate(
        name=name,
        family=answer.family,
        rationale=answer.reason,
        failure=CandidateFailure(kind=FailureKind.NOT_APPLICABLE, message=answer.reason),
    )


def _candidate(
    name: str, placement: Placement, predictions: Predictions, results: RunResults
) -> analysis_result.Candidate:
    predicted, outcome = predictions.predicted[name], results.outcomes.get(name)
    split, graph = predictions.proposals.splits.get(name), predictions.proposals.graph
    return analysis_result.Candidate(
        name=name,
        family=placement.family,
        rationale=placement.rationale,
        placement=placement,
        by_layer=placement.by_layer(graph) if split is None else None,
        torn_layers=placement.torn_layers(graph) if split is None else 0,
        samples=None if split is None else split.samples,
        weak_predicted_ns=predicted.weak_step_ns,
        predicted=predicted.schedule,
        predicted_ratio=predicted.ratio,
        ratio_after_runs=predicted.after_runs,
        measured=outcome.measured if outcome else None,
        comparison=outcome.comparison if outcome else None,
        failure=outcome.failure if outcome else predicted.too_large,
        broken_laws=(*predicted.broken_laws, *_laws_broken_by_runs(name, results)),
    )


def _laws_broken_by_runs(name: str, results: RunResults) -> tuple[Violation, ...]:
    outcome, baseline = results.outcomes.get(name), results.outcomes.get(BASELINE)
    if outcome is None or outcome.measured is None:
        return ()
    broken = measurement_violations(outcome.measured)
    if outcome.comparison is not None and baseline is not None and baseline.measured is not None:
        broken += comparison_violations(outcome.comparison, baseline.measured, outcome.measured)
    return broken


def title_of(name: str, path: Path) -> str:
    """Return what to head reports with: the model's name, or its file's if Keras made that up.

    >>> title_of("deepconn", Path("a.py")), title_of("functional_3", Path("a/ranker.py"))
    ('deepconn', 'ranker')
    """
    return path.resolve().stem if _MADE_UP.fullmatch(name) else name


def _title(request: AnalysisRequest) -> str:
    return title_of(request.traced.name, Path(request.options.source.path))


def _model(request: AnalysisRequest) -> analysis_result.Model:
    graph, traced, plan = request.graph, request.traced, request.plan
    captured = traced.captured and analysis_result.CapturedStep(
        call=traced.captured.call,
        step=traced.captured.name,
        is_replica=traced.captured.is_replica,
        run_command=request.options.run_command(len(plan.devices) if plan.stand_in else None),
    )
    return analysis_result.Model(
        path=request.options.source.path,
        mode=traced.mode,  # type: ignore[arg-type] # Loaders know no other two.
        chosen=traced.chosen,
        captured=captured,
        batch_size=traced.batch_size,
        batch_is_made_up=traced.is_made_up,
        ops=len(graph),
        edges=len(graph.edges),
        parameter_bytes=graph.parameter_bytes,
        edge_bytes_known_share=graph.edge_bytes_known_share,
        graph_fingerprint=graph.fingerprint,
        left_out=tuple(traced.left_out.told()),
    )


def _testbed(request: AnalysisRequest, predictions: Predictions) -> analysis_result.TestbedSummary:
    plan = request.plan
    return analysis_result.TestbedSummary(
        kind=plan.kind.value,
        stand_in=plan.stand_in,
        description=plan.description,
        cluster=predictions.proposals.prices.cluster,
        fingerprint=testbed_fingerprint(plan),
        not_run=plan.not_run,
        host_of={name: host.name for host in plan.hosts for name in host.device_names},
        link=plan.link,
    )


def _evidence(
    request: AnalysisRequest,
    predictions: Predictions,
    results: RunResults,
    candidates: tuple[analysis_result.Candidate, ...],
    recommendation: analysis_result.Recommendation,
    break_even: BreakEven | None,
) -> Evidence:
    """Return what rules may look at."""
    growing = request.growing(predictions.proposals.prices)
    proposals = predictions.proposals
    is_to_split = recommendation.verdict in analysis_result.TO_SPLIT
    return Evidence(
        traced=request.traced,
        prices=proposals.prices,
        simulator=proposals.simulator,
        candidates=candidates,
        results=results,
        own_of_replicas=next((split.own for split in proposals.splits.values()), ()),
        recommended=recommendation.candidate if is_to_split else None,
        growing=growing if isinstance(growing, GrowingStep) else None,
        break_even=break_even,
    )


def _assumed_times(predictions: Predictions) -> tuple[assumed_times.AssumedTimes, ...]:
    """Return what times of ops rest on where no device has shown any."""
    proposals, prices = predictions.proposals, predictions.proposals.prices
    if not prices.is_assumed:
        return ()
    return assumed_times.times_by_gpu(proposals.graph, prices.costs, prices.cluster)


def _how(
    predictions: Predictions, recommendation: analysis_result.Recommendation, folder: Path
) -> analysis_result.HowToSplit | None:
    """Return how to carry out what is recommended, None if no candidate is."""
    proposals = predictions.proposals
    placement = proposals.placements.get(recommendation.candidate or "")
    if placement is None or placement.family in {*WORST_CASE_FAMILIES, AS_WRITTEN}:
        return None
    split = proposals.splits.get(placement.family)
    if split is None:
        return instructions.how_to_split(proposals.graph, placement, folder)
    return instructions.how_to_split_batch(
        placement.label, placement.family, split.samples, proposals.prices.cluster, folder
    )


def _warnings_of(candidates: Sequence[analysis_result.Candidate]) -> Iterator[str]:
    for candidate in candidates:
        if candidate.failure and candidate.failure.kind is not FailureKind.NOT_APPLICABLE:
            failure = candidate.failure
            yield f"{candidate.name} has no result: {failure.kind}: {failure.message}"
    for candidate in candidates:
        if candidate.broken_laws:
            what = candidate.broken_laws[0].what
            yield (
                f"{candidate.name}: {what}, which cannot be: nothing is concluded from its profile"
            )
