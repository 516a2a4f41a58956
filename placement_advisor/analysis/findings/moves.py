"""What to move in a split, so that all that is said of it can be followed together.

Rules hand in what they found in a split, each with the moves that would help against it. The move
that shortens the simulated step most is taken; all others are simulated again on top of it, and so
on, until none is worth telling. So the savings add up: each is what a move brings beyond those
before it. Gradients beside their forward ops come first, since what another layer moved is worth
depends on where its gradients are.

Where candidates run, the split then runs as it is, with the first move, with the first and the
second, and so on (`to_be_timed`): each move saves what it has saved there. The first one that has
not surely saved anything is not told, nor is any that builds on it. Where nothing runs, only moves
count that save something for sure as far as costs are known (`savings`).

A move takes along what cannot stay behind: all that touches a variable goes with it. No move takes
an op elsewhere than one before it, leaves a device of the split without work, which would be no
split any more, or has a device run out of memory.

Left out: two moves that help only together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.evidence import MIN_SAVING_SHARE, YOUR_SPLIT
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import placed_ops
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO
from placement_advisor.simulator.schedule import shortages
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Saving
    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# Each costs a simulation; past the largest layers a move changes less than is worth telling.
MAX_LAYERS_TRIED = 8
# Each has to be prepared and takes a turn of every round; those behind the first save the least.
_MAX_TIMED = 4


class Move(NamedTuple):
    """Something to do in a split: the devices of the ops that it is about, and where that is.

    With ``gradients`` these have no device of their own but that of their layer's forward ops.
    """

    action: str
    where: Mapping[str, str | int]
    device_of: Mapping[str, str] = MappingProxyType({})
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InSplit:
    """What a rule has found in a split; one of ``moves`` is enough against it.

    Where none of them helps for sure, ``otherwise`` says what is to be done, at ``where``; without
    it nothing is found then.
    """

    code: str
    name: str
    split: Split
    finding: str
    moves: tuple[Move, ...]
    otherwise: str | None = None
    where: Mapping[str, str | int]


class _Told(NamedTuple):
    """What to do about something that was found.

    ``after`` is the split with it and all that is told before, None if it moves nothing; ``saving``
    is beyond what is told before.
    """

    found: InSplit
    action: str
    where: Mapping[str, str | int]
    after: Placement | None = None
    saving: Saving | None = None

    def finding(self, lead: str, saving: Saving | None) -> Finding:
        """Return the finding, with words before what is to be done."""
        return Finding(
            code=self.found.code,
            name=self.found.name,
            finding=self.found.finding,
            action=f"{lead}{self.action}",
            where=self.where,
            saving=saving,
            is_hypothetical=self.found.split.is_hypothetical,
        )


def together(evidence: Evidence, found: Sequence[InSplit]) -> tuple[Finding, ...]:
    """Return the findings about one split, in the order in which they are to be followed.

    Where one device is faster than the user's own split with all of them, giving it up comes first
    and has the saving; the others say what helps whoever keeps it.
    """
    split = found[0].split
    is_timed = bool(evidence.timed_ns(split.placement))
    told = _with_savings(evidence, split, _told(evidence, found, is_sure=not is_timed))
    given_up = _given_up(evidence, split, told)
    if given_up is None or not told:
        return tuple(each.finding(f"in {split.name}, ", each.saving) for each in told)
    why, saving = given_up
    first, *others = told
    return (
        first.finding(f"give {split.name} up: {why}; if you keep it, ", saving),
        *(each.finding(f"if you keep {split.name}, ", None) for each in others),
    )


def to_be_timed(evidence: Evidence, found: Sequence[InSplit]) -> list[Placement]:
    """Return what shows, once timed, what is saved by the first moves in a split.

    It is the split as it is, with the first move, with the first and the second, and so on; of the
    user's own also one device. Nothing is to be timed where nothing is told, or no move of a split
    that is not the user's own.
    """
    split = found[0].split
    told = _told(evidence, found, is_sure=False)
    moved = [each.after for each in told if each.after is not None][:_MAX_TIMED]
    alone = evidence.alone if split.name == YOUR_SPLIT else None
    if not told or (alone is None and not moved):
        return []
    return [
        split.placement,
        *(
            replace(after, label=f"{split.placement.label}, {i} moved")
            for i, after in enumerate(moved, start=1)
        ),
        *([] if alone is None or alone.placement is None else [alone.placement]),
    ]


def with_variables(graph: OpGraph, ops: Iterable[str], device: str) -> dict[str, str]:
    """Return the device for these placed ops, and for all that touches their variables."""
    going = set(ops)
    variables = {graph.op(name).variable for name in going} - {None}
    return {
        op.name: device
        for op in placed_ops(graph)
        if op.name in going or (op.variable is not None and op.variable in variables)
    }


def layer_ops(graph: OpGraph, layer: str) -> list[str]:
    """Return the ops of a layer: forward, backward, variables and updates."""
    return [op.name for op in placed_ops(graph) if op.layer == layer]


def layer_moves(evidence: Evidence, split: Split, source: str, target: str) -> Iterator[Move]:
    """Yield the moves of the source's costliest layers to the target."""
    cost_ns: dict[str, int] = {}
    for run in split.schedule.runs:
        layer = evidence.graph.op(run.op).layer
        if run.device == source and layer is not None:
            cost_ns[layer] = cost_ns.get(layer, 0) + run.end_ns - run.start_ns
    largest = sorted(cost_ns, key=lambda layer: (-cost_ns[layer], layer))[:MAX_LAYERS_TRIED]
    for layer in largest:
        yield Move(
            f"put layer {layer} with its gradients and variables on {target}",
            {"layer": layer, "device": source},
            with_variables(evidence.graph, layer_ops(evidence.graph, layer), target),
        )


