"""What is kept of an analysis while it goes on: nothing that is kept changes what is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import (
        Candidate,
        Finding,
        HowToSplit,
        ModelSummary,
        Recommendation,
        TestbedSummary,
    )
    from placement_advisor.analysis.kept import Kept
    from placement_advisor.cost.gpu.assumed_times import AssumedTimes
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.measurement.input_timing import InputTiming
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.testbed.testbed import ProfileFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What there is to show of an analysis.

    ``doing`` says what it does at the moment, None once it is complete; until then there is no
    recommendation. ``testbed`` is None until its costs are known. ``how``, ``break_even``,
    ``as_is``, ``input_timing`` and ``assumed_times`` are those of `Analysis`.
    """

    model: ModelSummary
    testbed: TestbedSummary | None
    candidates: tuple[Candidate, ...]
    doing: str | None
    recommendation: Recommendation | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    how: HowToSplit | None = None
    break_even: BreakEven | None = None
    as_is: tuple[int, ...] | None = None
    input_timing: InputTiming | None = None
    assumed_times: tuple[AssumedTimes, ...] = ()


class Recorder(Protocol):
    """Keeps what an analysis finds, as soon as it is found."""

    def placements(self, graph: OpGraph, cluster: Cluster, placements: Sequence[Placement]) -> None:
        """Keep placements of the step as it was traced."""

    def prediction(self, label: str, schedule: Schedule, ratio: PredictedRatio | None) -> None:
        """Keep what is predicted of a candidate; it stays as it is, whatever is measured later."""

    def prediction_after_runs(self, label: str, ratio: PredictedRatio) -> None:
        """Keep what is predicted of a candidate when others have run and it has not."""

    def graph(self, graph: OpGraph) -> None:
        """Keep the graph that the bound is about."""

    def rounds(self, kept: Kept) -> None:
        """Keep what more rounds can be added to."""

    def profile(self, label: str, files: ProfileFiles) -> str:
        """Keep the raw profiles of a candidate; return where, for reports."""

    def review(self, review: Review) -> None:
        """Show how far the analysis is."""
