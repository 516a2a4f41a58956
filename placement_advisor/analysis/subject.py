"""What an analysis is of: a traced model, and where its step is to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.simulator.step_growth import GrowingStep, StepGrowth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.prices_elsewhere import Prices
    from placement_advisor.errors import BatchSplitError
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.tf.answers import Traced, TracedSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was asked, what is planned for it, and what was traced.

    ``splits`` has the step with its batch split, by the families that are of it, or says why there
    is none. ``growth`` is how it grows with its batch, or why that is not known; None where it has
    none, or nobody asked.
    """

    options: AnalyzeOptions
    plan: TestbedPlan
    traced: Traced
    splits: Mapping[tuple[str, ...], TracedSplit | BatchSplitError]
    growth: StepGrowth | BatchSplitError | None

    def growing(self, prices: Prices) -> GrowingStep | BatchSplitError | None:
        """Return the step with its costs at any batch; see ``growth``."""
        if not isinstance(self.growth, StepGrowth):
            return self.growth
        return GrowingStep(self.growth, prices.costs, prices.cluster)

    @property
    def graph(self) -> OpGraph:
        """The step as it was traced."""
        return self.traced.graph
