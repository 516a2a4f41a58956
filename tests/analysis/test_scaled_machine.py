"""A model on ever more devices of a machine."""

from __future__ import annotations

from split_steps import split_towers, two_towers

from placement_advisor.analysis.host_traces import HostTraces
from placement_advisor.analysis.machine_scaling import Scaling
from placement_advisor.analysis.scaled_machine import scaled_machine
from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.split_traces import unsplit
from placement_advisor.machine.hierarchy import read_machine


def test_what_a_larger_batch_brings_one_device_is_not_what_split_layers_bring():
    # A step that waits for launches takes as long with twice the samples.
    twice = two_towers(8)
    traces = HostTraces(unsplit(two_towers(8), 8), {2: split_towers(2)}, {2: twice})
    found = scaled_machine(read_machine("2xT4"), traces, None)
    (one,) = found.larger
    first = found.steps[0]
    assert (first.samples, one.samples) == (8, 16)
    assert one.step_ns == first.step_ns
    (step,) = (s for s in found.steps if (s.family, s.scaling) == (towers.FAMILY, Scaling.WEAK))
    assert step.samples == one.samples
    assert step.efficiency == one.step_ns / step.step_ns / 2
    assert step.samples_per_s / first.samples_per_s > 2
    assert step.speedup < 2
