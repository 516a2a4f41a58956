"""Strong and weak scaling, told from candidates that split the batch."""

from __future__ import annotations

from dataclasses import replace

from sample_analysis import sample, with_batch

from placement_advisor.measurement.measurement import Interval
from placement_advisor.report.analysis.statements import scaling_lines
from placement_advisor.results.analysis import scaling


def test_strong_scaling_keeps_the_global_batch_and_weak_scaling_that_of_each_device():
    rows = scaling(with_batch().candidates)
    assert [(row.name, row.candidate, row.devices, row.batch) for row in rows] == [
        ("single", "single", 1, 32),
        ("strong scaling", "batch", 2, 32),
        ("strong scaling", "mirrored", 2, 32),
        ("weak scaling", "batch", 2, 64),
        ("weak scaling", "mirrored", 2, 64),
    ]
    assert [row.measured_ns for row in rows[-2:]] == [None, 80_000_000]


def test_throughput_stands_beside_step_time_with_its_basis():
    _, strong, *_ = scaling(with_batch().candidates)
    lines = scaling_lines(with_batch().candidates)
    # 64 samples in 60 ms. One device with as many did not run, nor is it known by one with half.
    assert lines[3] == (
        "weak scaling (batch), 2 devices, 64 samples a step: 60.0 ms, 1,067 samples/s (simulated)"
    )
    assert " (measured); " in lines[1]
    # The verdict's own, a median of ratios within rounds.
    assert " samples/s, 1.69× within rounds (measured); " in lines[1]
    assert lines[1].endswith("(simulated)")
    assert strong.measured_ns is not None
    assert "learning rate" in lines[-1]


def test_a_measured_speed_up_is_the_one_of_the_table_though_medians_of_steps_have_another():
    analysis = with_batch()
    batch = analysis.candidates[-2]
    comparison = replace(batch.comparison, ratio=Interval(median=1.25, low=1.0, high=1.5))
    candidates = (*analysis.candidates[:-2], replace(batch, comparison=comparison))
    assert ", 0.80× within rounds (measured)" in scaling_lines(candidates)[1]


def test_where_the_batch_was_not_split_there_is_nothing_to_say():
    assert scaling(sample().candidates) == ()
    assert scaling_lines(sample().candidates) == []
