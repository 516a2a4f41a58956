"""What the rules of findings look at, and how moves within one split become findings.

Rules judge two splits: the user's own (their `tf.device` scopes) and the recommended one. Without
a recommendation they judge the best candidate, by measured step time where candidates ran, else
by simulated time; what they find there is hypothetical.

Moves: a rule returns what it found in a split, with the moves that would help. The move that
shortens the simulated step most is taken, the others are simulated again on top of it, until none
is worth telling, so the savings add up. Moves of gradients come first. A move takes along all ops
that touch the same variable. No move takes an op elsewhere than an earlier one, leaves a device
without work, or makes a device run out of memory. Where candidates run, the split runs too, with
the first move, with the first two, and so on (`split_placements_to_time`); a move that has not
surely saved anything is dropped, with all that build on it. Left out: two moves that help only
together.

Savings: a saving by another placement is a ratio of two placements, known as well as any other
ratio (`Sensitivity`). A saving by other ops on the same device is off by the factor that the time
of these ops is within. A measured saving is known as far as its repeats agree, in one run and in
the next. A saving is a share of the step, since other runs and costs that are too low lengthen
both steps. What may save nothing is no saving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import hypot
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor import defaults
from placement_advisor.analysis.analysis_result import Candidate, Finding, Saving
from placement_advisor.candidates import references
from placement_advisor.candidates.families import SPLITS, WORST_CASE_FAMILIES
from placement_advisor.candidates.references import as_written
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.graph.op import Role
from placement_advisor.machine.gpu_facts import GpuFacts, gpu_facts
from placement_advisor.measurement import measurement as measurements
from placement_advisor.simulator.schedule import Schedule, shortages
from placement_advisor.simulator.sensitivity import PredictedRatio, Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.analysis.runs import RunResults
    from placement_advisor.analysis.target_costs import StepCosts
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.step_growth import GrowingStep
    from placement_advisor.tf.answers import SourceLine, Traced


# Less than this share of a saving is zero at the three digits that are shown.
_NEGLIGIBLE_SHARE = 0.01
# In another run another share of the step is saved, nine in ten times by no more than this more or
# less: what the ratio of two steps is off there (docs/decisions/0062-a-saving-has-a-range.md).
_RERUN_SHARE = 0.04


def certain_saving(
    step_ns: float, saving_ns: float, others_ns: Sequence[float], basis: str = "simulated"
) -> Saving | None:
    """Return a saving of a step that may as well be any of the others; None if one is none.

    No step saves more than it takes.
    """
    low_ns, high_ns = min(saving_ns, *others_ns), max(saving_ns, *others_ns)
    if low_ns < max(1, _NEGLIGIBLE_SHARE * saving_ns):
        return None
    return Saving(
        step_ns=round(step_ns),
        saving_ns=round(saving_ns),
        low_ns=round(low_ns),
        high_ns=round(min(high_ns, step_ns)),
        basis=basis,
    )


def saving_by_run(step_ns: float, saving_ns: float, ends_ns: Sequence[float]) -> Saving | None:
    """Return what a step has saved beside another one; ``ends_ns`` is what its run leaves in doubt.

    Whoever acts on it has another run, of which the turns of this one show nothing.
    """
    again_ns = _RERUN_SHARE * step_ns
    below_ns, above_ns = saving_ns - min(ends_ns), max(ends_ns) - saving_ns
    others_ns = (saving_ns - hypot(below_ns, again_ns), saving_ns + hypot(above_ns, again_ns))
    return certain_saving(step_ns, saving_ns, others_ns, "measured")


def saving_by_ratio(step_ns: int, ratio: PredictedRatio) -> Saving | None:
    """Return what a step saves beside another one that takes ``ratio`` of it."""
    saving_ns, *ends_ns = (step_ns * (1 - each) for each in (ratio.ratio, ratio.low, ratio.high))
    return certain_saving(step_ns, saving_ns, ends_ns)


def saving_by_ops(step_ns: int, other_ns: int, within: float) -> Saving | None:
    """Return what a step saves by other ops, whose times are ``within`` a factor.

    None if it is hardly anything.
    """
    saving_ns = step_ns - other_ns
    if saving_ns < MIN_SAVING_SHARE * step_ns:
        return None
    return certain_saving(step_ns, saving_ns, [saving_ns / within, saving_ns * within])


YOUR_SPLIT = "your own split"
# What gains less cannot be told from nothing in any measurement.
MIN_SAVING_SHARE = 0.01


class Split(NamedTuple):
    """A placement on several devices, with its simulated step.

    ``is_hypothetical``: it is neither the user's own nor recommended.
    """

    name: str
    placement: Placement
    schedule: Schedule
    is_hypothetical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedStep:
    """A step on one GPU known by its datasheet alone; another step can be estimated like it.

    ``now_ns`` is what the step takes as it is; times of ops are ``within`` a factor.
    """

    cluster: Cluster
    device: Device
    gpu: GpuFacts
    now_ns: int
    within: float

    def step_ns(self, graph: OpGraph) -> int:
        """Return what a changed step takes on the device."""
        costs = roofline_by_place(graph, self.cluster)
        placement = references.on_device(graph, self.device.name)
        return Simulator(graph, costs, self.cluster).step_ns(placement)


# What rules would say of these, nobody would act on; a split of the batch is of another graph. The
# user's own split is looked at in any case.
_NO_ADVICE = WORST_CASE_FAMILIES | {references.SINGLE, AS_WRITTEN, *SPLITS}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a model, its splits and its input.

    ``growing`` is the step at other batches, None where it is not known there; ``break_even`` is
    None where nothing was swept. ``own_of_replicas`` are ops that compute something of a replica's
    own where the batch is split. ``recommended`` is the candidate to use, None if none is. No
    advice names what the user's program has beside the step (`Traced.left_out`).
    """

    traced: Traced
    prices: StepCosts
    simulator: Simulator
    candidates: tuple[Candidate, ...]
    results: RunResults
    own_of_replicas: tuple[str, ...] = ()
    recommended: str | None = None
    growing: GrowingStep | None = None
    break_even: BreakEven | None = None

    @property
    def graph(self) -> OpGraph:
        """The step as it was traced."""
        return self.traced.graph

    @property
    def cluster(self) -> Cluster:
        """The devices that the step has costs on."""
        return self.prices.cluster

    @cached_property
    def line_of(self) -> Mapping[str, SourceLine]:
        """The file and line of each op, where they are known."""
        return self.traced.line_of

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """The splits that rules judge: the user's own, and the recommended or the best one."""
        splits = []
        own = as_written(self.graph, self.traced.requested_device_of, self.cluster)
        if own is not None:
            splits.append(Split(YOUR_SPLIT, own, self.simulator.schedule(own)))
        told = self.recommended
        best = best_split([c for c in self.candidates if told is None or c.name == told])
        if best is not None and best.placement is not None and best.predicted is not None:
            splits.append(Split(best.name, best.placement, best.predicted, told is None))
        return tuple(splits)

    def is_of_batch(self, candidate: str | None) -> bool:
        """Whether a candidate splits the batch."""
        return any(c.name == candidate and c.samples is not None for c in self.candidates)

    def is_hypothetical(self, candidate: str) -> bool:
        """Whether the user neither runs a candidate nor is told to: not the single device."""
        return candidate not in (self.recommended, AS_WRITTEN, defaults.BASELINE)

    def of_family(self, family: str) -> Split | None:
        """Return the first candidate of a family that was predicted, None if none was."""
        for c in self.candidates:
            if c.family == family and c.placement and c.predicted:
                return Split(c.name, c.placement, c.predicted, self.is_hypothetical(c.name))
        return None

    @property
    def alone(self) -> Split:
        """The single device, which is always predicted."""
        alone = self.of_family(references.SINGLE)
        assert alone is not None
        return alone

    @property
    def timed_alone_ns(self) -> tuple[int, ...]:
        """The steps of the single device as measured, none if it did not run."""
        alone = (c.measured for c in self.candidates if c.family == references.SINGLE)
        return next((run.step_ns for run in alone if run is not None), ())

    @property
    def assumed(self) -> AssumedStep | None:
        """The step on one GPU that is not here, None if that is not what was predicted."""
        device = self.cluster.devices[0]
        if not self.prices.is_assumed or device.gpu is None:
            return None
        return AssumedStep(
            cluster=self.cluster,
            device=device,
            gpu=gpu_facts(device.gpu),
            now_ns=self.alone.schedule.step_ns,
            within=self.prices.costs[device.name].total_within,
        )

    def step_alone(self) -> tuple[float, str]:
        """Return how long a step on a single device takes, and whether measured or simulated."""
        steps_ns = self.timed_alone_ns
        if steps_ns:
            return median(steps_ns), "measured"
        return self.alone.schedule.step_ns, "simulated"

    def where(self, op: str | None = None, **more: str) -> dict[str, str | int]:
        """Return where something is: the op's layer, the rest as given, and the line, if known.

        Of an op of another graph, that of a split batch, only the name is known.
        """
        found: dict[str, str | int] = {}
        if op is not None:
            layer = self.graph.op(op).layer if op in self.graph else None
            found |= {"layer": layer} if layer is not None else {}
            found["op"] = op
        found |= more
        if op is not None and op in self.line_of:
            found["file"], found["line"] = self.line_of[op]
        return found

    def timed_ns(self, placement: Placement) -> tuple[float, ...]:
        """Return the median step in each round in which a placement was timed; nothing if none."""
        for timed in self.results.timed:
            if timed.placement.device_of == placement.device_of:
                return tuple(median(steps) for steps in timed.rounds)
        return ()

    def measured_saving(self, before: Placement, after: Placement) -> Saving | None:
        """Return what another placement has surely saved, both being timed; None if nothing."""
        pairs = list(zip(self.timed_ns(before), self.timed_ns(after), strict=False))
        # Ratios within rounds: what slows the machine down for a while does so to both.
        ratio = measurements.median_interval([now / then for then, now in pairs])
        if ratio is None:
            return None
        step_ns = median(then for then, _ in pairs)
        saving_ns, *ends_ns = (
            step_ns * (1 - each) for each in (ratio.median, ratio.low, ratio.high)
        )
        return saving_by_run(step_ns, saving_ns, ends_ns)

    def saving(self, before: Placement, after: Placement) -> Saving | None:
        """Return what another placement surely saves; None if nothing.

        It is asked of many that save little: what ops alone leave in doubt is looked at first.
        """
        step_ns = self.simulator.step_ns(before)
        if self.simulator.step_ns(after) * self.prices.doubt.ops >= step_ns:
            return None
        ratio = Sensitivity(self.simulator, before, self.prices.doubt).ratio(after)
        return saving_by_ratio(step_ns, ratio)


