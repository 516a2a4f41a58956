"""Properties of the summary of any recorded steps."""

from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.steps import Copy, RecordedStep, Work, summarise

DEVICES = ("worker:0", "worker:1")
STEP_NS = 60

intervals = st.tuples(st.integers(0, STEP_NS), st.integers(0, STEP_NS)).map(sorted).map(tuple)


def points(of_intervals) -> set[int]:
    """The whole nanoseconds that the intervals cover."""
    return {point for start, end in of_intervals for point in range(start, end)}


def step_of(work, copies) -> RecordedStep:
    return RecordedStep(
        start_ns=0,
        end_ns=STEP_NS,
        work=[
            Work(
                device=device,
                op="a",
                row="Mul",
                start_ns=start,
                end_ns=end,
                own_ns=end - start,
            )
            for device, (start, end) in work
        ],
        copies=[
            Copy(
                source=DEVICES[0],
                target=DEVICES[1],
                waiting=DEVICES[1],
                tensor="a:0",
                row="copy",
                size_bytes=1,
                size_basis=SizeBasis.SHAPES,
                start_ns=start,
                end_ns=end,
            )
            for start, end in copies
        ],
    )


@given(
    st.lists(st.tuples(st.sampled_from(DEVICES), intervals), max_size=5),
    st.lists(intervals, min_size=1, max_size=4),
)
def test_compute_and_exposed_time_of_any_step_are_those_counted_by_nanosecond(work, copies):
    profile = summarise([step_of(work, copies)], DEVICES)

    busy = {device: points(span for on, span in work if on == device) for device in DEVICES}
    assert profile.compute_ns == {device: len(busy[device]) for device in DEVICES}
    (total,) = profile.transfers
    assert total.exposed_ns == len(points(copies) - busy[DEVICES[1]])
    assert total.exposed_ns <= total.time_ns == len(points(copies))
    assert profile.exposed_by_device == {DEVICES[0]: 0, DEVICES[1]: total.exposed_ns}
    # What lies within a step breaks no law of it.
    assert profile.broken_laws == ()
    assert (total.count, total.size_bytes) == (len(copies), len(copies))


def test_a_pair_that_copies_in_few_steps_has_a_median_of_nothing():
    with_copy = step_of([(DEVICES[0], (0, 10))], [(0, 10)])
    without = step_of([(DEVICES[0], (0, 10))], [])

    (total,) = summarise([with_copy, without, without], DEVICES).transfers

    assert (total.count, total.size_bytes, total.time_ns, total.exposed_ns) == (0, 0, 0, 0)
