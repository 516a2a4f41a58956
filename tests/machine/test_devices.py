from dataclasses import replace

import pytest

from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Device, Dispatch, Link

LINE = Link(source="a", target="b", latency_ns=10, bandwidth_bytes_per_s=1e9, basis=Basis.MEASURED)
CURVE = replace(LINE, curve=((100, 200), (1_000, 200), (2_000, 2_200)))

WORK = CopyWork(per_copy_ns=4, ns_per_byte=0.25)
each_link = pytest.mark.parametrize("link", [LINE, CURVE])


@pytest.mark.parametrize(
    ("link", "size_bytes", "time_ns"),
    [
        # The latency, and bytes over the bandwidth.
        *((LINE, size, time) for size, time in ((0, 10), (300, 310))),
        # A measured copy takes what lies between its neighbours.
        *((CURVE, size, time) for size, time in ((100, 200), (500, 200), (1_000, 200))),
        *((CURVE, size, time) for size, time in ((1_500, 1_200), (2_000, 2_200), (3_000, 4_200))),
    ],
)
def test_what_a_copy_takes_by_hand(link, size_bytes, time_ns):
    assert link.transfer_ns(size_bytes) == time_ns
    assert link.bytes_ns(size_bytes) == time_ns - 10


def test_a_copy_takes_the_latency_at_least_and_the_wire_for_its_bytes_in_a_stream():
    steep = replace(LINE, latency_ns=150, curve=((100, 200), (200, 300)))
    assert steep.transfer_ns(80) == 180
    assert steep.transfer_ns(10) == steep.transfer_ns(0) == 150

    assert [CURVE.wire_ns(size) for size in (100, 2_000)] == [190, 2_190]
    stream = replace(CURVE, stream_bytes_per_s=0.5e9)
    # By itself the smaller copy takes 190 ns for its bytes; no copy is on the wire for longer.
    assert [stream.wire_ns(size) for size in (50, 1_500)] == [100, 1_190]
    assert [stream.bytes_ns(size) for size in (100, 2_000)] == [190, 2_190]


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        (lambda link: link.scaled(3), 3),
        (lambda link: link.with_bytes_scaled(3), 3),
        (lambda link: link.with_latency_scaled(3), 1),
    ],
)
def test_a_stream_gets_slower_with_its_wire(change, factor):
    assert change(replace(CURVE, stream_bytes_per_s=6e9)).stream_bytes_per_s == 6e9 / factor


@each_link
def test_a_link_of_twice_the_time_takes_twice_as_long(link):
    twice = replace(link, sender=WORK).scaled(2.0)
    assert twice.transfer_ns(1_200) == 2 * link.transfer_ns(1_200)
    assert twice.sender.time_ns(100) == 2 * (4 + 25)


@each_link
@pytest.mark.parametrize("size_bytes", [0, 60, 700, 1_600, 4_000])
def test_a_faster_wire_saves_bytes_and_a_longer_latency_is_paid_once_per_copy(link, size_bytes):
    fast = replace(link, sender=WORK).with_bytes_scaled(0.5)
    assert fast.bytes_ns(size_bytes) == pytest.approx(link.bytes_ns(size_bytes) / 2, abs=1)
    assert fast.latency_ns == link.latency_ns
    assert fast.bandwidth_bytes_per_s == 2 * link.bandwidth_bytes_per_s
    assert fast.sender.time_ns(80) == 4 + 10
    far = replace(link, receiver=WORK, request_ns=7).with_latency_scaled(3)
    assert (far.latency_ns, far.request_ns) == (30, 21)
    assert far.bytes_ns(size_bytes) == link.bytes_ns(size_bytes)
    assert far.receiver.time_ns(80) == 4 + 20
    near = replace(link, receiver=WORK).with_latency_scaled(0.5)
    assert near.receiver.time_ns(80) == 2 + 20


@each_link
def test_a_slower_wire_is_no_more_work_for_its_ends(link):
    slow = replace(link, sender=WORK, receiver=WORK).with_bytes_scaled(10)
    assert slow.bytes_ns(700) == pytest.approx(10 * link.bytes_ns(700), abs=10)
    assert slow.sender == slow.receiver == WORK


def test_a_device_has_the_start_and_end_of_all_others_or_its_own_which_are_not_what_it_is_like():
    first, near, far = (Device(name=name, kind="CPU") for name in "abc")
    far = replace(far, remote_start_ns=500, remote_end_ns=0)
    dispatch = Dispatch(remote_start_ns=20, remote_end_ns=30)
    cluster = Cluster(devices=(first, near, far), links=(), dispatch=dispatch)
    twice = cluster.scaled(copies=2, launches=1)
    assert [cluster.remote_start_ns(device) for device in (near, far)] == [20, 500]
    assert [cluster.remote_end_ns(device) for device in (near, far)] == [30, 0]
    assert [twice.remote_start_ns(device) for device in twice.devices[1:]] == [40, 1_000]
    assert [twice.remote_end_ns(device) for device in twice.devices[1:]] == [60, 0]

    near = Device(name="a:0", kind="GPU", host="CPU:0", launch_overhead_ns=5)
    far = replace(near, name="b:0", host="CPU:1", remote_start_ns=9, remote_end_ns=9)
    assert near.bare() == far.bare()
    assert near.bare() != replace(far, launch_overhead_ns=6).bare()
