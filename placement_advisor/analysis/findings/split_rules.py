"""PA201 to PA203, PA401 and PA402: transfers, load and memory of a split.

PA201: the critical path spends a large part of the step on copies and on queueing for a link.
PA202: one device computes much longer than the others, and a layer could move. PA203: a device
does next to nothing. PA401: a step needs more memory than a device has; the batch that fits is
the largest whose simulated step does. PA402: the first device holds most of the memory.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Candidate, Finding
from placement_advisor.analysis.findings.evidence import (
    SplitFinding,
    SplitMove,
    layer_moves,
    layer_ops,
    with_variables,
)
from placement_advisor.cost.batch import TILE
from placement_advisor.simulator.schedule import PathKind, critical_path, device_times, shortages
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.simulator.schedule import DeviceTime, Shortage, Transfer


# XProf calls a step bound by communication at 30 %; a change of placement is cheaper to try.
# By how much sooner is judgement.
TRANSFER_BOUND_SHARE = 0.2
MAX_TENSORS = 5


def find_step_waits_for_transfers(evidence: Evidence) -> Iterator[SplitFinding]:
    """Yield a finding for each split that waits so, with moves that join what it waits for."""
    for split in evidence.splits:
        yield from _transfers_found(evidence, split)


def _transfers_found(evidence: Evidence, split: Split) -> Iterator[SplitFinding]:
    step_ns = split.schedule.step_ns
    waited_ns = _waited_ns(evidence, split)
    share = sum(waited_ns.values()) / step_ns if step_ns else 0.0
    if share < TRANSFER_BOUND_SHARE:
        return
    costliest = sorted(
        split.schedule.transfers,
        key=lambda copy: (-waited_ns.get(copy.tensor, 0), copy.set_out_ns - copy.end_ns),
    )[:MAX_TENSORS]
    told = "; ".join(
        f"{copy.tensor} ({copy.source} → {copy.target}, {format_bytes(copy.size_bytes)}, step "
        f"waits {format_ns(waited_ns.get(copy.tensor, 0))})"
        for copy in costliest
    )
    yield SplitFinding(
        split=split,
        finding=f"{format_share(share)} of the step of {split.name} waits for transfers "
        f"(simulated); costliest: {told}",
        moves=tuple(move for copy in costliest for move in _joins(evidence, split, copy)),
        otherwise="take another split, or faster links: no single tensor is sure to help",
        where=_where_of_transfer(evidence, costliest[0]),
    )


def _where_of_transfer(evidence: Evidence, copy: Transfer) -> dict[str, str | int]:
    return evidence.where(copy.producer, tensor=copy.tensor, device=copy.target)


def _waited_ns(evidence: Evidence, split: Split) -> dict[str, int]:
    """Return the time that the critical path spends on each tensor."""
    spent: defaultdict[str, int] = defaultdict(int)
    for step in critical_path(evidence.graph, split.schedule, evidence.cluster):
        if step.kind in (PathKind.COPY, PathKind.QUEUEING):
            spent[step.what] += step.time_ns
    return spent


def _joins(evidence: Evidence, split: Split, copy: Transfer) -> Iterator[SplitMove]:
    """Yield what brings both ends of a tensor together: their ops alone, or their layers."""
    graph, device_of = evidence.graph, split.placement.device_of
    readers = [
        edge.consumer
        for edge in graph.outputs_of(copy.producer)
        if edge.port == copy.port and device_of.get(edge.consumer) == copy.target
    ]
    ends = (([copy.producer], copy.target), (readers, copy.source))
    known, where = set(evidence.cluster.device_names()), _where_of_transfer(evidence, copy)
    for ops, device in ends:
        # On the host nothing can be placed; what runs there without a kernel is placed elsewhere.
        if device not in known or not ops:
            continue
        more = f" and {len(ops) - 1} more" if len(ops) > 1 else ""
        there = with_variables(graph, ops, device)
        yield SplitMove(f"put op {ops[0]}{more} on {device}", where, there)
        layers = dict.fromkeys(layer for op in ops if (layer := graph.op(op).layer) is not None)
        if layers:
            names = ", ".join(layers)
            whole = [op for layer in layers for op in layer_ops(graph, layer)]
            yield SplitMove(
                f"put layer {names} with its gradients and variables on {device}",
                where,
                with_variables(graph, whole, device),
            )


# A device with a tenth of the busiest one's work shortens the step by less than a tenth, before
# what its copies cost.
IDLE_SHARE = 0.1


def find_idle_device(evidence: Evidence) -> Iterator[SplitFinding]:
    """Yield a finding for each idle device of each split, with the layers that may move there."""
    names = evidence.cluster.device_names()
    for split in evidence.splits:
        times = [time for time in device_times(split.schedule) if time.device in names]
        busiest = max(times, key=lambda time: time.compute_ns)
        for time in times:
            if time.compute_ns < IDLE_SHARE * busiest.compute_ns:
                yield _idle_found(evidence, split, time, busiest.device)


def _idle_found(evidence: Evidence, split: Split, time: DeviceTime, busiest: str) -> SplitFinding:
    step_ns, where = split.schedule.step_ns, {"device": time.device}
    return SplitFinding(
        split=split,
        finding=f"{split.name}: {time.device} computes {format_ns(time.compute_ns)} of the "
        f"{format_ns(step_ns)} of a step (simulated); {_idle_reason(time, step_ns)}",
        moves=tuple(
            move._replace(where=where)
            for move in layer_moves(evidence, split, busiest, time.device)
        ),
        otherwise=f"try several layers of {busiest} on {time.device}: no single layer is "
        "sure to help there",
        where=where,
    )


def _idle_reason(time: DeviceTime, step_ns: int) -> str:
    """Return the largest part of its idle time in words."""
    if time.compute_ns + time.copy_work_ns == 0:
        return "no op that takes time is placed there"
    reasons = {
        "waits for its first tensor": time.before_first_ns,
        "waits for tensors on their way": time.waits_for_copy_ns,
        "waits for its host to launch ops": time.waits_for_launch_ns,
        "waits for other devices to make a tensor": time.waits_for_device_ns,
        "has no work left": time.after_last_ns,
    }
    reason = max(reasons, key=reasons.__getitem__)
    return f"it {reason} for {format_share(reasons[reason] / step_ns)} of the step"


# At 1.25 times the mean, a fifth of what even devices could gain is lost.
UNEVEN_RATIO = 1.25


def find_uneven_load(evidence: Evidence) -> Iterator[SplitFinding]:
    """Yield a finding for each split that is uneven, with the layers that may move."""
    for split in evidence.splits:
        load_ns = {
            name: split.schedule.compute_ns.get(name, 0) for name in evidence.cluster.device_names()
        }
        most_ns = max(load_ns.values())
        working = {name: ns for name, ns in load_ns.items() if ns > IDLE_SHARE * most_ns}
        if len(working) <= 1 or most_ns * len(working) < UNEVEN_RATIO * sum(working.values()):
            continue
        busiest = max(working, key=working.__getitem__)
        least = min(working, key=working.__getitem__)
        loads = ", ".join(f"{name} {format_ns(ns)}" for name, ns in working.items())
        yield SplitFinding(
            split=split,
            finding=f"the load of {split.name} is uneven: compute per step {loads} (simulated)",
            moves=tuple(layer_moves(evidence, split, busiest, least)),
            where={"device": busiest},
        )


def find_does_not_fit(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each candidate and device that is too small."""
    short_of = [
        (candidate, shortages(candidate.predicted.peak_memory, evidence.cluster.devices))
        for candidate in evidence.candidates
        if candidate.predicted
    ]
    fitting = [candidate.name for candidate, short in short_of if not short]
    for candidate, short in short_of:
        for each in short:
            yield _shortage_finding(evidence, candidate, each, fitting)


