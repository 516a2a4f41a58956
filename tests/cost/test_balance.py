"""Shares of a batch from what each device takes alone."""

import pytest

from placement_advisor.cost.batch import (
    Balance,
    BatchMemory,
    SplitStep,
    best_split,
    largest_alone,
    other_batches,
    sizes_to_time,
    speed_of,
)
from placement_advisor.errors import AdvisorError
from placement_advisor.machine.devices import Device

MS = 1_000_000
MB = 1_000_000
FREE = (None, None)


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
    best = best_split(lines, 32, FREE)
    assert best.batches == (24, 8)
    assert best.slowest_ns == pytest.approx(8 * MS, rel=1e-6)
    assert [sum(split.batches) for split in other_batches(devices, 32, FREE)] == [16, 32, 64, 128]

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

    memory = BatchMemory(fixed_bytes=100 * MB, per_sample_bytes=10 * MB)
    with pytest.raises(AdvisorError, match=r"batch of 33 does not fit: the devices hold 32") as why:
        largest_alone(33, held(300, 220), memory)
    assert why.value.hint == "--batch-size 32"
    with pytest.raises(AdvisorError, match=r"GPU:1 has 105 MB: the step holds 110 MB for one"):
        largest_alone(4, held(300, 105), memory)


def balance_of(batch, *devices):
    nothing = SplitStep(batches=(), slowest_ns=0)
    return Balance(
        model="",
        testbed="",
        batch=batch,
        batch_was_asked=False,
        devices=devices,
        memory=BatchMemory(fixed_bytes=0, per_sample_bytes=0),
        most=FREE,
        best=nothing,
        even=nothing,
        others=(),
        best_batch=None,
        advised=(),
        tried={},
        warnings=(),
    )


def test_the_fastest_device_is_the_one_that_makes_most_of_a_whole_batch_that_it_held():
    # 32 samples take 18 ms on a and 16 ms on b; 8 samples take 6 ms on a and 10 ms on b.
    devices = device("a", 2, 0.5), device("b", 8, 0.25)
    assert balance_of(32, *devices).fastest_alone == ("b", pytest.approx(2_000))
    assert balance_of(8, *devices).fastest_alone == ("a", pytest.approx(8 / 0.006))

    assert balance_of(64, device("a", 2, 0.5), device("b", 8, 0.25)).fastest_alone is None