def _told(evidence: Evidence, found: Sequence[InSplit], *, is_sure: bool) -> list[_Told]:
    """Return what is told, at most one move against each finding.

    ``is_sure``: only moves count that save something as wrong as costs may be.
    """
    split = found[0].split
    placement = split.placement
    working = _working(evidence, placement)
    told: list[_Told] = []
    settled: dict[str, str] = {}
    left, helpless = list(found), None
    while True:
        step_ns = evidence.simulator.step_ns(placement)
        tries = [
            (gain_ns, each, move, other)
            for each in left
            for move in each.moves
            if all(settled.get(op, device) == device for op, device in move.device_of.items())
            for other in [moved(evidence.graph, placement, move)]
            if _working(evidence, other) >= working
            if (gain_ns := step_ns - evidence.simulator.step_ns(other))
            >= MIN_SAVING_SHARE * split.schedule.step_ns
            if not is_sure or evidence.saving(placement, other) is not None
        ]
        if helpless is None:
            helped = {id(against) for _, against, _, _ in tries}
            helpless = [each for each in left if id(each) not in helped]
        tries.sort(key=lambda each: (not each[2].gradients, -each[0]))
        best = next((each for each in tries if _fits(evidence, split, each[3])), None)
        if best is None:
            break
        _, against, move, placement = best
        told.append(_Told(against, move.action, move.where, placement))
        left.remove(against)
        settled |= move.device_of
    return told + [
        _Told(each, each.otherwise, each.where)
        for each in helpless
        # Where something was sent, nothing is to be taken away again.
        if each.otherwise is not None and each.where.get("device") not in settled.values()
    ]


def _with_savings(evidence: Evidence, split: Split, told: Sequence[_Told]) -> list[_Told]:
    """Return what is told with what it saves: as runs have shown where it was timed.

    It ends with the first move that may save nothing; all others build on that.
    """
    before = split.placement
    found: list[_Told] = []
    holds = True
    for each in told:
        if each.after is None:
            found.append(each)
            continue
        if evidence.timed_ns(each.after):
            saving = evidence.measured_saving(before, each.after)
        else:
            saving = evidence.saving(before, each.after)
        holds = holds and saving is not None
        if holds:
            found.append(each._replace(saving=saving))
        elif each.found.otherwise is not None:
            found.append(_Told(each.found, each.found.otherwise, each.found.where))
        before = each.after
    return found


def moved(graph: OpGraph, placement: Placement, move: Move) -> Placement:
    """Return the placement with what a move takes elsewhere."""
    device_of = {**placement.device_of, **move.device_of}
    if move.gradients:
        forward = (op for op in graph.ops if op.role is Role.FORWARD and op.layer is not None)
        of_layer = {op.layer: device_of[op.name] for op in forward if op.variable is None}
        for name in move.gradients:
            device_of[name] = of_layer.get(graph.op(name).layer, device_of[name])
    return replace(placement, device_of=device_of)


def _fits(evidence: Evidence, split: Split, placement: Placement) -> bool:
    """Whether a placement leaves no device short of memory that the split does not."""
    devices = evidence.cluster.devices
    if all(device.memory_bytes is None for device in devices):
        return True
    peaks = evidence.simulator.schedule(placement).peak_memory
    before = shortages(split.schedule.peak_memory, devices)
    return {each.device for each in shortages(peaks, devices)} <= {each.device for each in before}


def _working(evidence: Evidence, placement: Placement) -> set[str]:
    """Return the devices on which an op takes time."""
    costs = {device: table.costs for device, table in evidence.costs.items()}
    return {
        device
        for op, device in placement.device_of.items()
        if op in costs[device] and costs[device][op].time_ns > 0
    }


def _given_up(evidence: Evidence, split: Split, told: Sequence[_Told]) -> tuple[str, Saving] | None:
    """Say why to use one device in place of the user's own split, and what that saves for sure.

    None if it saves nothing, or if the split takes less with what is told.
    """
    alone = evidence.alone
    if split.name != YOUR_SPLIT or alone is None or not alone.predicted or not alone.placement:
        return None
    if shortages(alone.predicted.peak_memory, evidence.cluster.devices):
        return None
    best = next((each.after for each in reversed(told) if each.after), split.placement)
    steps = [split.placement, best, alone.placement]
    timed = [evidence.timed_ns(placement) for placement in steps]
    saving: Saving | None
    if all(timed):
        basis = "measured side by side"
        saving = evidence.measured_saving(split.placement, alone.placement)
        now_ns, best_ns, alone_ns = (median(each) for each in timed)
    else:
        basis = "simulated"
        saving = evidence.saving(split.placement, alone.placement)
        now_ns, best_ns, alone_ns = (evidence.simulator.step_ns(each) for each in steps)
    if saving is None or alone_ns > WORTHWHILE_RATIO * best_ns:
        return None
    at_best = f", and {format_ns(best_ns)} with all that helps here" if best_ns < now_ns else ""
    why = (
        f"it takes {format_ns(now_ns)} for a step{at_best}, one device {format_ns(alone_ns)} "
        f"({basis})"
    )
    return why, saving
