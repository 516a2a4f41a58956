"""What each op costs on one device, and where each figure comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.files.contract import ByName, Ns

if TYPE_CHECKING:
    from placement_advisor.machine.devices import Cluster

# The factor that times are taken to be within where no record of such times tells it. A judgement:
# a roofline is within it for two kinds of op in three (docs/reference/figures.md).
ASSUMED_WITHIN = 2.0


class CostBasis(StrEnum):
    """Where a cost comes from.

    ``KERNEL``: formulas of GPU kernels, fitted to a record of such kernels. ``KERNEL_ASSUMED``: the
    same formulas, for kernels of a kind that the record lacks, so that their error is not known.
    ``ROOFLINE``: flops and bytes by a formula. ``GUESSED``: what is known of these.
    """

    MEASURED = "measured"
    KERNEL = "kernel"
    KERNEL_ASSUMED = "kernel_assumed"
    ROOFLINE = "roofline"
    GUESSED = "guessed"


class CostSource(StrEnum):
    """Whose costs a prediction or a proof rests on, those of ops and links together.

    ``MEASURED``: of the devices that are here. ``RECORDED``: op times from a profile of devices,
    links too where it shows them, the others assumed. ``ASSUMED``: nothing was measured.
    """

    MEASURED = "measured"
    RECORDED = "recorded"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """Time of one run of an op.

    ``within`` is the factor that nine in ten such times were within, None where no record tells.
    """

    time_ns: Ns
    basis: CostBasis
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Cost of every op by name; an op that is missing has no known cost and must not be priced."""

    costs: ByName[OpCost]

    def everywhere(self, cluster: Cluster) -> dict[str, CostTable]:
        """Return the table for each device and host of a cluster on which all are alike."""
        return dict.fromkeys(cluster.place_names(), self)

    @property
    def total_ns(self) -> int:
        """Time of all ops, one after the other."""
        return sum(cost.time_ns for cost in self.costs.values())

    @property
    def total_within(self) -> float:
        """The factor that the time of all ops is within, `ASSUMED_WITHIN` if no record tells.

        All are taken to be off to the same side, so that one error does not make up for another:
        ops of one kind on one device share theirs, and no record tells how those of kinds differ.
        """
        log_ns = sum(
            cost.time_ns * math.log(cost.within or ASSUMED_WITHIN) for cost in self.costs.values()
        )
        total_ns = self.total_ns
        return math.exp(log_ns / total_ns) if total_ns else ASSUMED_WITHIN

    def scaled(self, factor: float) -> CostTable:
        """Return the table with every time multiplied."""
        if factor == 1:
            return self
        return CostTable(
            costs={
                name: replace(cost, time_ns=round(cost.time_ns * factor))
                for name, cost in self.costs.items()
            }
        )

    def time_ns(self, op: str) -> int:
        """Return the time of the op.

        Raises:
            KeyError: the op has no cost.
        """
        return self.costs[op].time_ns
