"""Layers split within hosts, the batch among them: one host steps as all of them do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_splits import simulated
from split_steps import split_towers, two_towers

from placement_advisor.analysis.scaled_steps import FoldedSteps, simulator_of
from placement_advisor.candidates import pipeline
from placement_advisor.candidates.batch_split.data_parallel import DataParallelSteps
from placement_advisor.candidates.batch_split.split_graph import unsplit
from placement_advisor.candidates.towers import propose_towers
from placement_advisor.cost.collectives import ALL_DEVICES, between_hosts, ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.placement import Placement
from placement_advisor.machine.hierarchy import NcclProtocol, Ring
from placement_advisor.machine.presets import read_hardware
from placement_advisor.simulator.simulator import Simulator

NETWORK = Ring(members=2, bandwidth_bytes_per_s=3e9, message_ns=50_000, has_trees=True)


def within(propose, graph, host):
    found = propose(graph, roofline_by_place(graph, host), host)
    assert isinstance(found, Placement)
    return found


@pytest.mark.parametrize("propose", [propose_towers, pipeline.propose])
@pytest.mark.parametrize(
    ("hosts", "text", "levels"),
    [(2, "2xV100-NVLink", [2]), (2, "4xT4", [2]), (4, "2xA100", [2, 2]), (3, "2xT4", [3])],
)
def test_one_host_steps_as_all_of_them_do(propose, hosts, text, levels):
    host = read_hardware(text)
    rings = [ring_of_devices(host), *(replace(NETWORK, members=units) for units in levels)]
    traces = split_towers(hosts)
    placement = within(propose, traces.whole, host)
    whole = read_hardware(f"{hosts}x({text})-Ethernet100")
    devices = tuple(replace(d, remote_start_ns=0, remote_end_ns=0) for d in whole.devices)
    whole = replace(whole, devices=devices)
    places = [
        dict(zip(host.place_names(), [*names, *names], strict=False))
        for names in zip(*[iter(whole.device_names())] * len(host.devices), strict=True)
    ]
    everywhere = DataParallelSteps(traces).laid_out(placement, places, ALL_DEVICES)
    expected = simulated(everywhere, whole, rings)
    found = FoldedSteps(host).laid_out(placement, traces.first(1), host, rings)
    assert found.outline.step_ns == expected.step_ns
    collectives = found.outline.place == found.outline.places.index(ALL_DEVICES)
    assert collectives.sum() == 3


@pytest.mark.parametrize("propose", [propose_towers, pipeline.propose])
def test_on_one_host_the_step_is_the_placed_one(propose):
    host, graph = read_hardware("2xV100-NVLink"), two_towers(4)
    costs = roofline_by_place(graph, host)
    placement = within(propose, graph, host)
    alike = replace(ring_of_devices(host), members=1)
    found = FoldedSteps(host).laid_out(placement, unsplit(graph, 4), host, [alike])
    assert found.outline.step_ns == Simulator(graph, costs, host).step_ns(placement)


def test_a_device_without_layers_slows_nothing_down():
    graph = two_towers(4)
    pair, host = read_hardware("2xA100"), read_hardware("4xA100")
    placement = within(propose_towers, graph, pair)
    found = [
        FoldedSteps(each).laid_out(placement, unsplit(graph, 4), each, [ring_of_devices(each)])
        for each in (pair, host)
    ]
    assert found[0].outline.step_ns == found[1].outline.step_ns
    assert found[0].outline.step_ns > Simulator(
        graph, roofline_by_place(graph, pair), pair
    ).step_ns(placement)


def test_what_one_device_of_each_host_exchanges_goes_between_hosts_alone():
    host = read_hardware("4xT4")
    here, above = rings = [ring_of_devices(host), NETWORK]
    alone, *others = between_hosts(rings)
    assert others == [above]
    protocol = NcclProtocol(start_ns=0, hop_ns=1_000, sent=1.0)
    assert here.reduce_ns(1_000_000, protocol) > 0
    assert alone.reduce_ns(1_000_000, protocol) == 0
    assert alone.gather_ns(1_000_000, protocol) == 0


def test_layers_on_two_devices_fit_where_one_would_hold_too_much():
    host, graph = read_hardware("2xA100"), two_towers(4)
    placement, rings = within(propose_towers, graph, host), [ring_of_devices(host)]
    traces = unsplit(graph, 4)
    itself = {name: name for name in host.place_names()}
    proposed = DataParallelSteps(traces).laid_out(placement, [itself], ALL_DEVICES)
    simulator = simulator_of(proposed, host, rings)
    peaks = simulator.schedule(proposed.placement).peak_memory
    most = max(peaks[name].size_bytes for name in host.device_names())

    def fits(memory_bytes):
        devices = tuple(replace(each, memory_bytes=memory_bytes) for each in host.devices)
        there = replace(host, devices=devices)
        return FoldedSteps(there).laid_out(placement, traces, there, rings).memory.fits()

    assert not fits(most - 1)
    assert fits(2 * most)
    alone = Placement(
        label="",
        family="",
        device_of=dict.fromkeys(placement.device_of, host.devices[0].name),
        rationale="",
    )
    schedule = Simulator(graph, roofline_by_place(graph, host), host).schedule(alone)
    assert most < schedule.peak_memory[host.devices[0].name].size_bytes
