"""The families of candidate placements, by name, in the order in which reports show them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from placement_advisor.candidates import (
    alternating,
    alternating_ops,
    batch_towers,
    parameters_on_host,
    pipeline,
    single,
    towers,
    towers_forward_only,
)
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.variable_places import BY_VARIABLES
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.errors import AdvisorError
from placement_advisor.solvers.step.latency import FAMILY as SEARCHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster


class Family(Protocol):
    """A rule that finds a placement in a graph, or says why there is none."""

    def __call__(
        self, graph: OpGraph, costs: Mapping[str, CostTable], cluster: Cluster, /
    ) -> Placement | NotApplicable:
        """Return the placement of this family, with a rationale of one line.

        ``costs`` has a table for every device and host of the cluster, by name.
        """


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        single.FAMILY: single.propose,
        towers.FAMILY: towers.propose,
        towers_forward_only.FAMILY: towers_forward_only.propose,
        pipeline.FAMILY: pipeline.propose,
        parameters_on_host.FAMILY: parameters_on_host.propose,
        alternating.FAMILY: alternating.propose,
        alternating_ops.FAMILY: alternating_ops.propose,
    }
)
# Splits of the batch, which are of other graphs than the step's: a replica on each device, or on
# each pair of them.
PER_DEVICE = (*BY_VARIABLES, MIRRORED)
PER_PAIR = (batch_towers.FAMILY,)
SPLITS = (*PER_DEVICE, *PER_PAIR)
# What the user has written, and families that are laid out by rule; a search goes on from all of
# these.
NAMES = (single.FAMILY, AS_WRITTEN, *list(FAMILIES)[1:], SEARCHED, *SPLITS)
# They show what copies cost; nobody would want to use them.
BAD_ON_PURPOSE = frozenset({alternating.FAMILY, alternating_ops.FAMILY})


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
        if name == single.FAMILY:
            found |= {p.label: p for p in single.on_other_kinds(graph, costs, cluster)}
            found |= {} if own is None else {own.label: own}
    return _each_once(found)


def placements_of(
    answers: Mapping[str, Placement | NotApplicable],
) -> dict[str, Placement]:
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
            answers[label] = NotApplicable(family=proposal.family, reason=reason)
    return answers
