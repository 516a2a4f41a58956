"""How wrong costs may be: assumed ones, such as were recorded elsewhere, and measured ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.cost.table import ASSUMED_WITHIN
from placement_advisor.simulator.sensitivity import CostUncertainty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.cost.table import CostTable
    from placement_advisor.machine.devices import Cluster

# A roofline is within 2 for two kinds of op in three (docs/figures.md), most of which both sides of
# a ratio share: what is left between them is taken for a quarter, by judgement. Nobody has timed
# launches and copies there: twice and half as much is judgement, too.
ASSUMED_DOUBT = CostUncertainty(copies=2.0, launches=2.0, ops=1.25, may_hide_launches=True)
# What was recorded of links is their time without waiting and without the call that starts a copy.
# Judgement: between what is measured here and what is assumed.
RECORDED_DOUBT = CostUncertainty(copies=1.5, launches=2.0, ops=1.1, may_hide_launches=True)
# Where both were measured: meant to hold nine in ten ratios (docs/cost-model.md: how many it did).
MEASURED_DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
# Ops were measured here, and copies were not.
OWN_PROCESS_DOUBT = replace(MEASURED_DOUBT, copies=ASSUMED_DOUBT.copies)


def assumed_doubt(costs: Mapping[str, CostTable], cluster: Cluster) -> CostUncertainty:
    """Return how wrong assumed costs may be, by the device whose ops are known least.

    Ops within `ASSUMED_WITHIN` give `ASSUMED_DOUBT`, exact ones what recorded ones have. Between
    them errors of ops and of all else are independent: squares of logarithms add up.
    """
    within = max(costs[device.name].total_within for device in cluster.devices)
    share = math.log(within) / math.log(ASSUMED_WITHIN)
    known, assumed = RECORDED_DOUBT, ASSUMED_DOUBT
    return CostUncertainty(
        copies=_between(known.copies, assumed.copies, share),
        launches=_between(known.launches, assumed.launches, share),
        ops=_between(known.ops, assumed.ops, share),
        may_hide_launches=True,
    )


def _between(known: float, assumed: float, share: float) -> float:
    """Return the factor where ops are off by a share of what is assumed of them, to two digits."""
    square, most = math.log(known) ** 2, math.log(assumed) ** 2
    return round(math.exp(math.sqrt(square + share**2 * (most - square))), 2)
