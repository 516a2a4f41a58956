"""Batches: what they take, how they are best split, what memory they need, and what is advised."""

import itertools
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.cost.batch import (
    TILE,
    Balance,
    BatchMemory,
    BatchTime,
    Throughput,
    best_batch,
    best_split,
    fit_batch_memory,
    fit_batch_time,
    larger_batch,
    largest_alone,
    other_batches,
    sizes_to_time,
    speed_of,
    split_step,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.devices import Device

MS = MB = 1_000_000
UNLIMITED = (None, None)
FAST = BatchTime(fixed_ns=10 * MS, per_sample_ns=1.0 * MS)
SLOW = BatchTime(fixed_ns=10 * MS, per_sample_ns=2.0 * MS)
FREE = BatchTime(fixed_ns=0, per_sample_ns=1.0 * MS)

cards = st.builds(BatchTime, fixed_ns=st.integers(0, 100 * MS), per_sample_ns=st.floats(1, 10 * MS))


def test_a_fit_weighs_relative_errors():
    # One point each way off 10 + n ms by a tenth: the line keeps to both alike.
    took_s = (10, 0.022), (10, 0.018), (990, 1.1), (990, 0.9)
    card = fit_batch_time([Throughput(batch=n, samples_per_s=n / time_s) for n, time_s in took_s])
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
    assert found.peak is None
    # Of one that takes 4,096 ns and the square of its samples, that of 64.
    assert larger_batch(lambda n: 4_096 + n * n, 8, is_even=False).peak == 64


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
    with pytest.raises(AdvisorError, match="batch of 100 does not fit: the cards hold 60 samples"):
        best_split([FREE, FREE], 100, most=[30, 30])
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


def test_the_line_goes_through_the_two_largest_batches_and_no_part_is_negative():
    # The smallest is held up by something that does not grow.
    found = fit_batch_memory({8: 500 * MB, 16: 500 * MB, 32: 740 * MB})
    assert found == BatchMemory(fixed_bytes=260 * MB, per_sample_bytes=15 * MB)
    assert found.peak_bytes(64) == 1220 * MB

    assert fit_batch_memory({1: 10, 2: 30}) == BatchMemory(fixed_bytes=0, per_sample_bytes=15)
    assert fit_batch_memory({1: 30, 2: 10}) == BatchMemory(fixed_bytes=10, per_sample_bytes=0)


def test_a_step_whose_batch_changes_nothing_has_no_largest_nor_a_best_batch():
    found = fit_batch_memory({16: 30 * MB, 32: 30 * MB})
    assert found.largest_batch(30 * MB) is None
    assert found.largest_batch(29 * MB) == 0
    assert fit_batch_memory({4: 7 * MB}) == BatchMemory(fixed_bytes=7 * MB, per_sample_bytes=0)

    card = BatchTime(fixed_ns=5, per_sample_ns=1)
    assert best_batch([card, card], [4, None]) is None


@given(st.integers(0, 10**12), st.floats(1, 10**9), st.integers(1, 10**13), st.integers(1, 10**6))
def test_the_largest_batch_fits_and_one_more_does_not(fixed, each, there, off):
    memory = BatchMemory(fixed_bytes=fixed, per_sample_bytes=each)
    most = memory.largest_batch(there)
    assert memory.largest_batch(None) is None
    if most:
        assert memory.peak_bytes(most) <= there + 1
    assert memory.peak_bytes(most + off) >= there


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(100, 10**4), st.integers(1, 10**4)),
        min_size=1,
        max_size=3,
    ),
    st.floats(1e-3, 1),
)
def test_no_batch_that_fits_makes_more_samples_per_second(devices, part):
    cards = [BatchTime(fixed_ns=a, per_sample_ns=b) for a, b, _ in devices]
    most = [limit for *_, limit in devices]
    best = best_batch(cards, most)
    step_ns = part * max(c.step_ns(limit) for c, limit in zip(cards, most, strict=True))
    # Of parts of samples, all that the cards compute in that time.
    done = sum(
        min(limit, max(0.0, (step_ns - card.fixed_ns) / card.per_sample_ns))
        for card, limit in zip(cards, most, strict=True)
    )
    whole = done - TILE * len(cards)  # Rounding down takes less than a tile of each card.
    assert whole / step_ns * 1e9 <= best.most_samples_per_s * (1 + 1e-9)


