"""Everything that a rule may look at, gathered once.

Rules that judge a split look at two: the user's own, as their `tf.device` scopes have it, and the
candidate that is recommended. Where none is, they look at the best one, by measured step time where
candidates ran, else by simulated time: what they find there is hypothetical. Others are worse on
purpose or by their nature, and nobody would use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.doubts import MEASURED_DOUBT
from placement_advisor.analysis.findings.savings import by_ops, by_ratio, by_run
from placement_advisor.candidates import references
from placement_advisor.candidates.families import SPLITS, WORST_CASE_FAMILIES
from placement_advisor.candidates.references import as_written
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.machine.gpu_facts import gpu_facts
from placement_advisor.measurement.measurement import median_interval
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate, Saving
    from placement_advisor.cost.batch import Throughput
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.machine.gpu_facts import GpuFacts
    from placement_advisor.measurement.measurement import InputTiming, LoopTiming
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import CostUncertainty
    from placement_advisor.simulator.step_growth import GrowingStep
    from placement_advisor.testbed.benchmark import TimedPlacement
    from placement_advisor.tf.answers import DroppedScope, LeftOut

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
    """A step on one GPU that is known by its datasheet alone: another step can be priced like it.

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

    def saving(self, step_ns: int) -> Saving | None:
        """Return what a step that takes so long saves, None if it is hardly anything."""
        if self.now_ns - step_ns < MIN_SAVING_SHARE * self.now_ns:
            return None
        return by_ops(self.now_ns, step_ns, self.within)


