"""Ranges of clocks from questions and answers."""

from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.machine.clock_range import (
    DRIFT_PPM,
    ClockRange,
    Ping,
    drifted_ns,
    range_of_pings,
)

SECOND_NS = 1_000_000_000


def test_ranges_by_hand():
    # Asked at 100, answered at 160; in between the other clock read 1130.
    found = range_of_pings([Ping(asked_ns=100, read_ns=1_130, answered_ns=160)], at_ns=130)
    # If it was read at once it is 1030 ahead, if at the end 970; clocks drift by 1 at most.
    assert found == ClockRange(low_ns=970 - 1, high_ns=1_030 + 1)
    assert (found.offset_ns, found.uncertainty_ns) == (1_000, 31)

    slow_there = Ping(asked_ns=0, read_ns=90, answered_ns=100)
    slow_back = Ping(asked_ns=200, read_ns=220, answered_ns=300)
    assert range_of_pings([slow_there, slow_back], at_ns=150) == ClockRange(
        low_ns=90 - 100 - 1, high_ns=220 - 200 + 1
    )

    ping = Ping(asked_ns=0, read_ns=10, answered_ns=20)
    later = range_of_pings([ping], at_ns=10 * SECOND_NS)
    assert drifted_ns(10 * SECOND_NS) == 10 * SECOND_NS * DRIFT_PPM // 1_000_000
    assert later == ClockRange(low_ns=-10 - 300_000, high_ns=10 + 300_000)

    before = Ping(asked_ns=0, read_ns=10, answered_ns=20)
    after = Ping(asked_ns=100, read_ns=1_110, answered_ns=120)
    assert range_of_pings([before, after], at_ns=60) is None


@given(
    st.integers(-(10**18), 10**18),
    st.floats(-DRIFT_PPM, DRIFT_PPM),
    st.lists(
        st.tuples(st.integers(0, 20 * SECOND_NS), st.integers(0, 10**9), st.integers(0, 10**9)),
        min_size=1,
    ),
    st.integers(0, 20 * SECOND_NS),
)
def test_the_truth_is_in_the_range_however_long_the_ways_are(offset_ns, ppm, pings, at_ns):
    def ahead_ns(moment_ns):
        return offset_ns + round(ppm * 1e-6 * moment_ns)

    answers = [
        Ping(asked_ns=a, read_ns=a + there + ahead_ns(a + there), answered_ns=a + there + back)
        for a, there, back in pings
    ]
    found = range_of_pings(answers, at_ns)
    # Rounding a drift to whole ns is off by one at most.
    assert found.low_ns - 1 <= ahead_ns(at_ns) <= found.high_ns + 1
    assert abs(found.offset_ns - ahead_ns(at_ns)) <= found.uncertainty_ns + 1
