"""What recorded steps add up to: work, copies, waits, and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.steps import Copy, RecordedStep, Work, summarise, windows_of
from placement_advisor.profile.worker_steps import measured_memory
from placement_advisor.profile.xplane import Event, Line

DEVICES = ("worker:0", "worker:1")
STEP_NS = 60

intervals = st.tuples(st.integers(0, STEP_NS), st.integers(0, STEP_NS)).map(sorted).map(tuple)


def points(of_intervals):
    """The whole nanoseconds that the intervals cover."""
    return {point for start, end in of_intervals for point in range(start, end)}


def step_of(work, copies):
    return RecordedStep(
        start_ns=0,
        end_ns=STEP_NS,
        work=[
            Work(device=device, op="a", row="Mul", start_ns=start, end_ns=end, own_ns=end - start)
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


def change(at_ns, size_bytes):
    """Return the event of a piece that was taken, or given back if its size is negative."""
    name = "MemoryAllocation" if size_bytes > 0 else "MemoryDeallocation"
    # The piece that is found can be larger than what was asked for.
    stats = {"requested_bytes": abs(size_bytes), "allocation_bytes": 2 * abs(size_bytes)}
    return Event(name=name, start_ns=at_ns, duration_ns=0, stats=stats)


ONE_STEP = [(0, 99)]


@pytest.mark.parametrize(
    ("threads", "steps", "peaks"),
    [
        pytest.param(
            [[(10, 100), (20, 30), (30, -100), (40, 50), (50, -30), (60, -50)]],
            ONE_STEP,
            (130,),
            id="taken-and-not-given-back",
        ),
        pytest.param(
            [[(10, 100), (30, 60)], [(20, -100), (40, -60)]], ONE_STEP, (100,), id="several-threads"
        ),
        pytest.param(
            [[(10, 128), (55, -128), (110, 128), (155, -128)]],
            [(0, 50), (100, 150)],
            (128, 128),
            id="given-back-after-the-step",
        ),
        # An update takes a new piece for its variable and gives the old one back.
        pytest.param([[(10, 500), (20, -500)]], ONE_STEP, (500,), id="held-before-the-profile"),
        pytest.param(
            [[(10, 10), (20, -10), (110, 900), (120, -900), (210, 70), (220, -70)]],
            [(0, 50), (100, 150), (200, 250)],
            (10, 900, 70),
            id="each-step-by-itself",
        ),
        pytest.param([[(10, 100)]], [(20, 30)], (), id="nothing-within-a-step"),
        pytest.param([], [(20, 30)], (), id="nothing"),
    ],
)
def test_a_step_holds_at_most_what_it_took_and_had_not_given_back(threads, steps, peaks):
    lines = [Line(name="1", events=tuple(change(*each) for each in thread)) for thread in threads]
    assert measured_memory(lines, windows_of(steps)) == peaks
