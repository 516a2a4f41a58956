from __future__ import annotations

import pytest

from placement_advisor.cost.table import CostBasis, CostTable, OpCost


def test_shares_by_basis_are_shares_of_the_time() -> None:
    table = CostTable(
        costs={
            "x": OpCost(time_ns=60, basis=CostBasis.MEASURED),
            "y": OpCost(time_ns=15, basis=CostBasis.MEASURED),
            "z": OpCost(time_ns=25, basis=CostBasis.GUESSED),
        }
    )
    assert table.basis_shares() == {
        CostBasis.MEASURED: 0.75,
        CostBasis.ROOFLINE: 0.0,
        CostBasis.GUESSED: 0.25,
    }


def test_an_empty_table_has_no_shares() -> None:
    assert set(CostTable(costs={}).basis_shares().values()) == {0.0}


def test_an_op_without_a_cost_has_no_price() -> None:
    with pytest.raises(KeyError, match="x"):
        CostTable(costs={}).time_ns("x")
