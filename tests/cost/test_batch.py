import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.batch import (
    BatchTime,
    Throughput,
    best_split,
    fit_batch_time,
    larger_batch,
    split_step,
)
from placement_advisor.errors import AdvisorError

MS = 1_000_000
FAST = BatchTime(fixed_ns=10 * MS, per_sample_ns=1.0 * MS)
SLOW = BatchTime(fixed_ns=10 * MS, per_sample_ns=2.0 * MS)
FREE = BatchTime(fixed_ns=0, per_sample_ns=1.0 * MS)

cards = st.builds(BatchTime, fixed_ns=st.integers(0, 100 * MS), per_sample_ns=st.floats(1, 10 * MS))


def test_a_fit_weighs_relative_errors():
    # One point each way off 10 + n ms by a tenth: the line keeps to both alike.
    points = [
        Throughput(batch=10, samples_per_s=10 / 0.022),
        Throughput(batch=10, samples_per_s=10 / 0.018),
        Throughput(batch=990, samples_per_s=990 / 1.1),
        Throughput(batch=990, samples_per_s=990 / 0.9),
    ]
    card = fit_batch_time(points)
    assert card.step_ns(10) / 20e6 == pytest.approx(card.step_ns(990) / 1e9, rel=1e-6)


def test_a_synchronous_step_waits_for_the_slowest_card():
    # 10 + 40 against 10 + 2 · 20 ms.
    step = split_step([FAST, SLOW], [40, 20])
    assert (step.slowest_ns, FAST.step_ns(0)) == (50 * MS, 0)
    assert step.most_samples_per_s == pytest.approx(1200)


def test_the_best_rate_of_an_even_step_is_that_of_a_further_sample():
    # It takes 1,000 ns and 10 for each sample.
    found = larger_batch(lambda n: 1_000 + 10 * n, 8, is_even=True)
    assert found.best_samples_per_s == pytest.approx(1e8)


@pytest.mark.parametrize(
    ("cards", "batch", "most", "split"),
    [
        ([FAST, SLOW], 60, [None] * 2, (40, 20)),  # Both are equally late.
        ([FAST, SLOW], 60, [30, None], (30, 30)),  # Memory bends it.
        # A card that costs more than it saves gets nothing.
        ([FREE, BatchTime(fixed_ns=100 * MS, per_sample_ns=1.0 * MS)], 60, [None] * 2, (60, 0)),
        # Of equally fast splits earlier cards get more: 2 ms have room for six samples.
        ([FREE, FREE, FREE], 5, [None] * 3, (2, 2, 1)),
    ],
)
def test_the_best_split_by_hand(cards, batch, most, split):
    assert best_split(cards, batch, most).batches == split


def test_a_line_needs_two_sizes_and_a_split_room_for_the_batch():
    card = BatchTime(fixed_ns=0, per_sample_ns=1.0)
    with pytest.raises(AdvisorError, match="batch of 100 does not fit: the cards hold 60 samples"):
        best_split([card, card], 100, most=[30, 30])
    with pytest.raises(AdvisorError, match="at 1 distinct batch sizes"):
        fit_batch_time([Throughput(batch=8, samples_per_s=rate) for rate in (1, 2)])


@pytest.mark.parametrize(("batch", "rate"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, float("nan"))])
def test_a_measurement_without_samples_or_time_is_refused(batch, rate):
    with pytest.raises(AdvisorError, match="must be positive"):
        Throughput(batch=batch, samples_per_s=rate)


@given(st.lists(cards, min_size=1, max_size=3), st.integers(0, 12), st.data())
def test_no_split_that_fits_is_faster_than_the_best(several, batch, data):
    limit = st.one_of(st.none(), st.integers(0, 12))
    most = data.draw(st.lists(limit, min_size=len(several), max_size=len(several)))
    rooms = [batch if limit is None else limit for limit in most]
    splits = [
        split
        for split in itertools.product(range(batch + 1), repeat=len(several))
        if sum(split) == batch and all(n <= room for n, room in zip(split, rooms, strict=True))
    ]
    if not splits:
        with pytest.raises(AdvisorError, match="does not fit"):
            best_split(several, batch, most)
        return
    found = best_split(several, batch, most)
    assert found.batches in splits
    assert found.slowest_ns == min(split_step(several, split).slowest_ns for split in splits)
