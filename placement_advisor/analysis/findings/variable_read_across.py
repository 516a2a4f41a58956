"""PA103: a device reads a variable that stands on another one, so its value crosses every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.moves import best_move, layer_ops
from placement_advisor.graph.op_work.bookkeeping import VARIABLE_READ_KINDS
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.events import Transfer

CODE = "PA103"
NAME = "variable-read-across-devices"
# Each is simulated twice; what a reader will look at are the largest.
MAX_VARIABLES = 3


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the largest variables whose reading across costs time, by split.

    Of several that one move brings together, as kernel and bias of a layer, the largest stands for
    all.
    """
    found: dict[tuple[str, str], Finding] = {}
    for split in evidence.splits:
        for copy in _largest(evidence, split):
            finding = _finding(evidence, split, copy)
            if finding is not None:
                found.setdefault((split.name, finding.action), finding)
    return tuple(found.values())


def _largest(evidence: Evidence, split: Split) -> list[Transfer]:
    reads = [
        copy
        for copy in split.schedule.transfers
        if copy.size_bytes and evidence.graph.op(copy.producer).kind in VARIABLE_READ_KINDS
    ]
    return sorted(reads, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))[:MAX_VARIABLES]


def _finding(evidence: Evidence, split: Split, copy: Transfer) -> Finding | None:
    """Return the finding if the variable beside its readers, or they beside it, would save time."""
    graph, device_of = evidence.graph, split.placement.device_of
    variable = graph.op(copy.producer).variable
    readers = [
        graph.op(edge.consumer)
        for edge in graph.outputs_of(copy.producer)
        if device_of.get(edge.consumer) == copy.target
    ]
    layers = dict.fromkeys(reader.layer for reader in readers if reader.layer is not None)
    move = best_move(
        evidence,
        split,
        [
            (f"variable {variable}", [copy.producer], copy.target),
            *[(f"layer {layer}", layer_ops(graph, layer), copy.source) for layer in layers],
        ],
    )
    if move is None:
        return None
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{split.name}: variable {variable} ({format_bytes(copy.size_bytes)}) stands on "
        f"{copy.source} and is read on {copy.target} every step",
        action=f"put {move.what} on {move.device}",
        where=evidence.where(copy.producer, tensor=copy.tensor, device=copy.target),
        saving_ns=move.saving_ns,
        is_hypothetical=split.is_hypothetical,
    )
