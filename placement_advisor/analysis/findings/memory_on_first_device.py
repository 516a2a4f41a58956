"""PA402: a split leaves most memory on the first device, which is then the first to run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split

CODE = "PA402"
NAME = "memory-on-first-device"
# A device with three times the memory of any other gains little from the others being there.
PILED_RATIO = 3
# Below half of the memory there is room to double the batch before it matters.
TIGHT_SHARE = 0.5


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each split whose first device fills up; needs a known memory size."""
    return tuple(
        finding for split in evidence.splits if (finding := _finding(evidence, split)) is not None
    )


def _finding(evidence: Evidence, split: Split) -> Finding | None:
    first, *others = evidence.cluster.devices
    peaks = split.schedule.peak_memory
    here = peaks[first.name]
    if first.memory_bytes is None or here.size_bytes < TIGHT_SHARE * first.memory_bytes:
        return None
    elsewhere_bytes = max((peaks[other.name].size_bytes for other in others), default=None)
    if elsewhere_bytes is None or here.size_bytes < PILED_RATIO * elsewhere_bytes:
        return None
    held = ", ".join(
        f"{each.name} ({each.held}, {format_bytes(each.size_bytes)})" for each in here.contributors
    )
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{split.name}: {first.name} holds {format_bytes(here.size_bytes)} of its "
        f"{format_bytes(first.memory_bytes)}, no other device more than "
        f"{format_bytes(elsewhere_bytes)} (simulated)",
        action=f"put the layers of the largest on another device: {held}",
        where={"device": first.name},
        is_hypothetical=split.is_hypothetical,
    )
