"""PA201: a large part of the step waits for tensors on their way between devices.

Waiting is what the critical path of the simulated step spends on copies and on queueing for a wire.
A tensor is joined by moving the layer that makes it, or those that read it, to the other end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.findings.moves import InSplit, Move, layer_ops, with_variables
from placement_advisor.simulator.schedule import PathKind, critical_path
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.schedule import Transfer

CODE = "PA201"
NAME = "step-waits-for-transfers"
# XProf calls a step bound by communication at 30 %; a change of placement is cheaper to try.
# By how much sooner is judgement.
TRANSFER_BOUND_SHARE = 0.2
MAX_TENSORS = 5


def find(evidence: Evidence) -> tuple[InSplit, ...]:
    """Return what was found for each split that waits so, with the joins of what it waits for."""
    return tuple(
        found for split in evidence.splits if (found := _found(evidence, split)) is not None
    )


def _found(evidence: Evidence, split: Split) -> InSplit | None:
    step_ns = split.schedule.step_ns
    waited_ns = _waited_ns(evidence, split)
    share = sum(waited_ns.values()) / step_ns if step_ns else 0.0
    if share < TRANSFER_BOUND_SHARE:
        return None
    costliest = sorted(
        split.schedule.transfers,
        key=lambda copy: (-waited_ns.get(copy.tensor, 0), copy.set_out_ns - copy.end_ns),
    )[:MAX_TENSORS]
    told = "; ".join(
        f"{copy.tensor} ({copy.source} → {copy.target}, {format_bytes(copy.size_bytes)}, step "
        f"waits {format_ns(waited_ns.get(copy.tensor, 0))})"
        for copy in costliest
    )
    return InSplit(
        code=CODE,
        name=NAME,
        split=split,
        finding=f"{format_share(share)} of the step of {split.name} waits for transfers "
        f"(simulated); costliest: {told}",
        moves=tuple(move for copy in costliest for move in _joins(evidence, split, copy)),
        otherwise="take another split, or faster links: joining no single tensor surely helps",
        where=_where(evidence, costliest[0]),
    )


def _where(evidence: Evidence, copy: Transfer) -> dict[str, str | int]:
    return evidence.where(copy.producer, tensor=copy.tensor, device=copy.target)


def _waited_ns(evidence: Evidence, split: Split) -> dict[str, int]:
    """Return the time that the critical path spends on each tensor."""
    spent: defaultdict[str, int] = defaultdict(int)
    for step in critical_path(evidence.graph, split.schedule, evidence.cluster):
        if step.kind in (PathKind.COPY, PathKind.QUEUEING):
            spent[step.what] += step.time_ns
    return spent


def _joins(evidence: Evidence, split: Split, copy: Transfer) -> Iterator[Move]:
    """Yield what brings both ends of a tensor together: their ops alone, or their layers."""
    graph, device_of = evidence.graph, split.placement.device_of
    readers = [
        edge.consumer
        for edge in graph.outputs_of(copy.producer)
        if edge.port == copy.port and device_of.get(edge.consumer) == copy.target
    ]
    ends = (([copy.producer], copy.target), (readers, copy.source))
    known, where = set(evidence.cluster.device_names()), _where(evidence, copy)
    for ops, device in ends:
        # On the host nothing can be placed; what runs there without a kernel is placed elsewhere.
        if device not in known or not ops:
            continue
        more = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
        there = with_variables(graph, ops, device)
        yield Move(f"put op {ops[0]}{more} on {device}", where, there)
        layers = dict.fromkeys(layer for op in ops if (layer := graph.op(op).layer) is not None)
        if layers:
            names = ", ".join(layers)
            whole = [op for layer in layers for op in layer_ops(graph, layer)]
            yield Move(
                f"put layer {names} with its gradients and variables on {device}",
                where,
                with_variables(graph, whole, device),
            )
