"""The candidates for a step on devices: laid out by rule, searched, and with its batch split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.analysis.split_steps import SplitStep, split_steps
from placement_advisor.candidates import searched
from placement_advisor.candidates.families import FAMILIES, propose
from placement_advisor.graph.placement import Placement
from placement_advisor.simulator.engine import Simulator
from placement_advisor.simulator.peak import shortages
from placement_advisor.solvers.step.latency import FAMILY as SEARCHED
from placement_advisor.testbed.trial import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.price import Priced
    from placement_advisor.analysis.prices import Prices
    from placement_advisor.candidates.not_applicable import NotApplicable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.solvers.effort import Effort

    Answers = dict[str, Placement | NotApplicable]


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
        return _placements(self.answers)

    @property
    def of_whole_batch(self) -> dict[str, Placement]:
        """The candidates that place the step as it was traced."""
        return {n: p for n, p in self.placements.items() if n not in self.splits}


def propose_all(
    graph: OpGraph, priced: Priced, families: Sequence[str], effort: Effort
) -> Proposals:
    """Return the candidates of some families; the single device is always among them."""
    prices = priced.prices
    simulator = Simulator(graph, prices.costs, prices.cluster)
    answers = propose(tuple(FAMILIES), graph, prices.costs, prices.cluster)
    if SEARCHED in families:
        answers |= _searched(graph, prices, simulator, _placements(answers), effort)
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


def _searched(
    graph: OpGraph,
    prices: Prices,
    simulator: Simulator,
    known: Mapping[str, Placement],
    effort: Effort,
) -> Answers:
    """Return what a search finds that begins with what rules have laid out."""
    cluster, costs = prices.cluster, prices.costs
    layer_of = searched.layers_of(graph)
    if shortages(simulator.schedule(known[BASELINE]).peak_memory, cluster.devices):
        smallest = searched.propose_smallest(
            graph,
            costs,
            cluster,
            lambda part: tuple(_placements(propose(tuple(FAMILIES), graph, costs, part)).values()),
            layer_of,
            effort,
        )
        return {SEARCHED: smallest}
    best, cautious = searched.propose_both(
        graph,
        cluster,
        simulator,
        tuple(known.values()),
        layer_of,
        effort,
        prices.doubt.copies,
    )
    return {SEARCHED: best, searched.CAUTIOUS: cautious}


def _placements(answers: Mapping[str, Placement | NotApplicable]) -> dict[str, Placement]:
    return {label: each for label, each in answers.items() if isinstance(each, Placement)}
