import pytest

from placement_advisor.cost.lines import relative_line


def test_two_points_lie_on_their_line():
    assert relative_line([(0, 5.0), (10, 25.0)]) == pytest.approx((5, 2))


@pytest.mark.parametrize("points", [[], [(0, 5.0), (10, 0.0)], [(0, -1.0), (10, 25.0)]])
def test_a_line_needs_points_and_each_of_them_a_positive_time(points):
    with pytest.raises(ValueError, match="positive times"):
        relative_line(points)