def device(name, fixed_ms, per_sample_ms):
    times = {n: [round((fixed_ms + per_sample_ms * n) * MS)] * 5 for n in (32, 16, 8)}
    return speed_of(name, times)


def test_a_device_is_found_on_its_line_or_says_how_far_off_it_is():
    found = device("a", 2, 0.25)
    assert found.line.fixed_ns == pytest.approx(2 * MS, rel=1e-6)
    assert found.line.per_sample_ns == pytest.approx(0.25 * MS)
    assert found.residuals == pytest.approx([0, 0, 0], abs=1e-6)

    found = speed_of("a", {32: [10 * MS], 16: [10 * MS], 8: [10 * MS, 10 * MS]})
    assert found.line.per_sample_ns == pytest.approx(0, abs=1)
    bent = speed_of("a", {32: [30 * MS], 16: [10 * MS], 8: [9 * MS]})
    assert max(map(abs, bent.residuals)) > 0.05


def test_a_device_is_timed_at_a_half_and_a_quarter_and_its_slow_tenth_is_left_out():
    noisy = {n: [n * MS] * 18 + [100 * n * MS, 1] for n in (32, 16)}
    assert speed_of("a", noisy).line.step_ns(32) == pytest.approx(32 * MS, rel=1e-6)
    assert sizes_to_time(32) == (32, 16, 8)
    assert sizes_to_time(3) == (3, 1)
    assert sizes_to_time(1) == (1,)


def test_the_best_split_makes_both_devices_equally_late_within_their_memory():
    # 2 + n/4 ms against 4 + n/2 ms: 24 samples take 8 ms there, 8 samples 8 ms here.
    devices = [device("a", 2, 0.25), device("b", 4, 0.5)]
    lines = [each.line for each in devices]
    best = best_split(lines, 32, UNLIMITED)
    assert best.batches == (24, 8)
    assert best.slowest_ns == pytest.approx(8 * MS, rel=1e-6)
    batches = [sum(split.batches) for split in other_batches(devices, 32, UNLIMITED)]
    assert batches == [16, 32, 64, 128]

    # A device gets no more than its memory holds.
    best = best_split(lines, 32, (20, None))
    assert best.batches == (20, 12)
    assert [sum(s.batches) for s in other_batches(devices, 32, (20, 50))] == [16, 32, 64]


def held(*memory_mb):
    return [
        Device(name=f"GPU:{i}", kind="GPU", memory_bytes=None if size is None else size * MB)
        for i, size in enumerate(memory_mb)
    ]


def test_devices_are_timed_alone_at_what_each_of_them_holds_and_no_larger_batch_is_taken():
    memory = BatchMemory(fixed_bytes=100 * MB, per_sample_bytes=10 * MB)
    assert largest_alone(32, held(None, None), memory) == 32
    assert largest_alone(32, held(300, None), memory) == 20
    assert largest_alone(32, held(300, 220), memory) == 12
    with pytest.raises(AdvisorError, match=r"batch of 33 does not fit: the devices hold 32") as why:
        largest_alone(33, held(300, 220), memory)
    assert why.value.hint == "--batch-size 32"
    with pytest.raises(AdvisorError, match=r"GPU:1 has 105 MB: the step holds 110 MB for one"):
        largest_alone(4, held(300, 105), memory)


def balance_of(batch, *devices):
    nothing = dict.fromkeys(field.name for field in fields(Balance))
    return Balance(**nothing | {"batch": batch, "devices": devices})


def test_the_fastest_device_is_the_one_that_makes_most_of_a_whole_batch_that_it_held():
    # 32 samples take 18 ms on a and 16 ms on b; 8 samples take 6 ms on a and 10 ms on b.
    devices = device("a", 2, 0.5), device("b", 8, 0.25)
    assert balance_of(32, *devices).fastest_alone == ("b", pytest.approx(2_000))
    assert balance_of(8, *devices).fastest_alone == ("a", pytest.approx(8 / 0.006))
    assert balance_of(64, *devices).fastest_alone is None
