"""PA201: a large part of the step waits for tensors on their way between devices.

Waiting is what the critical path of the simulated step spends on copies and on queueing for a wire.
A tensor is joined by moving the layer that makes it, or those that read it, to the other end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.moves import Move, best_move, layer_ops
from placement_advisor.simulator.critical_path import PathKind, critical_path
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.events import Transfer

CODE = "PA201"
NAME = "step-waits-for-transfers"
# XProf calls a step bound by communication at 30 %; a change of placement is cheaper to try.
# By how much sooner is judgement.
TRANSFER_BOUND_SHARE = 0.2
MAX_TENSORS = 5


class _Cut(NamedTuple):
    copy: Transfer
    waited_ns: int
    join: Move | None


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each split that waits so."""
    return tuple(
        finding for split in evidence.splits if (finding := _finding(evidence, split)) is not None
    )


def _finding(evidence: Evidence, split: Split) -> Finding | None:
    step_ns = split.schedule.step_ns
    waited_ns = _waited_ns(evidence, split)
    share = sum(waited_ns.values()) / step_ns if step_ns else 0.0
    if share < TRANSFER_BOUND_SHARE:
        return None
    costliest = sorted(
        split.schedule.transfers,
        key=lambda copy: (-waited_ns.get(copy.tensor, 0), copy.set_out_ns - copy.end_ns),
    )[:MAX_TENSORS]
    cuts = [
        _Cut(
            copy,
            waited_ns.get(copy.tensor, 0),
            best_move(evidence, split, _joins(evidence, split, copy)),
        )
        for copy in costliest
    ]
    joins = [cut.join for cut in cuts if cut.join is not None]
    best = max(joins, key=lambda join: join.saving_ns, default=None)
    top = next((cut for cut in cuts if cut.join is not None and cut.join == best), cuts[0])
    action, saving_ns = _action(evidence, split, best)
    return Finding(
        code=CODE,
        name=NAME,
        finding=f"{format_share(share)} of the step of {split.name} waits for transfers "
        f"(simulated); costliest: {'; '.join(map(_in_words, cuts))}",
        action=action,
        where=evidence.where(top.copy.producer, tensor=top.copy.tensor, device=top.copy.target),
        saving_ns=saving_ns,
        is_hypothetical=split.is_hypothetical,
    )


def _waited_ns(evidence: Evidence, split: Split) -> dict[str, int]:
    """Return the time that the critical path spends on each tensor."""
    spent: defaultdict[str, int] = defaultdict(int)
    for step in critical_path(evidence.graph, split.schedule, evidence.cluster):
        if step.kind in (PathKind.COPY, PathKind.QUEUEING):
            spent[step.what] += step.time_ns
    return spent


def _joins(
    evidence: Evidence, split: Split, copy: Transfer
) -> Iterable[tuple[str, Iterable[str], str]]:
    graph, device_of = evidence.graph, split.placement.device_of
    readers = [
        edge.consumer
        for edge in graph.outputs_of(copy.producer)
        if edge.port == copy.port and device_of.get(edge.consumer) == copy.target
    ]
    ends = (([copy.producer], copy.target), (readers, copy.source))
    known = set(evidence.cluster.device_names())
    for ops, device in ends:
        # On the host nothing can be placed; what runs there without a kernel is placed elsewhere.
        if device not in known or not ops:
            continue
        yield f"op {ops[0]}" + (f" and {len(ops) - 1} more" if len(ops) > 1 else ""), ops, device
        layers = dict.fromkeys(layer for op in ops if (layer := graph.op(op).layer) is not None)
        if layers:
            names = ", ".join(layers)
            whole = [op for layer in layers for op in layer_ops(graph, layer)]
            yield f"layer {names} with its gradients and variables", whole, device


def _action(evidence: Evidence, split: Split, best: Move | None) -> tuple[str, int | None]:
    """Return what to do, and what it saves."""
    if best is not None:
        return f"put {best.what} on {best.device}", best.saving_ns
    alone = evidence.alone
    gain_ns = split.schedule.step_ns - alone.predicted.step_ns if alone and alone.predicted else 0
    if gain_ns > 0:
        return "joining no single tensor helps; one device is faster: do not split here", gain_ns
    return "joining no single tensor helps: only another split, or faster links, would", None


def _in_words(cut: _Cut) -> str:
    copy = cut.copy
    joined = "joining saves nothing"
    if cut.join is not None:
        joined = f"joining saves {format_ns(cut.join.saving_ns)}"
    return (
        f"{copy.tensor} ({copy.source} → {copy.target}, {format_bytes(copy.size_bytes)}, "
        f"step waits {format_ns(cut.waited_ns)}, {joined})"
    )
