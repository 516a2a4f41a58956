"""What a calibration found as the public contract of ``advisor calibrate --json``.

Times are integer nanoseconds, sizes integer bytes. Null means not measured or not known.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from placement_advisor import __version__

if TYPE_CHECKING:
    from placement_advisor.cost.calibration_summary import CalibrationSummary
    from placement_advisor.machine.calibration import Network
    from placement_advisor.machine.copy_timings import CopyTiming
    from placement_advisor.machine.devices import CopyWork

SCHEMA_VERSION = 1


def calibration_as_json(summary: CalibrationSummary) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("calibration")``."""
    calibration = summary.calibration
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "tensorflow_version": summary.tensorflow_version,
        "testbed": {
            "kind": summary.testbed,
            "description": summary.description,
            "host_link": None if summary.link is None else summary.link.value,
        },
        "fingerprint": summary.fingerprint,
        "kept_in": summary.kept_in,
        "cluster_file": summary.cluster_file,
        "warnings": list(summary.warnings),
        "devices": [
            {
                "name": name,
                "reference_ns": time_ns,
                "reference_p90_ratio": calibration.reference_p90[name],
            }
            for name, time_ns in calibration.reference_ns.items()
        ],
        "hosts": _hosts(summary),
        "links": [_link(summary, ends) for ends in summary.links()],
        "both_ways": [
            {
                "between": list(ends),
                "size_bytes": timing.size_bytes,
                "one_way_ns": timing.one_way_ns,
                "both_ways_ns": timing.both_ways_ns,
                "ratio": timing.ratio,
            }
            for ends, timing in calibration.both_ways.items()
        ],
        "at_once": _at_once(calibration.network),
        "step_overhead_ns": calibration.step_overhead_ns,
        "partition_overhead_ns": calibration.partition_overhead_ns,
        "remote_ns": calibration.remote_ns,
        "quantum_ns": calibration.quantum_ns,
        "wake_ns": calibration.wake_ns,
        "op_ns": calibration.op_ns,
        "memory": None if calibration.memory is None else asdict(calibration.memory),
    }


def _hosts(summary: CalibrationSummary) -> list[dict[str, Any]]:
    network = summary.calibration.network
    if network is None:
        return []
    return [
        {
            "name": host.name,
            "address": host.address,
            "devices": list(network.devices[host.name]),
            "remote_ns": network.remote_ns.get(host.name),
        }
        for host in summary.hosts
    ]


def _at_once(network: Network | None) -> list[dict[str, Any]]:
    if network is None:
        return []
    return [
        {
            "source": source,
            "target": target,
            "size_bytes": timing.size_bytes,
            "one_pair_ns": timing.one_pair_ns,
            "two_pairs_ns": timing.two_pairs_ns,
            "ratio": timing.ratio,
        }
        for (source, target), timing in network.at_once.items()
    ]


def _link(summary: CalibrationSummary, ends: tuple[str, str]) -> dict[str, Any]:
    link = summary.cluster.link(*ends)
    timings = summary.calibration.links[ends]
    is_known = timings[0].send_ns is not None
    return {
        "source": link.source,
        "target": link.target,
        "latency_ns": link.latency_ns,
        "bandwidth_bytes_per_s": round(link.bandwidth_bytes_per_s),
        "sender": _work(link.sender) if is_known else None,
        "receiver": _work(link.receiver) if is_known else None,
        "request_ns": link.request_ns,
        "wake_ns": link.wake_ns,
        "channel": link.channel,
        "copies": [_copy(summary, ends, timing) for timing in timings],
    }


def _copy(summary: CalibrationSummary, ends: tuple[str, str], timing: CopyTiming) -> dict[str, Any]:
    return {
        "size_bytes": timing.size_bytes,
        "copy_ns": timing.copy_ns,
        "send_ns": timing.send_ns,
        "receive_ns": timing.receive_ns,
        "residual": summary.residual(ends, timing),
    }


def _work(work: CopyWork) -> dict[str, Any]:
    return {"per_copy_ns": work.per_copy_ns, "ns_per_byte": work.ns_per_byte}
