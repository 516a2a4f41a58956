from __future__ import annotations

from dataclasses import replace

import pytest

from placement_advisor.machine.devices import Basis, CopyWork, Link

LINE = Link(source="a", target="b", latency_ns=10, bandwidth_bytes_per_s=1e9, basis=Basis.MEASURED)
CURVE = replace(LINE, curve=((100, 200), (1_000, 200), (2_000, 2_200)))


def test_a_copy_takes_the_latency_and_its_bytes_over_the_bandwidth():
    assert LINE.transfer_ns(0) == 10
    assert LINE.transfer_ns(300) == 310
    assert LINE.bytes_ns(300) == 300


@pytest.mark.parametrize(
    ("size_bytes", "time_ns"),
    [(100, 200), (500, 200), (1_000, 200), (1_500, 1_200), (2_000, 2_200), (3_000, 4_200)],
)
def test_a_measured_copy_takes_what_lies_between_its_neighbours(size_bytes, time_ns):
    assert CURVE.transfer_ns(size_bytes) == time_ns
    assert CURVE.bytes_ns(size_bytes) == time_ns - 10


def test_no_copy_is_faster_than_the_latency():
    steep = replace(LINE, latency_ns=150, curve=((100, 200), (200, 300)))
    assert steep.transfer_ns(80) == 180
    assert steep.transfer_ns(10) == steep.transfer_ns(0) == 150


@pytest.mark.parametrize("link", [LINE, CURVE])
def test_a_link_of_twice_the_time_takes_twice_as_long(link):
    work = CopyWork(per_copy_ns=4, ns_per_byte=0.25)
    twice = replace(link, sender=work).scaled(2.0)
    assert twice.transfer_ns(1_200) == 2 * link.transfer_ns(1_200)
    assert twice.sender.time_ns(100) == 2 * (4 + 25)


@pytest.mark.parametrize("link", [LINE, CURVE])
@pytest.mark.parametrize("size_bytes", [0, 60, 700, 1_600, 4_000])
def test_a_faster_wire_saves_bytes_and_not_the_latency(link, size_bytes):
    fast = replace(link, sender=CopyWork(per_copy_ns=4, ns_per_byte=0.25)).with_bytes_scaled(0.5)
    assert fast.bytes_ns(size_bytes) == pytest.approx(link.bytes_ns(size_bytes) / 2, abs=1)
    assert fast.latency_ns == link.latency_ns
    assert fast.bandwidth_bytes_per_s == 2 * link.bandwidth_bytes_per_s
    assert fast.sender.time_ns(80) == 4 + 10


@pytest.mark.parametrize("link", [LINE, CURVE])
@pytest.mark.parametrize("size_bytes", [0, 60, 700, 1_600, 4_000])
def test_a_longer_latency_is_paid_once_per_copy(link, size_bytes):
    far = replace(link, receiver=CopyWork(per_copy_ns=4, ns_per_byte=0.25)).with_latency_scaled(3)
    assert far.latency_ns == 30
    assert far.bytes_ns(size_bytes) == link.bytes_ns(size_bytes)
    assert far.receiver.time_ns(80) == 12 + 20
