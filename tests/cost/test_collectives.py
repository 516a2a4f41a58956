"""Collectives: fitted to times made of known ones, and what devices and hosts exchange by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placed_steps import pair

from placement_advisor.cost.collectives import (
    ALL_DEVICES,
    CollectiveTimes,
    collective_costs,
    fit_collectives,
    ring_bandwidth,
    ring_of_devices,
    with_collectives,
)
from placement_advisor.graph.op import Op
from placement_advisor.machine.devices import CopyWork, Dispatch
from placement_advisor.machine.hierarchy import Ring
from placement_advisor.machine.presets import hardware_figures, read_hardware

SIZES = (4_096, 262_144, 2_097_152)


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_the_parts_of_a_collective_are_told_apart(replicas):
    reduces, gathers = (
        [(n, 900_000 + 150_000 * hops + 1.8 * n) for n in SIZES]
        for hops in (2 * (replicas - 1), replicas - 1)
    )
    found = fit_collectives(reduces, gathers, replicas=replicas, call_ns=800_000.4)
    assert found.launch_ns == pytest.approx(900_000, rel=1e-6)
    assert found.hop_ns == pytest.approx(150_000, rel=1e-6)
    assert found.ns_per_byte == pytest.approx(1.8)
    assert found.call_ns == 800_000


def test_gathers_that_seem_to_take_longer_than_reductions_leave_no_part_negative():
    found = fit_collectives(
        [(n, 500_000 + n) for n in SIZES], [(n, 700_000 + n) for n in SIZES], replicas=2, call_ns=0
    )
    assert found.hop_ns == 0
    assert found.launch_ns == pytest.approx(700_000, rel=1e-6)


def test_replicas_use_links_for_collectives_alone_and_start_by_themselves():
    work = CopyWork(per_copy_ns=5)
    dispatch = Dispatch(remote_start_ns=9)
    there = pair(latency_ns=1, channel="bus", work=work, dispatch=dispatch)
    times = CollectiveTimes(call_ns=3, launch_ns=4, hop_ns=2_000, ns_per_byte=0.5)
    found = times.on(there)
    for link in found.links:
        assert link.transfer_ns(1_000) == 2_000 + 500
        assert (link.sender, link.receiver, link.channel) == (CopyWork(), CopyWork(), "bus")
    assert found.dispatch == Dispatch(step_overhead_ns=3)


LINKS = hardware_figures()["links"]


def gb_per_s(text, devices=None):
    cluster = read_hardware(text)
    return ring_bandwidth(cluster.with_devices(cluster.device_names()[:devices])) / 1e9


@pytest.mark.parametrize(
    ("text", "devices", "expected"),
    [
        ("2xV100-NVLink", None, 47.9),
        # Each of two sockets has its wire to the other one; all else carries more.
        ("8xV100-PCIe", None, 9.0),
        ("8xV100-PCIe", 4, 11.3),
        # Rings use every NVLink of a mesh: three links among four.
        ("8xP100-SXM2", 2, 18.3),
        ("8xP100-SXM2", 4, 3 * 18.3),
        # A switch gives each device all that it has.
        ("8xA100", None, 260),
        ("2xA100", None, 260),
        ("2xRTX2080Ti", None, LINKS["PCIe3-staged"]["bandwidth_bytes_per_s"] / 1e9),
    ],
)
def test_what_a_ring_of_devices_carries(text, devices, expected):
    assert gb_per_s(text, devices) == pytest.approx(expected)


def test_rings_use_bridges_and_meshes_where_they_help():
    # With the like of the other four, four links each.
    assert 4 * 18.3 <= gb_per_s("8xP100-SXM2") <= 4 * 18.3 + 9
    # Pairs share the way out.
    assert gb_per_s("8xRTX2080Ti-NVLink") == gb_per_s("8xRTX2080Ti")
    assert gb_per_s("2xRTX2080Ti-NVLink") > 8 * gb_per_s("2xRTX2080Ti")


def exchanged(kind, size_bytes, *rings):
    op = Op(name="op", kind=kind, output_bytes=(size_bytes,))
    reduces, gathers = ([op], []) if kind == "NcclAllReduce" else ([], [op])
    return collective_costs(reduces, gathers, rings).time_ns("op")


def all_reduced(size_bytes, text):
    return exchanged("NcclAllReduce", size_bytes, ring_of_devices(read_hardware(text)))


def test_a_large_tensor_crosses_nearly_twice_and_a_small_one_takes_its_hops():
    # 2 x 3 / 4 of 452 MB over 11.3 GB/s, six hops.
    assert all_reduced(452_000_000, "4xV100-PCIe") == 60_000_000 + 8_400 + 6 * 5_700
    assert all_reduced(0, "4xV100-PCIe") == 3_600 + 6 * 1_000
    # Between hosts a hop takes at least a message.
    message_ns = LINKS["Ethernet100"]["latency_ns"]
    assert all_reduced(0, "2x(2xV100)-Ethernet100") == 3_600 + 6 * message_ns
    # An all-gather takes half of the way.
    ring = ring_of_devices(read_hardware("4xV100-PCIe"))
    assert exchanged("NcclAllGather", 452_000_000, ring) == 30_000_000 + 8_400 + 3 * 5_700


def test_the_place_of_collectives_is_near_to_all_and_no_device():
    cluster = with_collectives(read_hardware("2xV100"))
    assert ALL_DEVICES not in cluster.device_names()
    there, back = cluster.link("GPU:1", ALL_DEVICES), cluster.link(ALL_DEVICES, "GPU:1")
    assert there.sender.time_ns(10**9) == cluster.devices[0].launch_overhead_ns
    assert there.transfer_ns(10**6) <= 1
    assert back.latency_ns == 10_000


DEVICES = Ring(members=4, bandwidth_bytes_per_s=100e9)


def test_hosts_exchange_what_their_devices_have_added_up_or_gather_what_all_have():
    hosts = Ring(members=2, bandwidth_bytes_per_s=10e9, has_trees=True)
    # 1.5 times the bytes within hosts, once between two: half of them each way.
    expected = 15_000_000 + 100_000_000 + 8_400 + (6 + 2) * 5_700
    assert exchanged("NcclAllReduce", 1_000_000_000, DEVICES, hosts) == expected
    # Each gets a half of all rows, of which its devices have had a quarter each.
    expected = 7_500_000 + 100_000_000 + 8_400 + (3 + 1) * 5_700
    assert exchanged("NcclAllGather", 1_000_000_000, DEVICES, hosts) == expected

    hosts = Ring(members=4, bandwidth_bytes_per_s=10e9)
    one = ring_of_devices(read_hardware("V100"))
    # Each sends the bytes of three others on.
    expected = 300_000_000 + 8_400 + 3 * 5_700
    assert exchanged("NcclAllGather", 1_000_000_000, one, hosts) == expected


def test_small_tensors_go_through_trees_between_many_hosts():
    many = Ring(members=128, bandwidth_bytes_per_s=10e9, message_ns=20_000, has_trees=True)
    assert exchanged("NcclAllReduce", 0, many) == 3_600 + 2 * 7 * 20_000
    # Large ones around the ring, which sends no byte twice.
    rings = replace(many, has_trees=False)
    assert exchanged("NcclAllReduce", 10**10, many) == exchanged("NcclAllReduce", 10**10, rings)


HOSTS = Ring(members=8, bandwidth_bytes_per_s=10e9, has_trees=True)


def test_a_core_with_room_for_all_uplinks_that_are_there_takes_nothing():
    roomy = replace(HOSTS, core_bandwidth_bytes_per_s=80e9)
    for kind in ("NcclAllReduce", "NcclAllGather"):
        assert exchanged(kind, 10**9, roomy) == exchanged(kind, 10**9, HOSTS)

    four = replace(HOSTS, members=4)
    half = replace(four, core_bandwidth_bytes_per_s=40e9)
    assert exchanged("NcclAllReduce", 10**9, half) == exchanged("NcclAllReduce", 10**9, four)


def test_an_oversubscribed_core_carries_all_that_hosts_send():
    half = replace(HOSTS, core_bandwidth_bytes_per_s=40e9)
    # 2 x 7 x 1 GB over 40 GB/s, whichever way; trees take 2 x 3 hops, the ring 14.
    assert exchanged("NcclAllReduce", 10**9, half) == 350_000_000 + 8_400 + 6 * 5_700
    ring = replace(half, has_trees=False)
    assert exchanged("NcclAllReduce", 10**9, ring) == 350_000_000 + 8_400 + 14 * 5_700
    # 7 x 1 GB: each of eight sends an eighth seven times.
    assert exchanged("NcclAllGather", 10**9, half) == 175_000_000 + 8_400 + 7 * 5_700


@given(st.integers(2, 300), st.integers(0, 10**12), st.floats(1e6, 1e13), st.floats(1.0, 64.0))
def test_around_a_ring_a_core_is_an_uplink_that_carries_a_fair_share(
    members, size_bytes, core_bandwidth_bytes_per_s, oversubscription
):
    uplink_bytes_per_s = core_bandwidth_bytes_per_s * oversubscription / members
    shared = Ring(
        members=members,
        bandwidth_bytes_per_s=uplink_bytes_per_s,
        core_bandwidth_bytes_per_s=core_bandwidth_bytes_per_s,
    )
    fair = Ring(members=members, bandwidth_bytes_per_s=core_bandwidth_bytes_per_s / members)
    for kind in ("NcclAllReduce", "NcclAllGather"):
        expected = exchanged(kind, size_bytes, fair)
        assert exchanged(kind, size_bytes, shared) == pytest.approx(expected, rel=1e-12, abs=1)
