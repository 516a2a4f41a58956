"""A model on ever more devices of a machine."""

from __future__ import annotations

import pytest
from split_steps import split_towers, two_towers

from placement_advisor.analysis.compare_hardware import HostTraces, scaled_machine
from placement_advisor.analysis.machine_scaling import Excess, Scaling
from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.split_graph import unsplit
from placement_advisor.machine.hierarchy import read_machine


def test_what_a_larger_batch_brings_one_device_is_not_what_further_devices_bring() -> None:
    # A step that waits for launches takes as long with twice the samples.
    twice = two_towers(8)
    traces = HostTraces(unsplit(two_towers(8), 8), {2: split_towers(2)}, {2: twice})
    found = scaled_machine(read_machine("2xT4"), traces, None)
    first, larger = found.alone
    assert (first.samples, larger.samples) == (8, 16)
    assert larger.step_ns == first.step_ns
    (split,) = (s for s in found.steps if (s.family, s.scaling) == (towers.TOWERS, Scaling.WEAK))
    assert split.samples == 16
    one, best = found.best(Scaling.WEAK)
    assert one.samples_per_s == first.samples_per_s
    assert best.step_ns <= split.step_ns
    assert best.alone_per_s == larger.samples_per_s
    assert best.samples_per_s / first.samples_per_s > 2
    assert best.speedup is not None
    assert best.speedup.median == pytest.approx(best.samples_per_s / larger.samples_per_s)
    assert best.speedup.median < 2


@pytest.mark.parametrize("machine", ["8xT4", "8xV100-NVLink", "2x(4xA100)-InfiniBand200"])
@pytest.mark.parametrize("work", [10**4, 10**7, 10**9])
def test_no_row_is_more_than_its_devices_unless_launches_explain_it(
    machine: str, work: int
) -> None:
    counts = (2, 4, 8)
    traces = HostTraces(
        unsplit(two_towers(8, work), 8),
        {count: split_towers(count) for count in counts},
        {count: two_towers(8 * count, work) for count in counts},
    )
    found = scaled_machine(read_machine(machine), traces, None)
    weak = found.best(Scaling.WEAK)
    assert [row.devices for row in weak] == [1, *counts]
    for row in weak[1:]:
        assert row.ratio is not None
        assert row.ratio.low <= row.ratio.ratio <= row.ratio.high
        assert row.excess is not Excess.UNEXPLAINED
        assert (row.efficiency is None) == (row.excess is Excess.LAUNCHES)
        assert row.efficiency is None or row.efficiency <= 1
    # One device more never makes the best worse: it can be left out.
    per_s = [row.samples_per_s for row in weak]
    assert per_s == sorted(per_s)
