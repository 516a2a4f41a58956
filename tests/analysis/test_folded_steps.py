"""Steps that are put together for two replicas are simulated as those of which all ops are made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_splits import simulated
from split_steps import split_training, split_updates, training, two_updates

from placement_advisor.analysis.scaled_steps import FoldedSteps, simulator_of
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.collectives import ALL_DEVICES, ring_of_devices
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.hierarchy import Ring
from placement_advisor.machine.presets import read_hardware

NETWORK = Ring(members=4, bandwidth_bytes_per_s=3e9, message_ns=50_000, has_trees=True)


def large(graph):
    """Return a step whose ops take microseconds: a slower device shows."""

    def times(size_bytes):
        return size_bytes and size_bytes * 1_000_000

    ops = [op._replace(output_bytes=tuple(map(times, op.output_bytes))) for op in graph.ops]
    ops = [op._replace(bytes_accessed=2 * sum(filter(None, op.output_bytes))) for op in ops]
    return OpGraph(ops, [edge._replace(size_bytes=times(edge.size_bytes)) for edge in graph.edges])


def rows(outline):
    names = np.array(outline.places)
    copied = np.column_stack([outline.copy_ns, outline.copy_bytes]).tolist()
    runs = zip(names[outline.place].tolist(), outline.run_ns.tolist(), strict=True)
    copies = zip(names[outline.target].tolist(), copied, strict=True)
    return sorted(runs), sorted(copies)


def shared_by(traces, count, of_samples):
    """Return the traces with two samples for each of so many replicas."""
    wiring = replace(traces.wiring, shares=(2,) * count)
    whole, share = large(of_samples(2 * count)), large(of_samples(2))
    return replace(traces, whole=whole, shares={2: share}, wiring=wiring)


@pytest.mark.parametrize(
    ("traces", "of_samples"),
    [(split_training(), training), (split_updates(), two_updates)],
    ids=["one", "two"],
)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("machine", ["3xT4", "8xV100-NVLink", "8xRTX2080Ti"])
@pytest.mark.parametrize("hosts", [1, 4])
def test_each_share_is_simulated_as_if_all_ops_were_made(
    traces, of_samples, family, machine, hosts
):
    host = read_hardware(machine)
    folded = FoldedSteps(host)
    traces = replace(
        traces, whole=large(traces.whole), shares={n: large(g) for n, g in traces.shares.items()}
    )
    for count in (2, len(host.devices)):
        cluster = host.with_devices(host.device_names()[:count])
        rings = [ring_of_devices(cluster), *([NETWORK] if hosts > 1 else [])]
        for sized in (traces.weak(count), shared_by(traces, count, of_samples)):
            steps = DataParallelSteps(sized)
            propose = steps.propose_on_hosts if hosts > 1 else steps.propose
            proposed = propose(family, cluster.devices, ALL_DEVICES)
            found = folded.simulated(family, sized.folded(), cluster, rings)
            if isinstance(proposed, NotApplicable):
                assert found == proposed
                continue
            expected = simulated(proposed, cluster, rings)
            assert rows(found.outline) == rows(expected)
            assert found.outline.step_ns == expected.step_ns


def on_eight(family, traces, memory_bytes=None):
    """Return a family's folded step on eight cards of so much memory, and the peak of each."""
    cluster = read_hardware("8xRTX2080Ti")
    devices = tuple(replace(device, memory_bytes=memory_bytes) for device in cluster.devices)
    cluster = replace(cluster, devices=devices)
    rings = [ring_of_devices(cluster)]
    folded = FoldedSteps(cluster)
    step = folded.simulated(family, traces.folded(), cluster, rings)
    proposed = DataParallelSteps(traces).propose(family, cluster.devices, ALL_DEVICES)
    simulator = simulator_of(proposed, cluster, rings)
    peaks = simulator.schedule(proposed.placement).peak_memory
    smaller = step.sized(split_updates().of_share(8).folded())
    return step, [peaks[device.name].size_bytes for device in devices], smaller


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_fits_where_its_replay_with_all_ops_fits(family):
    traces = split_updates().weak(8)
    most = max(on_eight(family, traces)[1])
    assert not on_eight(family, traces, most - 1)[0].memory.fits()
    assert on_eight(family, traces, most)[0].memory.fits()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_busiest_device_holds_what_a_replay_with_all_ops_says(family):
    step, peaks, smaller = on_eight(family, split_updates().weak(8), 1_000_000)
    assert step.memory.busiest(smaller).peak_bytes == max(peaks)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_batch_is_the_last_whose_step_fits(family):
    traces = split_updates().weak(8)
    step, _, smaller = on_eight(family, traces, 2_000)
    largest = step.memory.busiest(smaller).largest_batch

    def held(samples):
        wiring = replace(traces.wiring, shares=(samples,) * 8)
        sized = replace(traces, shares={samples: two_updates(samples)}, wiring=wiring)
        return max(on_eight(family, sized)[1])

    assert held(largest) <= 2_000 < held(largest + 1)


def test_what_has_no_memory_that_is_known_has_no_largest_batch():
    step, _, smaller = on_eight("mirrored", split_updates().weak(8))
    assert step.memory.busiest(smaller).largest_batch is None
    assert step.memory.fits()