def best_split(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the fastest candidate on several devices: as measured if any was, else as simulated.

    A candidate that failed is none; ties go to the first.
    """
    times: list[tuple[tuple[bool, float], Candidate]] = []
    for candidate in candidates:
        placement, schedule = candidate.placement, candidate.predicted
        if candidate.family in _NO_ADVICE or candidate.failure or not (placement and schedule):
            continue
        step_ns = candidate.step_ns
        times.append(((step_ns is None, step_ns or schedule.step_ns), candidate))
    _, best = min(times, key=lambda each: each[0], default=(None, None))
    return best


# Each costs a simulation; past the largest layers a move changes less than is worth telling.
MAX_LAYERS_TRIED = 8
# Each has to be prepared and takes a turn of every round; those behind the first save the least.
_MAX_TIMED = 4


class SplitMove(NamedTuple):
    """Something to do in a split: the devices of the ops that it is about, and where that is.

    With ``gradients`` these have no device of their own but that of their layer's forward ops.
    """

    action: str
    where: Mapping[str, str | int]
    device_of: Mapping[str, str] = MappingProxyType({})
    gradients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFinding:
    """What a rule has found in a split; one of ``moves`` is enough against it.

    Where none of them helps for sure, ``otherwise`` says what is to be done, at ``where``; without
    it nothing is found then. ``code`` and ``name`` are the rule's, which fills them in.
    """

    code: str = ""
    name: str = ""
    split: Split
    finding: str
    moves: tuple[SplitMove, ...]
    otherwise: str | None = None
    where: Mapping[str, str | int]


class _Suggestion(NamedTuple):
    """What to do about something that was found.

    ``after`` is the split with it and all that is told before, None if it moves nothing; ``saving``
    is beyond what is told before.
    """

    found: SplitFinding
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


def combined(evidence: Evidence, found: Sequence[SplitFinding]) -> tuple[Finding, ...]:
    """Return the findings about one split, in the order in which they are to be followed.

    Where one device is faster than the user's own split with all of them, giving it up comes first
    and has the saving; the others say what helps whoever keeps it.
    """
    split = found[0].split
    is_timed = bool(evidence.timed_ns(split.placement))
    told = _with_savings(evidence, split, _suggestions(evidence, found, is_sure=not is_timed))
    given_up = _reason_to_give_up(evidence, split, told)
    if given_up is None or not told:
        return tuple(each.finding(f"in {split.name}, ", each.saving) for each in told)
    why, saving = given_up
    first, *others = told
    return (
        first.finding(f"give {split.name} up: {why}; if you keep it, ", saving),
        *(each.finding(f"if you keep {split.name}, ", None) for each in others),
    )


def split_placements_to_time(evidence: Evidence, found: Sequence[SplitFinding]) -> list[Placement]:
    """Return what shows, once timed, what is saved by the first moves in a split.

    It is the split as it is, with the first move, with the first and the second, and so on; of the
    user's own also one device. Nothing is to be timed where nothing is told, or no move of a split
    that is not the user's own.
    """
    split = found[0].split
    told = _suggestions(evidence, found, is_sure=False)
    moved = [each.after for each in told if each.after is not None][:_MAX_TIMED]
    alone = [evidence.alone.placement] if split.name == YOUR_SPLIT else []
    if not told or not (alone or moved):
        return []
    return [
        split.placement,
        *(
            replace(after, label=f"{split.placement.label}, {i} moved")
            for i, after in enumerate(moved, start=1)
        ),
        *alone,
    ]


def with_variables(graph: OpGraph, ops: Iterable[str], device: str) -> dict[str, str]:
    """Return the device for these placed ops, and for all that touches their variables."""
    going = set(ops)
    variables = {graph.op(name).variable for name in going} - {None}
    return {
        op.name: device
        for op in graph.placed_ops
        if op.name in going or (op.variable is not None and op.variable in variables)
    }


def layer_ops(graph: OpGraph, layer: str) -> list[str]:
    """Return the ops of a layer: forward, backward, variables and updates."""
    return [op.name for op in graph.placed_ops if op.layer == layer]


def layer_moves(evidence: Evidence, split: Split, source: str, target: str) -> Iterator[SplitMove]:
    """Yield the moves of the source's costliest layers to the target."""
    cost_ns: dict[str, int] = {}
    for run in split.schedule.runs:
        layer = evidence.graph.op(run.op).layer
        if run.device == source and layer is not None:
            cost_ns[layer] = cost_ns.get(layer, 0) + run.end_ns - run.start_ns
    largest = sorted(cost_ns, key=lambda layer: (-cost_ns[layer], layer))[:MAX_LAYERS_TRIED]
    for layer in largest:
        yield SplitMove(
            f"put layer {layer} with its gradients and variables on {target}",
            {"layer": layer, "device": source},
            with_variables(evidence.graph, layer_ops(evidence.graph, layer), target),
        )


def _suggestions(
    evidence: Evidence, found: Sequence[SplitFinding], *, is_sure: bool
) -> list[_Suggestion]:
    """Return what is told, at most one move against each finding.

    ``is_sure``: only moves count that save something as wrong as costs may be.
    """
    split = found[0].split
    placement = split.placement
    working = _busy_devices(evidence, placement)
    told: list[_Suggestion] = []
    settled: dict[str, str] = {}
    left, helpless = list(found), None
    while True:
        step_ns = evidence.simulator.step_ns(placement)
        tries = [
            (gain_ns, each, move, other)
            for each in left
            for move in each.moves
            if all(settled.get(op, device) == device for op, device in move.device_of.items())
            for other in [apply_move(evidence.graph, placement, move)]
            if _busy_devices(evidence, other) >= working
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
        told.append(_Suggestion(against, move.action, move.where, placement))
        left.remove(against)
        settled |= move.device_of
    return told + [
        _Suggestion(each, each.otherwise, each.where)
        for each in helpless
        # Where something was sent, nothing is to be taken away again.
        if each.otherwise is not None and each.where.get("device") not in settled.values()
    ]


def _with_savings(
    evidence: Evidence, split: Split, told: Sequence[_Suggestion]
) -> list[_Suggestion]:
    """Return what is told with what it saves: as runs have shown where it was timed.

    It ends with the first move that may save nothing; all others build on that.
    """
    before = split.placement
    found: list[_Suggestion] = []
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
            found.append(_Suggestion(each.found, each.found.otherwise, each.found.where))
        before = each.after
    return found


def apply_move(graph: OpGraph, placement: Placement, move: SplitMove) -> Placement:
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


def _busy_devices(evidence: Evidence, placement: Placement) -> set[str]:
    """Return the devices on which an op takes time."""
    costs = {device: table.costs for device, table in evidence.prices.costs.items()}
    return {
        device
        for op, device in placement.device_of.items()
        if op in costs[device] and costs[device][op].time_ns > 0
    }


def _reason_to_give_up(
    evidence: Evidence, split: Split, told: Sequence[_Suggestion]
) -> tuple[str, Saving] | None:
    """Say why to use one device in place of the user's own split, and what that saves for sure.

    None if it saves nothing, or if the split takes less with what is told.
    """
    alone = evidence.alone
    if split.name != YOUR_SPLIT:
        return None
    if shortages(alone.schedule.peak_memory, evidence.cluster.devices):
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
    if saving is None or alone_ns > defaults.WORTHWHILE_RATIO * best_ns:
        return None
    at_best = f", and {format_ns(best_ns)} with all that helps here" if best_ns < now_ns else ""
    why = (
        f"it takes {format_ns(now_ns)} for a step{at_best}, one device {format_ns(alone_ns)} "
        f"({basis})"
    )
    return why, saving
