"""PA401: a step holds more than the memory of a device.

The batch at which it would fit is the largest whose simulated step does. Without traces at other
batches none is named.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.cost.batch import TILE
from placement_advisor.simulator.schedule import shortages
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.simulator.schedule import Shortage

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
        _finding(evidence, candidate, short, fitting)
        for candidate in evidence.candidates
        if candidate.predicted
        for short in shortages(candidate.predicted.peak_memory, evidence.cluster.devices)
    )


def _finding(
    evidence: Evidence, candidate: Candidate, short: Shortage, fitting: list[str]
) -> Finding:
    ways, name = [], candidate.name
    if fitting:
        ways.append(f"use a placement that fits: {', '.join(fitting)}")
    batch = _fitting_batch(evidence, candidate, short)
    if batch is not None:
        ways.append(f"take a batch of at most {batch} (simulated)")
    memory_bytes = short.device.memory_bytes or 0
    if not ways and short.peak.resident_bytes <= memory_bytes and evidence.batch_size != 1:
        ways.append("take a smaller batch")
    largest = short.peak.contributors[0]
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{name} does not fit: {short} (simulated)",
        action=", or ".join(ways)
        or f"{format_bytes(short.peak.resident_bytes)} are held all the time: the variables must "
        "be split over more devices, or be smaller",
        where=evidence.where(largest.name, device=short.device.name, candidate=name),
        is_hypothetical=evidence.is_hypothetical(name),
        batch_size=batch if evidence.takes_batch_size else None,
    )


def _fitting_batch(evidence: Evidence, candidate: Candidate, short: Shortage) -> int | None:
    """Return the largest batch that fits, None if none is known to; above `TILE` a multiple of it.

    The step of a split batch is not known at other batches.
    """
    growing, placement = evidence.growing, candidate.placement
    memory_bytes = short.device.memory_bytes
    if (
        growing is None
        or placement is None
        or memory_bytes is None
        or candidate.samples is not None
    ):
        return None
    if evidence.is_hypothetical(candidate.name):
        return None

    def held_bytes(samples: int) -> int:
        schedule = growing.simulator(samples).schedule(placement)
        return schedule.peak_memory[short.device.name].size_bytes

    batch = growing.growth.batch
    smaller = [*range(1, min(TILE, batch)), *range(TILE, batch, TILE)]
    count = bisect_right(smaller, memory_bytes, key=held_bytes)
    return smaller[count - 1] if count else None
