"""Shares of a batch from what each device takes alone."""

from __future__ import annotations

import pytest

from placement_advisor.cost.balance import (
    best_by_lines,
    other_batches,
    sizes_to_time,
    speed_of,
)
from placement_advisor.errors import AdvisorError

MS = 1_000_000


def device(name: str, fixed_ms: float, per_sample_ms: float):
    times = {n: [round((fixed_ms + per_sample_ms * n) * MS)] * 5 for n in (32, 16, 8)}
    return speed_of(name, times)


def test_a_device_on_a_line_is_found_on_it():
    found = device("a", 2, 0.25)
    assert found.line.fixed_ns == pytest.approx(2 * MS, rel=1e-6)
    assert found.line.per_sample_ns == pytest.approx(0.25 * MS)
    assert found.residuals == pytest.approx([0, 0, 0], abs=1e-6)


def test_a_device_that_is_off_its_line_says_by_how_much():
    found = speed_of("a", {32: [10 * MS], 16: [10 * MS], 8: [10 * MS, 10 * MS]})
    assert found.line.per_sample_ns == pytest.approx(0, abs=1)
    bent = speed_of("a", {32: [30 * MS], 16: [10 * MS], 8: [9 * MS]})
    assert max(map(abs, bent.residuals)) > 0.05


def test_the_slow_tenth_at_either_end_is_left_out():
    noisy = {n: [n * MS] * 18 + [100 * n * MS, 1] for n in (32, 16)}
    assert speed_of("a", noisy).line.step_ns(32) == pytest.approx(32 * MS, rel=1e-6)


def test_the_best_split_makes_both_devices_equally_late():
    # 2 + n/4 ms against 4 + n/2 ms: 24 samples take 8 ms there, 8 samples 8 ms here.
    devices = [device("a", 2, 0.25), device("b", 4, 0.5)]
    best = best_by_lines(devices, 32)
    assert best.batches == (24, 8)
    assert best.slowest_ns == pytest.approx(8 * MS, rel=1e-6)
    assert [sum(split.batches) for split in other_batches(devices, 32)] == [16, 32, 64, 128]


def test_devices_are_timed_at_the_batch_a_half_and_a_quarter_of_it():
    assert sizes_to_time(32) == (32, 16, 8)
    assert sizes_to_time(3) == (3, 1)
    assert sizes_to_time(1) == (1,)


def test_a_batch_of_one_has_no_line():
    with pytest.raises(AdvisorError, match="1 distinct batch sizes"):
        speed_of("a", {1: [MS]})
