"""The families of candidate placements, by name, in the order in which they are tried."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from placement_advisor.candidates import alternating, single, towers
from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.not_applicable import NotApplicable
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph import OpGraph
    from placement_advisor.placement import Placement


class Family(Protocol):
    """A rule that finds a placement in a graph, or says why there is none."""

    def __call__(
        self, graph: OpGraph, costs: CostTable, devices: Sequence[str], /
    ) -> Placement | NotApplicable:
        """Return the placement of this family, with a rationale of one line."""


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        single.FAMILY: single.propose,
        towers.FAMILY: towers.propose,
        alternating.FAMILY: alternating.propose,
    }
)


def check_names(names: Sequence[str]) -> None:
    """Check that each name is a family.

    Raises:
        AdvisorError: one is not; the message lists the known families.
    """
    for name in names:
        if name not in FAMILIES:
            raise AdvisorError(f"unknown candidate {name!r}; there are {', '.join(FAMILIES)}")


def propose(
    names: Sequence[str], graph: OpGraph, costs: CostTable, devices: Sequence[str]
) -> dict[str, Placement | NotApplicable]:
    """Return what each named family proposes for the devices, in the order of the names.

    Raises:
        AdvisorError: a name is not a family.
    """
    check_names(names)
    return {name: FAMILIES[name](graph, costs, devices) for name in names}
