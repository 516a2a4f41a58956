"""The families of candidate placements, by name, and the choice of candidates that run.

The order of the families is the order in which reports show them. Running a candidate takes
seconds, predicting it milliseconds.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor.candidates import (
    on_host,
    parameters_on_host,
    pipeline,
    references,
    towers,
)
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import BY_VARIABLES
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError
from placement_advisor.simulator.sensitivity import NINE_IN_TEN, REST
from placement_advisor.solvers.step_search import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster

    # A rule that finds a placement in a graph, with a rationale of one line, or says why there is
    # none. Of costs there is a table for every device and host of the cluster, by name.
    Family = Callable[[OpGraph, Mapping[str, CostTable], Cluster], Placement | NotApplicable]


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        references.SINGLE: references.propose_single,
        towers.TOWERS: towers.propose_towers,
        towers.TOWERS_FORWARD_ONLY: towers.propose_towers_forward_only,
        pipeline.FAMILY: pipeline.propose,
        parameters_on_host.FAMILY: parameters_on_host.propose,
        on_host.TAIL: on_host.propose_tail,
        on_host.LOOPS: on_host.propose_loops,
        references.ALTERNATING: references.propose_alternating,
        references.ALTERNATING_OPS: references.propose_alternating_ops,
    }
)
# Splits of the batch, which are of other graphs than the step's: a replica on each device, or on
# each pair of them.
PER_DEVICE = (*BY_VARIABLES, MIRRORED)
PER_PAIR = (towers.BATCH_TOWERS,)
SPLITS = (*PER_DEVICE, *PER_PAIR)
# What the user has written, and families that are laid out by rule; a search goes on from all of
# these.
NAMES = (references.SINGLE, AS_WRITTEN, *list(FAMILIES)[1:], SEARCHED, *SPLITS)
# They show what copies cost; nobody would want to use them.
WORST_CASE_FAMILIES = frozenset({references.ALTERNATING, references.ALTERNATING_OPS})


def check_names(names: Sequence[str]) -> None:
    """Check that each name is a family.

    Raises:
        AdvisorError: one is not; the message lists the known families.
    """
    for name in names:
        if name not in NAMES:
            raise AdvisorError(f"unknown candidate {name!r}; there are {', '.join(NAMES)}")


def propose(
    names: Sequence[str],
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    own: Placement | None = None,
) -> dict[str, Placement | NotApplicable]:
    """Return what each named family proposes, by label, in the order of the names.

    `single` proposes a placement for each kind of device; the user's ``own`` split, if there is
    one, stands behind it. A placement that an earlier family has proposed already is not
    applicable.
    """
    found: dict[str, Placement | NotApplicable] = {}
    for name in names:
        found[name] = FAMILIES[name](graph, costs, cluster)
        if name == references.SINGLE:
            found |= {p.label: p for p in references.on_other_kinds(graph, costs, cluster)}
            found |= {} if own is None else {own.label: own}
    return _each_once(found)


def placements_of(answers: Mapping[str, Placement | NotApplicable]) -> dict[str, Placement]:
    """Return the answers of families that apply."""
    return {
        label: answer for label, answer in answers.items() if not isinstance(answer, NotApplicable)
    }


def _each_once(
    found: Mapping[str, Placement | NotApplicable],
) -> dict[str, Placement | NotApplicable]:
    first: list[Placement] = []
    answers = dict(found)
    for label, proposal in found.items():
        if isinstance(proposal, NotApplicable):
            continue
        twin = next((other for other in first if other.device_of == proposal.device_of), None)
        if twin is None:
            first.append(proposal)
        else:
            reason = f"the same placement as {twin.label}"
            answers[label] = NotApplicable(proposal.family, reason)
    return answers


ALWAYS_RUN = frozenset({references.SINGLE, AS_WRITTEN, towers.TOWERS, BATCH, MIRRORED})
TO_UNDERSTAND = WORST_CASE_FAMILIES | {towers.TOWERS_FORWARD_ONLY}
RUN_BRIEFLY = references.ALTERNATING
# Predictions are off by a tenth and more (docs/explanation/cost-model.md), so the best by
# prediction alone is not enough; and every candidate lengthens each round of the trial by its own
# steps.
BEST_BY_PREDICTION = 3
# What is predicted to take so many times as long as the best is the faster one in fewer than one
# case in twenty: the errors of two predictions, less what they have in common.
_HOPELESS = math.exp(NINE_IN_TEN * math.sqrt(2) * REST)


def to_run(predicted_ns: Mapping[str, int]) -> tuple[str, ...]:
    """Return which of the candidates to time in rounds, in the order given.

    ``predicted_ns`` has the predicted step time of each candidate that can run, by label.
    """
    others = [n for n in predicted_ns if n not in ALWAYS_RUN and n not in TO_UNDERSTAND]
    by_chance = sorted(others, key=predicted_ns.__getitem__)
    limit_ns = _HOPELESS * min(predicted_ns.values(), default=0)
    # The first one runs in any case: that splits lose is not concluded from predictions.
    best = [
        label
        for place, label in enumerate(by_chance[:BEST_BY_PREDICTION])
        if not place or predicted_ns[label] <= limit_ns
    ]
    return tuple(label for label in predicted_ns if label in ALWAYS_RUN or label in best)
