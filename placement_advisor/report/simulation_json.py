"""A simulated step as the public contract of ``advisor simulate --json``.

Integer nanoseconds and bytes, per step. Null means not known. Left out: single ops and copies,
which ``--trace`` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor import __version__
from placement_advisor.simulator.critical_path import time_by_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.simulator.simulation import Simulation

SCHEMA_VERSION = 1


def simulation_as_json(told: Simulation) -> dict[str, Any]:
    """Return the content, valid against ``load_schema("simulation")``."""
    schedule = told.schedule
    return {
        "schema_version": SCHEMA_VERSION,
        "advisor_version": __version__,
        "graph_file": told.origin.graph_file,
        "graph_fingerprint": told.graph.fingerprint,
        "placement_file": told.origin.placement_file,
        "label": told.placement.label,
        "machine": told.origin.machine,
        "renamed_devices": dict(told.origin.renamed),
        "cost_shares": {basis.value: share for basis, share in told.basis_shares.items()},
        "step_ns": schedule.step_ns,
        "devices": list(_devices(told)),
        "transfers": [
            {
                "source": each.source,
                "target": each.target,
                "count": each.copies,
                "bytes": each.size.amount,
                "unknown": each.size.unknown,
            }
            for each in told.directions
        ],
        "exposed_ns": schedule.exposed_ns,
        "hidden_ns": told.hidden_ns,
        "path_ns": {kind.value: time_ns for kind, time_ns in time_by_kind(told.path).items()},
        "path": [
            {
                "kind": part.kind.value,
                "what": part.what,
                "where": part.where,
                "start_ns": part.start_ns,
                "end_ns": part.end_ns,
            }
            for part in told.path
        ],
    }


def _devices(told: Simulation) -> Iterator[dict[str, Any]]:
    places = told.cluster.places()
    for place, time in zip(places, told.device_times, strict=True):
        yield {
            "name": place.name,
            "kind": place.kind,
            "compute_ns": time.compute_ns,
            "copy_work_ns": time.copy_work_ns,
            "before_first_ns": time.before_first_ns,
            "waits_for_copy_ns": time.waits_for_copy_ns,
            "waits_for_launch_ns": time.waits_for_launch_ns,
            "waits_for_device_ns": time.waits_for_device_ns,
            "after_last_ns": time.after_last_ns,
            "peak_memory_bytes": told.schedule.peak_memory_bytes[place.name],
            "memory_bytes": place.memory_bytes,
        }
