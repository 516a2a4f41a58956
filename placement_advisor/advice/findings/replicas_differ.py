"""PA304: replicas of a split batch compute something of their own, so the step learns otherwise.

Random numbers (dropout) are drawn for the samples of each replica, and statistics that a step keeps
of its batch (batch normalization) are of the replica's samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis import Finding
from placement_advisor.work import random

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.advice.findings.evidence import Evidence

CODE = "PA304"
NAME = "replicas-differ"
_MOST_NAMED = 3


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if the batch was split, and replicas compute something of their own."""
    drawn: list[str] = []
    kept: list[str] = []
    for name in evidence.own_of_replicas:
        op = evidence.graph.op(name)
        (drawn if op.kind in random.FORMULAS else kept).append(op.layer or name)
    parts = []
    if drawn:
        parts.append(f"random numbers of its own in {_named(drawn)}")
    if kept:
        parts.append(f"statistics of its own samples in {_named(kept)}")
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
            saving_ns=None,
        ),
    )


def _named(layers: Sequence[str]) -> str:
    names = list(dict.fromkeys(layers))
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {more} more" if more > 0 else text
