"""What an analysis is of: a traced model, and where its step is to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.errors import BatchSplitError
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.tf.answers import Traced, TracedSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was asked, what is planned for it, and what was traced.

    ``splits`` has the step with its batch split, by the families that are of it, or says why there
    is none.
    """

    options: AnalyzeOptions
    plan: TestbedPlan
    traced: Traced
    splits: Mapping[tuple[str, ...], TracedSplit | BatchSplitError]

    @property
    def graph(self) -> OpGraph:
        """The step as it was traced."""
        return self.traced.graph
