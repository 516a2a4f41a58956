"""PA401: a step holds more than the memory of a device.

The batch at which it would fit takes what is held for a part of the step as proportional to the
batch, and what is held all the time as fixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.simulator.peak import shortages
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.simulator.peak import Shortage

CODE = "PA401"
NAME = "does-not-fit"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each candidate and device that is too small."""
    fitting = [
        c.name
        for c in evidence.candidates
        if c.predicted and not shortages(c.predicted.peak_memory, evidence.cluster.devices)
    ]
    return tuple(
        _finding(evidence, candidate.name, short, fitting)
        for candidate in evidence.candidates
        if candidate.predicted
        for short in shortages(candidate.predicted.peak_memory, evidence.cluster.devices)
    )


def _finding(evidence: Evidence, name: str, short: Shortage, fitting: list[str]) -> Finding:
    ways = []
    if fitting:
        ways.append(f"use a placement that fits: {', '.join(fitting)}")
    batch = _fitting_batch(evidence, short)
    if batch is not None:
        ways.append(f"take a batch of at most {batch} (simulated)")
    largest = short.peak.contributors[0]
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{name} does not fit: {short} (simulated)",
        action=", or ".join(ways)
        or f"{format_bytes(short.peak.resident_bytes)} are held all the time: the variables must "
        "be split over more devices, or be smaller",
        where=evidence.where(largest.name, device=short.device.name, candidate=name),
        saving_ns=None,
        is_hypothetical=evidence.is_hypothetical(name),
    )


def _fitting_batch(evidence: Evidence, short: Shortage) -> int | None:
    """Return the largest batch that leaves room for what is held all the time, None if none."""
    memory_bytes, peak = short.device.memory_bytes, short.peak
    if evidence.batch_size is None or memory_bytes is None:
        return None
    for_batch_bytes = peak.size_bytes - peak.resident_bytes
    room_bytes = memory_bytes - peak.resident_bytes
    batch = evidence.batch_size * room_bytes // for_batch_bytes if for_batch_bytes else 0
    return batch if batch > 0 else None
