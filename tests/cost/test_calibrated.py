from __future__ import annotations

from placement_advisor.cost.calibrated import calibrated_cluster
from placement_advisor.machine.calibration import Calibration, CopyTiming
from placement_advisor.machine.devices import NO_COPY_WORK, Cluster, Device


def calibrated(*timings: CopyTiming) -> Cluster:
    devices = [Device(name=name, kind="CPU") for name in "ab"]
    return calibrated_cluster(
        devices,
        Calibration(
            links={("a", "b"): timings},
            both_ways={},
            step_overhead_ns=0,
            partition_overhead_ns=0,
            remote_ns=0,
            quantum_ns=0,
            op_ns=0,
            reference_ns={},
            reference_p90={},
        ),
    )


def test_a_copy_of_a_size_that_was_measured_takes_what_was_measured():
    times_ns = {1_000: 170_000, 64_000: 160_000, 4_000_000: 2_000_000, 64_000_000: 40_000_000}
    timings = tuple(
        CopyTiming(size_bytes=size, copy_ns=time_ns, send_ns=1, receive_ns=1)
        for size, time_ns in times_ns.items()
    )
    lost = CopyTiming(size_bytes=500_000, copy_ns=-5, send_ns=1, receive_ns=1)
    link = calibrated(*timings, lost).link("a", "b")
    # No copy is faster than one that is smaller.
    times_ns[64_000] = 170_000
    assert {size: link.transfer_ns(size) for size in times_ns} == times_ns


def test_an_end_whose_core_was_never_seen_to_work_has_no_copy_work():
    link = calibrated(
        CopyTiming(size_bytes=1_000, copy_ns=5_000, send_ns=60, receive_ns=None),
        CopyTiming(size_bytes=3_000, copy_ns=9_000, send_ns=80, receive_ns=None),
    ).link("a", "b")
    # 50 ns and 0.01 ns a byte.
    assert link.sender.time_ns(2_000) == 70
    assert link.receiver == NO_COPY_WORK
