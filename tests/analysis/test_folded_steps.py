"""Steps that are put together for two replicas are simulated as those of which all ops are made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from split_steps import split_training, split_updates, training, two_updates

from placement_advisor.analysis.folded_steps import FoldedSteps
from placement_advisor.analysis.scaled_steps import peak_memory, simulated
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.cost.rings import ALL_DEVICES, ring_of_devices
from placement_advisor.machine.nccl_rings import Ring
from placement_advisor.machine.presets import read_hardware

NETWORK = Ring(members=4, bandwidth_bytes_per_s=3e9, message_ns=50_000, has_trees=True)


def rows(outline):
    runs = np.column_stack([outline.place, outline.run_ns]).tolist()
    copies = np.column_stack([outline.target, outline.copy_ns, outline.copy_bytes]).tolist()
    return sorted(runs), sorted(copies)


def shared_by(traces, count, of_samples):
    """Return the traces with two samples for each of so many replicas."""
    wiring = replace(traces.wiring, shares=(2,) * count)
    return replace(traces, whole=of_samples(2 * count), shares={2: of_samples(2)}, wiring=wiring)


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


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_that_does_not_fit_is_never_said_to_fit(family):
    cluster = read_hardware("8xRTX2080Ti")
    rings = [ring_of_devices(cluster)]
    traces = split_updates().weak(8)
    proposed = DataParallelSteps(traces).propose(family, cluster.devices, ALL_DEVICES)
    peaks = peak_memory(proposed, cluster, rings)
    most = max(peaks[device.name].size_bytes for device in cluster.devices)

    def fits(memory_bytes):
        devices = tuple(replace(d, memory_bytes=memory_bytes) for d in cluster.devices)
        there = replace(cluster, devices=devices)
        return FoldedSteps(there).simulated(family, traces.folded(), there, rings).surely_fits

    assert not fits(most - 1)
    assert fits(3 * most)