# What rules would say of these, nobody would act on; a split of the batch is of another graph. The
# user's own split is looked at in any case.
_NO_ADVICE = WORST_CASE_FAMILIES | {references.SINGLE, AS_WRITTEN, *SPLITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a model, its splits and its input.

    ``requested_device_of`` has the devices that ops ask for, ``scope_of`` file and line of the
    user's `tf.device` scope that makes them ask, where it is known, ``line_of`` those of the ops;
    ``dropped_scopes`` are those that no op stands in.
    ``costs`` are those of ops by device and host, ``doubt`` is how wrong they may be;
    ``costs_are_assumed`` says that they rest on figures of devices alone. ``batch_points`` are
    measurements of the user's own step at several batch sizes, none where it was not run so;
    ``growing`` is the step at other batches, None where it is not known there;
    ``takes_batch_size``: the command can be given another. ``loop_timing`` is of the step in Keras'
    fit. ``break_even`` is None where nothing was swept. ``own_of_replicas`` are ops that compute
    something of a replica's own where the batch is split. ``recommended`` is the candidate to use,
    None if none is. ``left_out`` is what the user's program has beside all that: no advice names
    what is there. ``calls_python``: some op does, which XLA cannot compile.
    """

    graph: OpGraph
    cluster: Cluster
    costs: Mapping[str, CostTable]
    simulator: Simulator
    candidates: tuple[Candidate, ...]
    splits: tuple[Split, ...]
    requested_device_of: Mapping[str, str]
    scope_of: Mapping[str, tuple[str, int]]
    dropped_scopes: tuple[DroppedScope, ...]
    line_of: Mapping[str, tuple[str, int]]
    batch_size: int | None
    batch_points: tuple[Throughput, ...]
    loop_timing: LoopTiming | None
    input_timing: InputTiming | None
    own_of_replicas: tuple[str, ...]
    recommended: str | None
    costs_are_assumed: bool
    doubt: CostUncertainty
    growing: GrowingStep | None
    takes_batch_size: bool
    break_even: BreakEven | None
    left_out: LeftOut
    calls_python: bool
    timed: tuple[TimedPlacement, ...]

    def is_of_batch(self, candidate: str | None) -> bool:
        """Whether a candidate splits the batch."""
        return any(c.name == candidate and c.samples is not None for c in self.candidates)

    def is_hypothetical(self, candidate: str) -> bool:
        """Whether the user neither runs a candidate nor is told to: not the single device."""
        alone = self.alone
        theirs = (self.recommended, AS_WRITTEN, None if alone is None else alone.name)
        return candidate not in theirs

    @property
    def alone(self) -> Candidate | None:
        """The single device, if it was predicted."""
        alone = next((c for c in self.candidates if c.family == references.SINGLE), None)
        return alone if alone is not None and alone.predicted is not None else None

    @property
    def assumed(self) -> AssumedStep | None:
        """The step on one GPU that is not here, None if that is not what was predicted."""
        alone, device = self.alone, self.cluster.devices[0]
        if not self.costs_are_assumed or device.gpu is None:
            return None
        if alone is None or alone.predicted is None:
            return None
        return AssumedStep(
            cluster=self.cluster,
            device=device,
            gpu=gpu_facts(device.gpu),
            now_ns=alone.predicted.step_ns,
            within=self.costs[device.name].total_within,
        )

    def step_alone(self) -> tuple[float, str] | None:
        """Return how long a step on a single device takes, and whether measured or simulated.

        None if it was neither.
        """
        alone = self.alone
        if alone is None or alone.predicted is None:
            return None
        if alone.measured is not None and alone.measured.step_ns:
            return median(alone.measured.step_ns), "measured"
        return alone.predicted.step_ns, "simulated"

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
        for timed in self.timed:
            if timed.placement.device_of == placement.device_of:
                return tuple(median(steps) for steps in timed.rounds)
        return ()

    def measured_saving(self, before: Placement, after: Placement) -> Saving | None:
        """Return what another placement has surely saved, both being timed; None if nothing."""
        pairs = list(zip(self.timed_ns(before), self.timed_ns(after), strict=False))
        # Ratios within rounds: what slows the machine down for a while does so to both.
        ratio = median_interval([now / then for then, now in pairs])
        if ratio is None:
            return None
        step_ns = median(then for then, _ in pairs)
        saving_ns, *ends_ns = (
            step_ns * (1 - each) for each in (ratio.median, ratio.low, ratio.high)
        )
        return by_run(step_ns, saving_ns, ends_ns)

    def saving(self, before: Placement, after: Placement) -> Saving | None:
        """Return what another placement surely saves; None if nothing.

        It is asked of many that save little: what ops alone leave in doubt is looked at first.
        """
        step_ns = self.simulator.step_ns(before)
        if self.simulator.step_ns(after) * self.doubt.ops >= step_ns:
            return None
        ratio = Sensitivity(self.simulator, before, self.doubt).ratio(after)
        return by_ratio(step_ns, ratio)


def gather(
    *,
    graph: OpGraph,
    cluster: Cluster,
    costs: Mapping[str, CostTable],
    simulator: Simulator,
    candidates: Sequence[Candidate],
    requested_device_of: Mapping[str, str],
    scope_of: Mapping[str, tuple[str, int]],
    line_of: Mapping[str, tuple[str, int]],
    dropped_scopes: Sequence[DroppedScope] = (),
    left_out: LeftOut,
    batch_size: int | None,
    batch_points: Sequence[Throughput] = (),
    loop_timing: LoopTiming | None = None,
    input_timing: InputTiming | None = None,
    own_of_replicas: Sequence[str] = (),
    recommended: str | None = None,
    costs_are_assumed: bool = False,
    doubt: CostUncertainty = MEASURED_DOUBT,
    growing: GrowingStep | None = None,
    takes_batch_size: bool = True,
    break_even: BreakEven | None = None,
    calls_python: bool = False,
    timed: Sequence[TimedPlacement] = (),
) -> Evidence:
    """Return the evidence, with the splits that rules judge.

    ``recommended`` is the split to use, None if the verdict is not to split. ``doubt`` is how wrong
    costs may be.
    """
    splits = []
    own = as_written(graph, requested_device_of, cluster)
    if own is not None:
        splits.append(Split(YOUR_SPLIT, own, simulator.schedule(own)))
    best = best_split([c for c in candidates if recommended is None or c.name == recommended])
    if best is not None and best.placement is not None and best.predicted is not None:
        splits.append(
            Split(
                best.name,
                best.placement,
                best.predicted,
                is_hypothetical=recommended is None,
            )
        )
    return Evidence(
        graph=graph,
        cluster=cluster,
        costs=costs,
        simulator=simulator,
        candidates=tuple(candidates),
        splits=tuple(splits),
        requested_device_of=requested_device_of,
        scope_of=scope_of,
        dropped_scopes=tuple(dropped_scopes),
        line_of=line_of,
        batch_size=batch_size,
        batch_points=tuple(batch_points),
        loop_timing=loop_timing,
        input_timing=input_timing,
        own_of_replicas=tuple(own_of_replicas),
        recommended=recommended,
        costs_are_assumed=costs_are_assumed,
        doubt=doubt,
        growing=growing,
        takes_batch_size=takes_batch_size,
        break_even=break_even,
        left_out=left_out,
        calls_python=calls_python,
        timed=tuple(timed),
    )


def best_split(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the fastest candidate on several devices: as measured if any was, else as simulated.

    A candidate that failed is none; ties go to the first.
    """
    best: tuple[tuple[bool, float], Candidate] | None = None
    for candidate in candidates:
        schedule = candidate.predicted
        if candidate.family in _NO_ADVICE or candidate.failure is not None:
            continue
        if candidate.placement is None or schedule is None:
            continue
        steps = candidate.measured.step_ns if candidate.measured else ()
        time = (not steps, median(steps) if steps else schedule.step_ns)
        if best is None or time < best[0]:
            best = time, candidate
    return None if best is None else best[1]
