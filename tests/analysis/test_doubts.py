from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from placement_advisor.analysis.target_costs import (
    ASSUMED_UNCERTAINTY,
    RECORDED_UNCERTAINTY,
    assumed_uncertainty,
)
from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.machine.devices import Cluster, Device

if TYPE_CHECKING:
    from placement_advisor.simulator.sensitivity import CostUncertainty

CLUSTER = Cluster(
    devices=(Device(name="GPU:0", kind="GPU"), Device(name="GPU:1", kind="GPU")), links=()
)


def doubt(*within: float | None) -> CostUncertainty:
    """Return the doubt where the only op of each device is within these factors."""
    tables = [
        CostTable(costs={"x": OpCost(time_ns=10, basis=CostBasis.KERNEL, within=each)})
        for each in within
    ]
    return assumed_uncertainty(dict(zip(("GPU:0", "GPU:1"), tables, strict=True)), CLUSTER)


def test_without_a_record_the_blanket_factor_stays_and_exact_ops_are_like_recorded_ones() -> None:
    assert doubt(None, None) == ASSUMED_UNCERTAINTY
    assert doubt(1.0, 1.0) == RECORDED_UNCERTAINTY


def test_ops_that_are_half_as_doubtful_by_hand() -> None:
    # In logarithms, half of the way to twice: a quarter of the squares between 1.5 and 2.
    square = math.log(1.5) ** 2 + (math.log(2) ** 2 - math.log(1.5) ** 2) / 4
    found = doubt(math.sqrt(2), math.sqrt(2))
    assert found.copies == pytest.approx(math.exp(math.sqrt(square)), abs=0.005)
    assert (found.launches, found.ops) == (2.0, 1.15)


def test_the_device_that_is_known_least_decides() -> None:
    assert doubt(1.0, None) == doubt(None, 1.0) == ASSUMED_UNCERTAINTY
