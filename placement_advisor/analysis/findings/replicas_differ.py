"""PA304: replicas of a split batch compute something of their own, so the step learns otherwise.

Random numbers (dropout) are drawn for the samples of each replica, and statistics that a step keeps
of its batch (batch normalization) are of the replica's samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.graph.name_patterns import listed
from placement_advisor.graph.op_work import elementwise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op import Op

CODE = "PA304"
NAME = "replicas-differ"
_MOST_NAMED = 3


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if the batch was split, and replicas compute something of their own."""
    ops = [evidence.graph.op(name) for name in evidence.own_of_replicas]
    drawn = _layers(op for op in ops if op.kind in elementwise.RANDOM_FORMULAS)
    kept = _layers(op for op in ops if op.kind not in elementwise.RANDOM_FORMULAS)
    parts = []
    if drawn:
        parts.append(f"random numbers of its own in {listed(drawn, _MOST_NAMED)}")
    if kept:
        parts.append(f"statistics of its own samples in {listed(kept, _MOST_NAMED)}")
    if not parts:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"with its batch split, the step is not quite the same: each device takes "
            f"{' and '.join(parts)}",
            action="compare losses over some epochs before you trust a faster step; keep the share "
            "of each device large enough for its statistics",
            where=evidence.where(evidence.own_of_replicas[0]),
            is_hypothetical=not any(
                each.samples and each.name == evidence.recommended for each in evidence.candidates
            ),
        ),
    )


def _layers(ops: Iterable[Op]) -> list[str]:
    return list(dict.fromkeys(op.layer or op.name for op in ops))
