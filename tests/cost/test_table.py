import pytest

from placement_advisor.cost.table import ASSUMED_WITHIN, CostBasis, CostTable, OpCost


def kernel(time_ns, within):
    return OpCost(time_ns=time_ns, basis=CostBasis.KERNEL, within=within)


def test_a_scaled_table_is_known_as_well_as_before_and_has_no_price_of_other_ops():
    table = CostTable(costs={"x": kernel(10, 1.1)})
    assert table.scaled(2.0).costs == {"x": kernel(20, 1.1)}
    with pytest.raises(KeyError, match="x"):
        CostTable(costs={}).time_ns("x")


def test_the_time_of_all_ops_is_within_the_mean_of_their_factors_or_what_is_assumed_by_hand():
    # A third of the time is within 1.1, two thirds are assumed.
    table = CostTable(costs={"x": kernel(100, 1.1), "y": kernel(200, None)})
    assert table.total_within == pytest.approx((1.1 * 2 * 2) ** (1 / 3))
    for costs in ({}, {"x": kernel(100, None)}, {"x": kernel(0, 1.1)}):
        assert CostTable(costs=costs).total_within == pytest.approx(ASSUMED_WITHIN)
