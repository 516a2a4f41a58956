"""PA202: one device of a split computes much longer than the others, and part of it could move.

Where no single layer can move for a gain the split is as even as this graph lets it be: no finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.findings.idle_device import IDLE_SHARE
from placement_advisor.analysis.findings.moves import InSplit, layer_moves
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split

CODE = "PA202"
NAME = "uneven-load"
# At 1.25 times the mean, a fifth of what even devices could gain is lost.
UNEVEN_RATIO = 1.25


def find(evidence: Evidence) -> tuple[InSplit, ...]:
    """Return what was found for each split that is uneven, with what may be moved."""
    return tuple(
        found for split in evidence.splits if (found := _found(evidence, split)) is not None
    )


def _found(evidence: Evidence, split: Split) -> InSplit | None:
    load_ns = {
        name: split.schedule.compute_ns.get(name, 0) for name in evidence.cluster.device_names()
    }
    most_ns = max(load_ns.values())
    working = {name: ns for name, ns in load_ns.items() if ns > IDLE_SHARE * most_ns}
    if len(working) <= 1 or most_ns * len(working) < UNEVEN_RATIO * sum(working.values()):
        return None
    busiest = max(working, key=working.__getitem__)
    least = min(working, key=working.__getitem__)
    loads = ", ".join(f"{name} {format_ns(ns)}" for name, ns in working.items())
    return InSplit(
        code=CODE,
        name=NAME,
        split=split,
        finding=f"the load of {split.name} is uneven: compute per step {loads} (simulated)",
        moves=tuple(layer_moves(evidence, split, busiest, least)),
        where={"device": busiest},
    )
