"""PA103: a device reads a variable that stands on another one, so its value crosses every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.findings.moves import InSplit, Move, layer_ops, with_variables
from placement_advisor.graph.op_work.movement import VARIABLE_READ_KINDS
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.schedule import Transfer

CODE = "PA103"
NAME = "variable-read-across-devices"
# Each is simulated several times; what a reader will look at are the largest.
MAX_VARIABLES = 3


def find(evidence: Evidence) -> tuple[InSplit, ...]:
    """Return the largest variables that are read across, by split.

    Of several that one move brings together, as kernel and bias of a layer, the move is told once.
    """
    return tuple(
        _found(evidence, split, copy)
        for split in evidence.splits
        for copy in _largest(evidence, split)
    )


def _largest(evidence: Evidence, split: Split) -> list[Transfer]:
    reads = [
        copy
        for copy in split.schedule.transfers
        if copy.size_bytes and evidence.graph.op(copy.producer).kind in VARIABLE_READ_KINDS
    ]
    return sorted(reads, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))[:MAX_VARIABLES]


def _found(evidence: Evidence, split: Split, copy: Transfer) -> InSplit:
    """Return what was found, and how to bring the variable and its readers together."""
    graph, device_of = evidence.graph, split.placement.device_of
    variable = graph.op(copy.producer).variable
    readers = [
        graph.op(edge.consumer)
        for edge in graph.outputs_of(copy.producer)
        if device_of.get(edge.consumer) == copy.target
    ]
    layers = dict.fromkeys(reader.layer for reader in readers if reader.layer is not None)
    ways = [
        (f"variable {variable}", [copy.producer], copy.target),
        *((f"layer {layer}", layer_ops(graph, layer), copy.source) for layer in layers),
    ]
    where = evidence.where(copy.producer, tensor=copy.tensor, device=copy.target)
    return InSplit(
        code=CODE,
        name=NAME,
        split=split,
        finding=f"{split.name}: variable {variable} ({format_bytes(copy.size_bytes)}) stands on "
        f"{copy.source} and is read on {copy.target} every step",
        moves=tuple(
            Move(f"put {what} on {device}", where, with_variables(graph, ops, device))
            for what, ops, device in ways
        ),
        where=where,
    )
