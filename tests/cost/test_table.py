from __future__ import annotations

import pytest

from placement_advisor.cost.table import CostTable


def test_an_op_without_a_cost_has_no_price() -> None:
    with pytest.raises(KeyError, match="x"):
        CostTable(costs={}).time_ns("x")
