import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.lines import relative_line


def test_two_points_lie_on_their_line():
    assert relative_line([(0, 5.0), (10, 25.0)]) == pytest.approx((5, 2))


@pytest.mark.parametrize("points", [[], [(0, 5.0), (10, 0.0)], [(0, -1.0), (10, 25.0)]])
def test_a_line_needs_points_and_each_of_them_a_positive_time(points):
    with pytest.raises(ValueError, match="positive times"):
        relative_line(points)


SIZES = st.integers(0, 2**24)
FACTORS = st.sampled_from([0.5, 0.9, 1.1, 2.0])
LEAST = 1e-3


@given(st.floats(1, 1e6), st.floats(0, 1e3), st.lists(SIZES, min_size=2, max_size=8, unique=True))
def test_points_on_a_line_give_that_line_back(fixed, slope, sizes):
    points = [(size, fixed + slope * size) for size in sizes]
    found_fixed, found_slope = relative_line(points)
    for size, time in points:
        assert found_fixed + found_slope * size == pytest.approx(time, rel=1e-6)


@given(
    st.lists(
        st.tuples(SIZES, st.integers(1, 10**10)),
        min_size=2,
        max_size=12,
        unique_by=lambda point: point[0],
    ),
    FACTORS,
    FACTORS,
)
def test_no_part_is_below_its_least_and_no_other_such_line_has_smaller_errors(
    points, of_fixed, of_slope
):
    def error(fixed, slope):
        return sum(((fixed + slope * size) / time - 1) ** 2 for size, time in points)

    fixed, slope = relative_line(points, least_slope=LEAST)
    assert fixed >= 0
    assert slope >= LEAST
    other = error(fixed * of_fixed, max(slope * of_slope, LEAST))
    assert error(fixed, slope) <= other * (1 + 1e-6) + 1e-6
