from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_values import measurement, step_profile

from placement_advisor.measurement.measurement import (
    InputTiming,
    SizeBasis,
    TransferTotal,
    bootstrap_median,
)

SAMPLES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=30)


def profile(*sizes, step_ns=()):
    transfers = tuple(
        TransferTotal(
            source="a",
            target="b",
            count=2,
            size_bytes=size,
            size_basis=None if size is None else SizeBasis.PROFILE,
            time_ns=100,
            exposed_ns=40,
        )
        for size in sizes
    )
    return step_profile(*step_ns, transfers=transfers)


def test_no_samples_have_no_median_and_many_have_the_textbook_interval():
    with pytest.raises(ValueError, match="no samples"):
        bootstrap_median([])
    interval = bootstrap_median([float(i) for i in range(1, 101)])
    assert interval.median == 50.5
    assert interval.low == pytest.approx(40, abs=2)
    assert interval.high == pytest.approx(61, abs=2)


@given(SAMPLES)
def test_the_interval_holds_the_median_and_lies_among_the_samples(samples):
    interval = bootstrap_median(samples)
    assert interval == bootstrap_median(samples)
    assert min(samples) <= interval.low <= interval.median <= interval.high <= max(samples)


def test_overheads_and_rates_are_those_of_all_batches_and_unknown_where_one_side_is_missing():
    run = measurement(((100, 100), (400,)), profile=profile(step_ns=(120, 130, 900)))
    assert run.profiler_overhead == 1.3
    assert replace(run, profile=None).profiler_overhead is None
    assert replace(run, profile=profile()).profiler_overhead is None
    assert replace(run, rounds=()).profiler_overhead is None
    timing = InputTiming(batch_ns=(500_000, 500_000, 29_000_000), transformations=())
    assert timing.samples_per_s(10) == 1_000


def test_transfers_add_up_and_one_unknown_size_makes_the_bytes_unknown():
    shown = profile(10, 20)
    assert (shown.transfer_ns, shown.transfer_count, shown.transfer_bytes) == (200, 4, 30)
    assert shown.size_basis is SizeBasis.PROFILE
    unknown = profile(10, None)
    assert (unknown.transfer_bytes, unknown.size_basis) == (None, None)
    assert (profile().transfer_bytes, profile().size_basis) == (0, None)
    first, second = shown.transfers
    by_shape = replace(second, size_basis=SizeBasis.SHAPES)
    assert replace(shown, transfers=(first, by_shape)).size_basis is SizeBasis.SHAPES
