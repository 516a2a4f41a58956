"""Laws of steps: met by whatever is summarised or compared, and named where figures break them."""

from dataclasses import replace

import sample_values
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement import invariants, measurement
from placement_advisor.simulator.schedule import OpRun, Schedule, Transfer

MS = 1_000_000


def run(rounds, profile=None):
    return sample_values.measurement(tuple(tuple(steps) for steps in rounds), profile=profile)


def profile(compute_ms, step_ms):
    return sample_values.step_profile(
        round(step_ms * MS),
        compute_ns={"worker:0": round(compute_ms * MS), "worker:1": 0},
        exposed_by_device={"worker:0": 0, "worker:1": 0},
    )


def laws(found):
    return [broken.law for broken in found]


@given(
    st.integers(0, 50),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 60)),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 60)),
)
def test_a_step_holds_what_each_device_computes_and_waits_for(step_ns, busy_ns, exposed_ns):
    filled = {name: busy_ns.get(name, 0) + exposed_ns.get(name, 0) for name in "ab"}
    found = invariants.step_violations(step_ns, busy_ns, exposed_ns, {})
    assert len(found) == sum(filled_ns > step_ns for filled_ns in filled.values())
    assert set(laws(found)) <= {measurement.Invariant.DEVICE_WITHIN_STEP}


def test_waits_do_not_add_up_over_devices_and_copies_stay_within_the_step():
    each = {"worker:0": 25_600_000, "worker:1": 25_600_000}
    assert invariants.step_violations(38_100_000, {}, each, {}) == ()
    (broken,) = invariants.step_violations(38_100_000, {}, {"worker:0": 51_200_000}, {})
    assert broken.what == (
        "worker:0 computes for 0 ns and waits exposed for 51.2 ms in a step of 38.1 ms"
    )
    (broken,) = invariants.step_violations(10, {}, {}, {("a", "b"): 10, ("b", "a"): 11})
    assert broken.law is measurement.Invariant.COPIES_WITHIN_STEP
    assert broken.what == "copies from b to a are under way for 11 ns in a step of 10 ns"


def test_a_profile_of_another_step_than_the_timed_one_is_found_out():
    # As of a step under tf.distribute that was profiled with the whole batch on every device.
    timed = [(23_700_000,)] * 5
    (broken,) = invariants.measurement_violations(run(timed, profile(44.1, 46.0)))
    assert broken.law is measurement.Invariant.PROFILE_OF_TIMED_STEP
    assert broken.what == (
        "worker:0 computes for 44.1 ms in the profiled steps, where the timed ones last 23.7 ms"
    )
    assert invariants.measurement_violations(run(timed, profile(22.0, 23.0))) == ()
    # A quarter longer is allowed.
    assert invariants.measurement_violations(run([(20 * MS,)] * 5, profile(25.0, 26.0))) == ()
    assert invariants.measurement_violations(run(timed)) == ()


rounds = st.lists(st.integers(1, 1_000), min_size=1, max_size=4)


@given(st.lists(st.tuples(rounds, rounds), min_size=measurement.least_samples(), max_size=20))
def test_whatever_is_compared_has_a_ratio_that_agrees_with_its_rounds(pairs):
    single, split = run(pair[0] for pair in pairs), run(pair[1] for pair in pairs)
    comparison = measurement.compare("single", single.rounds, split.rounds, among=1)
    assert invariants.comparison_violations(comparison, single, split) == ()


def test_ratios_that_their_rounds_do_not_have_are_found_out():
    single, split = run([(10,), (12,), (11,)]), run([(20,), (21,), (23,)])

    def found(**ratio):
        interval = measurement.Interval(**ratio)
        compared = measurement.Comparison(baseline="single", ratio=interval, rounds=3)
        return laws(invariants.comparison_violations(compared, single, split))

    assert found(median=2.0, low=1.75, high=2.1) == []
    # A speed-up taken for a ratio, and an interval of something else.
    assert found(median=0.5, low=0.48, high=0.57) == [measurement.Invariant.RATIO_AGREES]
    assert found(median=2.0, low=2.05, high=2.1) == [measurement.Invariant.RATIO_AGREES]
    assert found(median=2.0, low=1.75, high=1.95) == [measurement.Invariant.RATIO_AGREES]
    # The least of the rounds is 21 / 12, the largest 23 / 11.
    assert found(median=1.74, low=1.7, high=2.1) == [measurement.Invariant.RATIO_AGREES]
    assert found(median=2.1, low=1.75, high=2.2) == [measurement.Invariant.RATIO_AGREES]


def schedule(*transfers):
    return Schedule(
        label="towers",
        runs=(OpRun(op="x", device="a", ready_ns=0, start_ns=0, end_ns=5),),
        transfers=transfers,
        step_ns=10,
        compute_ns={"a": 5, "b": 0},
        exposed_by_device={"a": 0, "b": 5},
        peak_memory={},
    )


def hop(source, target, start_ns, end_ns, of="sum"):
    return Transfer(
        producer=f"{source}_to_{target}_{start_ns}",
        port=0,
        source=source,
        target=target,
        size_bytes=100,
        start_ns=start_ns,
        end_ns=end_ns,
        collective=of,
    )


def test_the_hops_of_a_collective_are_one_copy_and_parts_that_do_not_fit_are_named():
    found = schedule(
        hop("a", "b", 1, 3),
        hop("b", "a", 2, 4),
        hop("b", "a", 4, 5),
        hop("a", "b", 5, 7),
        hop("a", "b", 8, 9, of=None),
    )
    # Each device has joined when it first sends: a at 1, b at 2.
    assert sorted(
        (copy.source, copy.target, len(copy.transfers), copy.start_ns, copy.end_ns)
        for copy in found.copies
    ) == [("a", "b", 1, 8, 9), ("a", "b", 2, 1, 7), ("b", "a", 2, 1, 5)]
    assert (found.transfer_count, found.carried.amount) == (3, 500)
    assert found.transfer_ns == (6 + 1) + 4
    assert invariants.schedule_violations(found) == ()
    late = schedule(hop("a", "b", 6, 11))
    assert laws(invariants.schedule_violations(late)) == [measurement.Invariant.PARTS_ADD_UP]
    idle = replace(schedule(), exposed_by_device={"a": 6, "b": 0})
    assert laws(invariants.schedule_violations(idle)) == [measurement.Invariant.DEVICE_WITHIN_STEP]