def _shortage_finding(
    evidence: Evidence, candidate: Candidate, short: Shortage, fitting: list[str]
) -> Finding:
    ways, name = [], candidate.name
    if fitting:
        ways.append(f"use a placement that fits: {', '.join(fitting)}")
    batch = _fitting_batch(evidence, candidate, short)
    if batch is not None:
        ways.append(f"take a batch of at most {batch} (simulated)")
    memory_bytes = short.device.memory_bytes or 0
    if not ways and short.peak.resident_bytes <= memory_bytes and evidence.traced.batch_size != 1:
        ways.append("take a smaller batch")
    largest = short.peak.contributors[0]
    return Finding(
        finding=f"{name} does not fit: {short} (simulated)",
        action=", or ".join(ways)
        or f"{format_bytes(short.peak.resident_bytes)} are held all the time: the variables must "
        "be split over more devices, or be smaller",
        where=evidence.where(largest.name, device=short.device.name, candidate=name),
        is_hypothetical=evidence.is_hypothetical(name),
        batch_size=batch if evidence.traced.takes_batch_size else None,
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


# A device with three times the memory of any other gains little from the others being there.
PILED_RATIO = 3
# Below half of the memory there is room to double the batch before it matters.
TIGHT_SHARE = 0.5


def find_memory_on_first_device(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each split whose first device fills up; needs a known memory size."""
    first, *others = evidence.cluster.devices
    for split in evidence.splits:
        peaks = split.schedule.peak_memory
        here, tight_bytes = peaks[first.name], TIGHT_SHARE * (first.memory_bytes or math.inf)
        elsewhere_bytes = max((peaks[other.name].size_bytes for other in others), default=math.inf)
        if here.size_bytes < max(tight_bytes, PILED_RATIO * elsewhere_bytes):
            continue
        held = ", ".join(
            f"{each.name} ({each.held}, {format_bytes(each.size_bytes)})"
            for each in here.contributors
        )
        yield Finding(
            finding=f"{split.name}: {first.name} holds {format_bytes(here.size_bytes)} of its "
            f"{format_bytes(first.memory_bytes)}, no other device more than "
            f"{format_bytes(elsewhere_bytes)} (simulated)",
            action=f"put the layers of the largest on another device: {held}",
            where={"device": first.name},
            is_hypothetical=split.is_hypothetical,
        )
