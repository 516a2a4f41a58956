"""What is kept of an analysis while it goes on: nothing that is kept changes what is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import (
        Analysis,
        Candidate,
        ModelSummary,
        TestbedSummary,
    )
    from placement_advisor.analysis.kept import Kept
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.testbed.testbed import ProfileFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """What there is of an analysis that goes on: what it is doing, and what `Analysis` will have.

    ``testbed`` is None until its costs are known.
    """

    doing: str
    model: ModelSummary
    testbed: TestbedSummary | None
    candidates: tuple[Candidate, ...]


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

    def show(self, told: Analysis | SoFar) -> None:
        """Show how far the analysis is, and last the whole of it."""
