"""The candidates for a step on devices: laid out by rule, searched, and with its batch split."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor.analysis.split_steps import SplitStep, split_steps
from placement_advisor.candidates import searched
from placement_advisor.candidates.families import FAMILIES, placements_of, propose
from placement_advisor.candidates.references import as_written
from placement_advisor.defaults import BASELINE
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.price import Priced
    from placement_advisor.analysis.prices_elsewhere import Prices
    from placement_advisor.candidates.by_layer import NotApplicable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.solvers.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """The candidates for a step, and what simulates them.

    ``answers`` has what each family that was asked for says, by label, the single device first.
    ``splits`` has the steps with the batch split, by family.
    """

    graph: OpGraph
    prices: Prices
    simulator: Simulator
    answers: Mapping[str, Placement | NotApplicable]
    splits: Mapping[str, SplitStep]

    @property
    def placements(self) -> dict[str, Placement]:
        """The candidates that there are, by label, the single device first."""
        return placements_of(self.answers)

    @property
    def of_whole_batch(self) -> dict[str, Placement]:
        """The candidates that place the step as it was traced."""
        return {n: p for n, p in self.placements.items() if n not in self.splits}


def propose_all(
    graph: OpGraph,
    priced: Priced,
    families: Sequence[str],
    effort: Effort,
    known: Mapping[str, Placement] = MappingProxyType({}),
    requested_device_of: Mapping[str, str] = MappingProxyType({}),
) -> Proposals:
    """Return the candidates of some families; the single device is always among them.

    Those that searches have found before are ``known``, by label, and taken as they are.
    ``requested_device_of`` has the devices that the user's own scopes ask for.
    """
    prices = priced.prices
    simulator = Simulator(graph, prices.costs, prices.cluster)
    own = as_written(graph, requested_device_of, prices.cluster)
    answers = propose(tuple(FAMILIES), graph, prices.costs, prices.cluster, own)
    if SEARCHED in families and SEARCHED not in known:
        dearer = prices.doubt.copies
        found = searched.propose_searched(answers, prices.costs, simulator, effort, dearer=dearer)
        answers[SEARCHED] = found
    answers.update(known)
    splits: dict[str, SplitStep] = {}
    for of, split in priced.splits.items():
        for family, step in split_steps(graph, prices, of, split).items():
            if isinstance(step, SplitStep):
                splits[family] = step
            answers[family] = step.placement if isinstance(step, SplitStep) else step
    return Proposals(
        graph=graph,
        prices=prices,
        simulator=simulator,
        answers={
            label: answer
            for label, answer in answers.items()
            if label == BASELINE or answer.family in families
        },
        splits=splits,
    )
