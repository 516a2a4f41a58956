"""What moving a part of a split to another device would gain, by simulating again.

A move takes along what cannot stay behind: all that touches a variable goes with it.
Left out: moves of several layers at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.findings.evidence import MIN_SAVING_SHARE
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# Each costs a simulation; past the largest layers a move changes less than is worth telling.
MAX_LAYERS_TRIED = 8


class Move(NamedTuple):
    """A part of the graph, in words, on another device; what it saves is simulated."""

    what: str
    device: str
    saving_ns: int


def moved(graph: OpGraph, placement: Placement, ops: Iterable[str], device: str) -> Placement:
    """Return the placement with these ops on that device, their variables with them."""
    going = set(ops)
    variables = {graph.op(name).variable for name in going} - {None}
    going |= {op.name for op in graph.ops if op.variable in variables}
    there = dict.fromkeys(going & placement.device_of.keys(), device)
    return replace(placement, device_of={**placement.device_of, **there})


def layer_ops(graph: OpGraph, layer: str) -> list[str]:
    """Return the ops of a layer: forward, backward, variables and updates."""
    return [op.name for op in placed_ops(graph) if op.layer == layer]


def best_layer_move(evidence: Evidence, split: Split, source: str, target: str) -> Move | None:
    """Return the most useful move of one of the source's costliest layers to the target.

    None if none of them makes the simulated step shorter by enough to tell.
    """
    cost_ns: dict[str, int] = {}
    for run in split.schedule.runs:
        layer = evidence.graph.op(run.op).layer
        if run.device == source and layer is not None:
            cost_ns[layer] = cost_ns.get(layer, 0) + run.end_ns - run.start_ns
    largest = sorted(cost_ns, key=lambda layer: (-cost_ns[layer], layer))[:MAX_LAYERS_TRIED]
    return best_move(
        evidence,
        split,
        [(f"layer {layer}", layer_ops(evidence.graph, layer), target) for layer in largest],
    )


def best_move(
    evidence: Evidence, split: Split, tries: Iterable[tuple[str, Iterable[str], str]]
) -> Move | None:
    """Return the best of several moves (words, ops, device), None if none of them is worth it."""
    best: Move | None = None
    for what, ops, device in tries:
        other = moved(evidence.graph, split.placement, ops, device)
        saving_ns = evidence.saving_ns(split, other)
        if best is None or saving_ns > best.saving_ns:
            best = Move(what, device, saving_ns)
    enough_ns = MIN_SAVING_SHARE * split.schedule.step_ns
    return best if best is not None and best.saving_ns >= max(1, enough_ns) else None
