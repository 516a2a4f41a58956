"""A calibration of two workers, written by hand so that its lines are exact but for one copy."""

from dataclasses import replace

from placement_advisor.cost.links import CalibrationSummary, calibrated_cluster, with_peaks
from placement_advisor.machine.calibration import (
    BothWaysTiming,
    Calibration,
    CopyTiming,
    MemoryTiming,
)
from placement_advisor.machine.devices import Device
from placement_advisor.machine.testbed_plan import TestbedKind

W0, W1 = "worker:0", "worker:1"
DEVICES = (Device(name=W0, kind="CPU"), Device(name=W1, kind="CPU"))


def copy(size_bytes, copy_ns):
    """Return a copy whose ends work 50 µs and 60 µs, and 0.2 and 0.3 ns for each byte."""
    ends = {"send_ns": 50_000 + size_bytes // 5, "receive_ns": 60_000 + size_bytes * 3 // 10}
    return CopyTiming(size_bytes=size_bytes, copy_ns=copy_ns, **ends)


# 200 µs and 0.5 ns a byte there; back, small copies take 200 µs and large ones 1 ns a byte.
WORKERS = Calibration(
    links={
        (W0, W1): (copy(1_000, 200_500), copy(1_000_000, 700_000), copy(4_000_000, 2_200_000)),
        (W1, W0): (copy(1_000, 201_000), copy(1_000_000, 1_500_000), copy(4_000_000, 4_200_000)),
    },
    both_ways={
        (W0, W1): BothWaysTiming(size_bytes=524_288, one_way_ns=400_000, both_ways_ns=640_000)
    },
    step_overhead_ns=350_000,
    partition_overhead_ns=80_000,
    remote_ns=400_000,
    quantum_ns=4_000_000,
    wake_ns=300_000,
    op_ns=1_100,
    reference_ns={W0: 250_000, W1: 260_000},
    reference_p90={W0: 1.02, W1: 1.05},
    memory=MemoryTiming(bytes_per_s=2e10, ratio=1.6),
)

# Devices of one process: nothing is known of their cores, and none keeps another waiting.
IN_ONE_PROCESS = replace(
    WORKERS,
    links={
        ends: tuple(replace(timing, send_ns=None, receive_ns=None) for timing in timings)
        for ends, timings in WORKERS.links.items()
    },
    partition_overhead_ns=0,
    remote_ns=0,
    quantum_ns=0,
    wake_ns=0,
    memory=None,
)


def of(plan):
    """Return one of those two for the devices of a testbed of two."""
    found = WORKERS if plan.kind is TestbedKind.WORKERS else IN_ONE_PROCESS
    first, second = (device.name for device in plan.devices)
    names = {W0: first, W1: second}
    return replace(
        found,
        links={(names[a], names[b]): copies for (a, b), copies in found.links.items()},
        both_ways={(names[a], names[b]): timing for (a, b), timing in found.both_ways.items()},
        reference_ns={names[a]: time_ns for a, time_ns in found.reference_ns.items()},
        reference_p90={names[a]: ratio for a, ratio in found.reference_p90.items()},
    )


def summary_of(calibration, devices=DEVICES):
    """Return what the command would report of it."""
    cluster = calibrated_cluster(devices, calibration, launch_overhead_ns=calibration.op_ns)
    return CalibrationSummary(
        testbed="workers",
        description="2 CPU stand-ins (1 core each, gRPC)",
        tensorflow_version="2.21.0",
        fingerprint="a1b2c3d4e5f60718",
        calibration=calibration,
        cluster=with_peaks(cluster, calibration),
        kept_in="~/.cache/placement-advisor/calibrations/a1b2c3d4e5f60718.json",
        cluster_file=None,
    )
