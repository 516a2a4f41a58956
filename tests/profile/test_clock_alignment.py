"""Clocks of hosts, aligned by what crossed between them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.machine.clock_range import DRIFT_PPM, ClockRange
from placement_advisor.profile.worker_steps import HostClocks, TimedCopy, align_clocks

SECOND_NS = 1_000_000_000
MS = 1_000_000


def about(offset_ns, *, before_ns, after_ns):
    return ClockRange(low_ns=offset_ns - before_ns, high_ns=offset_ns + after_ns)


def aligned_by(ranges, copies):
    """Align by copies as (source, target, sent, arrived), moments as the clocks there read them."""
    clocks = HostClocks(host_of={host: host for host in ranges}, ranges=ranges)
    clock, ahead_ns = clocks.host_with_clock, clocks.ahead_ns
    seen = (
        TimedCopy(clock(a), clock(b), s - ahead_ns(a), t - ahead_ns(b)) for a, b, s, t in copies
    )
    return align_clocks(clocks, seen)


def test_two_hosts_by_hand():
    # By pings, b is ahead of a, which has the command's clock, by 900 to 1100.
    by_pings = {"b": about(1_000, before_ns=100, after_ns=100)}
    # Sent at 50 and there at 1090, b is ahead by 1040 at most; sent at 1200 and back at 220, by 980
    # at least.
    copies = [("a", "b", 50, 1_090), ("b", "a", 1_200, 220)]
    aligned = aligned_by(by_pings, copies)
    # Within a microsecond clocks drift by less than 1 ns, which counts as 1 thrice: for the
    # copy, for the profile; and the middle of the profile is a moment.
    assert aligned.contradiction_ns == 0
    found = aligned.ranges["b"]
    assert (found.low_ns, found.high_ns) == (980 - 2, 1_040 + 2)
    assert (found.offset_ns, found.uncertainty_ns) == (1_010, 32)


def test_what_a_third_host_saw_narrows_the_range_of_two_others():
    wide = {host: about(0, before_ns=10_000, after_ns=10_000) for host in ("b", "c")}
    # The command's machine and b exchange quick messages, so do b and c.
    copies = [(None, "b", 100, 120), ("b", None, 200, 230)]
    copies += [("b", "c", 300, 340), ("c", "b", 400, 450)]
    found = aligned_by(wide, copies).ranges
    assert (found["b"].low_ns, found["b"].high_ns) == (-30 - 2, 20 + 2)
    assert (found["c"].low_ns, found["c"].high_ns) == (-30 - 50 - 3, 20 + 40 + 3)


@pytest.mark.parametrize(
    "copies",
    # Two devices of one host: a clock that was set back shows, but no other clock is at fault.
    [[], [("b", "b", 1_000, 500)]],
    ids=["none", "within-a-host"],
)
def test_what_did_not_cross_between_hosts_leaves_what_pings_told(copies):
    by_pings = {"b": about(77, before_ns=5, after_ns=9)}
    found = aligned_by(by_pings, copies)
    assert found.contradiction_ns == 0
    assert found.ranges["b"].offset_ns == by_pings["b"].offset_ns
    assert found.ranges["b"].uncertainty_ns - by_pings["b"].uncertainty_ns in (0, 1)


def test_a_clock_that_was_set_is_a_contradiction_and_a_host_without_a_range_has_the_commands():
    by_pings = {"b": about(0, before_ns=100, after_ns=100)}
    # Copies take 100; before the second one, b was set ahead by 5000.
    copies = [(None, "b", 1_000, 1_100), ("b", None, 2_000 + 5_000, 2_100)]
    found = aligned_by(by_pings, copies)
    # b is ahead by 100 at most and by 4900 at least: both are off by 2400 or so.
    assert found.contradiction_ns == 2_400
    assert found.ranges["b"].low_ns <= 2_500 <= found.ranges["b"].high_ns
    assert found.ranges["b"].uncertainty_ns >= 2_400

    clocks = HostClocks(
        host_of={"b:0": "b", "c:0": "c"}, ranges={"b": about(70, before_ns=2, after_ns=2)}
    )
    assert [clocks.ahead_ns(device) for device in ("b:0", "c:0", "here:0")] == [70, 0, 0]


# Drifts are rounded to whole ns, once at each end of a copy.
ROUNDING_NS = 3


@given(st.integers(0, 2**32), st.floats(0, DRIFT_PPM), st.integers(0, 50 * MS))
def test_true_offsets_are_in_the_ranges_whatever_ways_take(seed, ppm, longest_ns):
    draw = random.Random(seed)
    hosts = [None, *(f"h{i}" for i in range(draw.randrange(1, 5)))]
    offset_ns = {host: draw.randrange(-(10**15), 10**15) if host else 0 for host in hosts}
    # Two clocks drift apart by the sum of what each does.
    rate = {host: draw.uniform(-ppm, ppm) * 1e-6 / 2 for host in hosts}
    length_ns = draw.choice((0, 10 * MS, SECOND_NS, 20 * SECOND_NS))

    def ahead_ns(host, moment_ns, rate):
        """How far the clock of a host, which drifts from the middle on, is ahead at a moment."""
        return offset_ns[host] + round(rate * (moment_ns - length_ns // 2))

    def read_ns(host, moment_ns):
        return moment_ns + ahead_ns(host, moment_ns, rate[host])

    by_pings = {}
    for host in hosts[1:]:
        there_ns, back_ns = (draw.randint(0, longest_ns) for _ in range(2))
        by_pings[host] = about(offset_ns[host], before_ns=back_ns, after_ns=there_ns)
    copies = []
    # Messages, also at the ends of the profile.
    for moment_ns in [0, length_ns, *(draw.randint(0, length_ns) for _ in range(20))]:
        source, target = draw.sample(hosts, 2)
        arrived_ns = read_ns(target, moment_ns + draw.randint(0, longest_ns))
        copies.append((source, target, read_ns(source, moment_ns), arrived_ns))
    aligned = aligned_by(by_pings, copies)
    assert aligned.contradiction_ns <= ROUNDING_NS
    for host, found in aligned.ranges.items():
        for moment_ns in (0, length_ns // 2, length_ns):
            true_ns = ahead_ns(host, moment_ns, rate[host] - rate[None])
            assert found.low_ns - ROUNDING_NS <= true_ns <= found.high_ns + ROUNDING_NS
            assert abs(found.offset_ns - true_ns) <= found.uncertainty_ns + ROUNDING_NS


HOSTS, MOMENTS_NS = st.sampled_from([None, "a", "b"]), st.integers(-MS, MS)


@given(st.lists(st.tuples(HOSTS, HOSTS, MOMENTS_NS, MOMENTS_NS)))
def test_whatever_was_seen_has_an_answer_that_says_how_far_it_contradicts_itself(seen):
    ranges = {"a": about(5, before_ns=5, after_ns=5), "b": about(-7, before_ns=0, after_ns=3)}
    aligned = aligned_by(ranges, seen)
    ahead_ns = {None: 0} | {host: found.offset_ns for host, found in aligned.ranges.items()}
    slack_ns = aligned.contradiction_ns + ROUNDING_NS + 2 * 4 * MS * DRIFT_PPM // 1_000_000
    for source, target, sent_ns, arrived_ns in seen:
        if source != target:
            took_ns = arrived_ns - ahead_ns[target] - sent_ns + ahead_ns[source]
            assert took_ns >= -slack_ns
    for found in aligned.ranges.values():
        assert found.low_ns <= found.high_ns
