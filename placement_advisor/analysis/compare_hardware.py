"""`advisor compare-hardware`: a model simulated on 1, 2, 4, ... devices of each machine.

The model is traced at its batch, at shares of it and at multiples. Every family that splits the
batch (`data_parallel`) is simulated with the whole batch on each device (*weak scaling*);
families that split layers within a host get the samples of all its devices. All hosts of a
machine in levels do the same, so one is simulated. With the batch shared among the devices
(*strong scaling*, the same training) the stages of `advisor analyze` answer, except on machines
in levels, where the same families are simulated. All figures are assumed; nothing runs.

Left out: layers split among hosts, uneven shares of unequal devices.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from placement_advisor import defaults
from placement_advisor.analysis import target_costs, tracing
from placement_advisor.analysis.assemble import answer_of, candidates_of
from placement_advisor.analysis.machine_scaling import (
    FamilyMemory,
    HardwareComparison,
    MachineScaling,
    ScaledStep,
    Scaling,
    SimulatedStep,
)
from placement_advisor.analysis.options import AnalyzeOptions
from placement_advisor.analysis.predictions import bound_of, predict, propose_all, with_searched
from placement_advisor.analysis.runs import RunResults
from placement_advisor.analysis.scaled_steps import FoldedStep, FoldedSteps, limit_of
from placement_advisor.analysis.step_costs import assume_costs
from placement_advisor.candidates import pipeline, references, towers
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import SplitTraces, unsplit
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import propose
from placement_advisor.cost.collectives import ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.machine.cluster_file import load_machine
from placement_advisor.machine.hierarchy import Machine, Ring, read_machine
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.sensitivity import predicted_ratio
from placement_advisor.solvers.step_search import FAMILY as SEARCHED
from placement_advisor.tf.calls import splitter
from placement_advisor.units import NS_PER_S, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.analysis.predictions import Predictions
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import TracedSplit
    from placement_advisor.tf.load.model_source import ModelSource

    Splits = dict[tuple[str, ...], TracedSplit | BatchSplitError]


class HostTraces(NamedTuple):
    """The traces of a model, or why there is none, for any number of hosts.

    ``whole`` is the unsplit step, ``splits`` have it split into so many shares, ``larger`` has it
    at so many times its batch.
    """

    whole: SplitTraces
    splits: Mapping[int, SplitTraces | BatchSplitError]
    larger: Mapping[int, OpGraph | BatchSplitError]

    def strong(self, hosts: int) -> SplitTraces | BatchSplitError:
        """Return those of a host which shares the batch with the others."""
        known = self.whole if hosts == 1 else self.splits[hosts]
        return known if isinstance(known, BatchSplitError) else known.first(1)

    def weak(self, hosts: int, devices: int) -> SplitTraces | BatchSplitError:
        """Return those of a host with the whole batch for each of its devices."""
        graph = self.whole.whole if devices == 1 else self.larger[devices]
        if isinstance(graph, BatchSplitError):
            return graph
        known = self.whole if hosts == 1 else first_traced(self.splits) or self.splits[hosts]
        return known if isinstance(known, BatchSplitError) else known.repeated(graph, devices)

    def another(self) -> SplitTraces | None:
        """Return the unsplit step at other samples than its batch, None without a trace.

        That is the largest share of one of the splits, else a multiple of the batch.
        """
        split = first_traced(self.splits)
        if split is not None:
            samples, graph = max(split.shares.items())
            return unsplit(graph, samples)
        multiples = (self.weak(1, devices) for devices in self.larger)
        return next((t for t in multiples if not isinstance(t, BatchSplitError)), None)


def first_traced(splits: Mapping[int, SplitTraces | BatchSplitError]) -> SplitTraces | None:
    """Return the first split that there is: all are wired alike."""
    return next((s for s in splits.values() if not isinstance(s, BatchSplitError)), None)


# Families that split the layers among the devices of a host.
LAYER_FAMILIES = (towers.TOWERS, pipeline.FAMILY)


def scaled_machine(machine: Machine, traces: HostTraces, price: float | None) -> MachineScaling:
    """Simulate a model on ever more devices of a machine, of which one costs ``price`` an hour."""
    found = _MachineResults(machine, traces)
    for part in _machine_parts(machine):
        found.split_batch(part)
        found.split_layers(part)
    return MachineScaling(
        label=machine.label,
        answer=None,
        verdict=None,
        doubt=found.doubt,
        rows=tuple(found.rows()),
        steps=tuple(found.steps),
        alone=tuple(found.alone),
        memory=tuple(found.memory),
        memory_bytes=machine.host.devices[0].memory_bytes,
        price_per_hour=price,
        notes=tuple(dict.fromkeys(found.notes)),
    )


class _BestStep(NamedTuple):
    """The fastest step so far on a part of a machine: ``replicas`` have a share of it each."""

    row: ScaledStep
    step: FoldedStep
    part: _MachinePart
    replicas: int


class _MachineResults:
    """What is known of a model on a machine so far, of one device to begin with."""

    def __init__(self, machine: Machine, traces: HostTraces) -> None:
        self._traces = traces
        self.scalings = tuple(Scaling) if machine.levels else (Scaling.WEAK,)
        self._traced = first_traced(traces.splits)
        self._has_levels = bool(machine.levels)
        self._folded = FoldedSteps(machine.host)
        self._most = machine.device_counts()[-1]
        self._graph = traces.whole.whole
        self._costs = roofline_by_place(self._graph, machine.host)
        self.doubt = target_costs.assumed_uncertainty(self._costs, machine.host)
        # In each way in which costs may be wrong, then with links as they are and launches at their
        # most, and without launches.
        self._ways = (*self.doubt.ways, (1.0, self.doubt.launches), (1.0, 0.0))
        self._layouts: dict[int, Mapping[str, Placement | NotApplicable]] = {}
        first = machine.host.with_devices(machine.host.device_names()[:1])
        self._first = _MachinePart(cluster=first, hosts=1, rings=(ring_of_devices(first),))
        self._all_on_first = references.propose_single(self._graph, self._costs, first)
        self.steps, self.notes = list[SimulatedStep](), list[str]()
        self.memory: list[FamilyMemory] = []
        self._best: dict[tuple[Scaling, int], _BestStep] = {}
        # One device with the batch, and with several times that.
        self.alone: list[ScaledStep] = []
        step = self._add_alone(traces.whole)
        self._samples = self.alone[0].samples
        for times in sorted(traces.larger):
            larger = traces.weak(1, times)
            if isinstance(larger, BatchSplitError):
                self.notes.append(f"one device: {larger.message}")
            else:
                self._add_alone(larger)
        another = traces.another()
        if another is not None:
            self._add_memory(references.SINGLE, step, another, self._first, 1)

    def rows(self) -> Iterator[ScaledStep]:
        """Yield one device, then the best step of each scaling on each number of devices."""
        one = self.alone[0]
        if one.fits:
            yield replace(one, alone_per_s=one.samples_per_s)
        for scaling in self.scalings:
            fastest: ScaledStep | None = None
            for (of, devices), best in self._best.items():
                if of is not scaling:
                    continue
                row = self._row(best)
                # Fewer devices may do better.
                if fastest is not None and fastest.samples_per_s > row.samples_per_s:
                    row = self._against_one(replace(fastest, devices=devices))
                fastest = row
                yield row

    def split_batch(self, part: _MachinePart) -> None:
        """Simulate the families that split the batch among devices."""
        here = len(part.cluster.devices)
        if self._traced is not None:
            other = self._traced.of_share(here).folded()
            self._add_split(self._traced.weak(here), part, Scaling.WEAK, other)
        if Scaling.STRONG not in self.scalings:
            return
        split = self._traces.splits[part.devices]
        if isinstance(split, BatchSplitError):
            self.notes.append(f"{part.devices} devices: {split.message}")
        else:
            self._add_split(split.first(here), part, Scaling.STRONG, None)

    def _add_split(
        self, traces: SplitTraces, part: _MachinePart, scaling: Scaling, other: SplitTraces | None
    ) -> None:
        traces = traces.folded()
        for family in FAMILIES:
            step = self._folded.simulated(family, traces, part.cluster, part.rings)
            self._add(family, step, part, part.devices, scaling, other)

    def split_layers(self, part: _MachinePart) -> None:
        """Simulate the families that split layers within a host, where that has several devices."""
        here = len(part.cluster.devices)
        if here == 1:
            return
        if here not in self._layouts:
            self._layouts[here] = propose(LAYER_FAMILIES, self._graph, self._costs, part.cluster)
        of_host = {Scaling.WEAK: self._traces.weak(part.hosts, here)}
        if Scaling.STRONG in self.scalings:
            of_host[Scaling.STRONG] = self._traces.strong(part.hosts)
        other = self._traces.weak(part.hosts, 1)
        for family, within in self._layouts[here].items():
            if isinstance(within, NotApplicable):
                self.notes.append(f"{family}: {within.reason}")
                continue
            for scaling, answer in of_host.items():
                if isinstance(answer, BatchSplitError):
                    self.notes.append(f"{counted(part.hosts, 'host')}: {answer.message}")
                else:
                    assert not isinstance(other, BatchSplitError), "the batch itself is traced"
                    step = self._folded.laid_out(within, answer, part.cluster, part.rings)
                    self._add(family, step, part, part.hosts, scaling, other)

    def _add_alone(self, traces: SplitTraces) -> FoldedStep:
        first = self._first
        step = self._folded.laid_out(self._all_on_first, traces, first.cluster, first.rings)
        (samples,) = traces.wiring.shares
        one = _scaled(Scaling.WEAK, references.SINGLE, first, samples, step)
        self.alone.append(replace(one, if_wrong_ns=self._if_wrong_ns(step)))
        return step

    def _if_wrong_ns(self, step: FoldedStep) -> tuple[int, ...]:
        return tuple(step.if_wrong(*way) for way in self._ways)

    def _add(
        self,
        family: str,
        step: FoldedStep | NotApplicable,
        part: _MachinePart,
        replicas: int,
        scaling: Scaling,
        other: SplitTraces | None,
    ) -> None:
        """Add a step, and what it holds with the whole batch on each of all devices.

        ``other`` are its traces with other samples on each device, where it has the whole batch.
        """
        devices = part.devices
        if isinstance(step, NotApplicable):
            self.notes.append(f"{devices} devices: {family} {step.reason}")
            return
        is_weak = scaling is Scaling.WEAK
        samples = self._samples * (devices if is_weak else 1)
        row = _scaled(scaling, family, part, samples, step)
        self.steps.append(SimulatedStep(scaling, family, devices, samples, row.step_ns, row.fits))
        known = self._best.get((scaling, devices))
        if row.fits and (known is None or row.step_ns < known.row.step_ns):
            self._best[scaling, devices] = _BestStep(row, step, part, replicas)
        if is_weak and devices == self._most:
            assert other is not None
            self._add_memory(family, step, other, part, replicas)

    def _add_memory(
        self, family: str, step: FoldedStep, other: SplitTraces, part: _MachinePart, replicas: int
    ) -> None:
        """Add what a step holds; ``other`` has other samples on each device."""
        peak_bytes, of_replica = step.memory.busiest(step.sized(other))
        largest = None if of_replica is None else of_replica * replicas // part.devices
        self.memory.append(FamilyMemory(family, part.devices, peak_bytes, largest))

    def _row(self, best: _BestStep) -> ScaledStep:
        row = self._against_one(replace(best.row, if_wrong_ns=self._if_wrong_ns(best.step)))
        if row.alone_per_s is None:
            return row
        ideal_ns = row.samples / row.alone_per_s / row.devices * NS_PER_S
        of_one = max(o.samples for o in self._ones(row) if o.samples_per_s == row.alone_per_s)
        share = min(1.0, row.samples / of_one / best.replicas)
        limit = limit_of(best.step.outline, best.part.cluster, ideal_ns, share)
        return replace(row, limit=limit)

    def _ones(self, row: ScaledStep) -> list[ScaledStep]:
        """Return what one device could do instead: no larger batch than a step may have."""
        is_weak = row.scaling is Scaling.WEAK
        most = self._samples * row.devices if is_weak else self._samples
        return [one for one in self.alone if one.fits and one.samples <= most]

    def _against_one(self, row: ScaledStep) -> ScaledStep:
        """Hold a step against what one device does best, whatever costs are."""
        ones = self._ones(row)
        if not ones:
            return row
        alone_ns = [np.array((one.step_ns, *one.if_wrong_ns)) / one.samples for one in ones]
        step_ns = np.array((row.step_ns, *row.if_wrong_ns)) / row.samples
        ratios: list[float] = (step_ns / np.min(alone_ns, axis=0)).tolist()
        ratio = predicted_ratio(ratios[:-1], self.doubt)
        if row.family in FAMILIES and not self._has_levels:
            within = target_costs.speedup_within(1 / (ratios[0] * row.used))
            doubt = replace(self.doubt, copies=1.0, ops=within)
            ratio = predicted_ratio([ratios[0], *ratios[-2:]], doubt)
        return replace(
            row,
            alone_per_s=max(one.samples_per_s for one in ones),
            ratio=ratio,
            without_launches=ratios[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MachinePart:
    """The first devices of a machine: ``cluster`` is one of so many equal hosts."""

    cluster: Cluster
    hosts: int
    rings: tuple[Ring, ...]

    @property
    def devices(self) -> int:
        return self.hosts * len(self.cluster.devices)


def _scaled(
    scaling: Scaling, family: str, part: _MachinePart, samples: int, step: FoldedStep
) -> ScaledStep:
    return ScaledStep(
        scaling=scaling,
        family=family,
        devices=part.devices,
        used=part.devices,
        samples=samples,
        step_ns=step.outline.step_ns,
        fits=step.memory.fits(),
    )


def _machine_parts(machine: Machine) -> Iterator[_MachinePart]:
    """Yield what a step is simulated on, for each number of devices but one."""
    names = machine.host.device_names()
    for count in machine.device_counts()[1:]:
        cluster = machine.host.with_devices(names[:count])
        hosts = count // len(cluster.devices)
        rings = (ring_of_devices(cluster), *machine.first_levels(hosts))
        yield _MachinePart(cluster=cluster, hosts=hosts, rings=rings)


def compare_hardware(
    source: ModelSource,
    hardware: Sequence[str],
    prices: Sequence[float] | None,
    watcher: ProgressReporter,
) -> HardwareComparison:
    """Simulate a model on each machine, on ever more of its devices.

    ``hardware`` has descriptions as of `read_hardware` or paths of cluster files, ``prices`` what a
    device of each costs an hour.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    if prices is not None and len(prices) != len(hardware):
        raise AdvisorError(
            f"--price: {counted(len(prices), 'price')} for {counted(len(hardware), 'machine')}",
            hint="give --price once for each machine, in their order",
        )
    machines = [_read_machine(text) for text in hardware]
    shared_by: set[int] = set()
    # One split says how all are wired; where hosts share a batch, each has samples of its own.
    each_needed: set[int] = set()
    # How large a batch fits is told from two, of one device as well.
    within: set[int] = {2}
    for machine in machines:
        counts, of_host = machine.device_counts(), len(machine.host.devices)
        # Where layers are split within hosts, each host has a share.
        shared_by.update(counts, (count // of_host for count in counts))
        if machine.levels:
            each_needed |= shared_by
        within.update(min(count, of_host) for count in counts)
    # One host is what `advisor analyze` takes.
    answered = {c for m in machines if not m.levels for c in m.device_counts()[1:]}
    options = AnalyzeOptions(source=source)
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        traced = tracing.traced_model(source, None, loader, watcher)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        splits: dict[int, SplitTraces | BatchSplitError] = {}
        for done, count in enumerate(sorted(shared_by - {0, 1})):
            if count in each_needed or first_traced(splits) is None:
                watcher.working("splitting the batch", done, len(shared_by - {0, 1}))
                splits[count] = _trace_split(loader, batch, count, source.time_limit_s)
        larger: dict[int, OpGraph | BatchSplitError] = {}
        for done, times in enumerate(sorted(within - {1})):
            watcher.working("tracing larger batches", done, len(within - {1}))
            larger[times] = tracing.trace_repeated(loader, times, source.time_limit_s)
        splits_to_place: dict[int, Splits] = {
            count: tracing.split_batch(options, count, traced, None, loader, watcher, weak=False)
            for count in sorted(answered)
        }
    traces = HostTraces(unsplit(traced.graph, batch), splits, larger)
    scaled = []
    # Ops by the hundred thousand: looking for cycles among them takes a fifth of the time.
    gc.disable()
    try:
        for done, machine in enumerate(machines):
            watcher.working("simulating", done, len(machines))
            found = scaled_machine(machine, traces, None if prices is None else prices[done])
            for count in [] if machine.levels else machine.device_counts()[1:]:
                watcher.working(f"searching placements on {count} devices", done, len(machines))
                host = machine.host.with_devices(machine.host.device_names()[:count])
                target = target_costs.TargetHardware(
                    label=machine.label, cluster=host, recorded=None
                )
                request = tracing.AnalysisRequest(
                    options=options,
                    plan=target.plan(),
                    traced=traced,
                    splits=splits_to_place[count],
                    growth=None,
                )
                found = with_answer(found, request, target)
            scaled.append(found)
    finally:
        gc.enable()
    return HardwareComparison(
        model=traced.name,
        mode=traced.mode,
        batch=batch,
        ops=len(traced.graph),
        machines=tuple(scaled),
    )


def with_answer(
    found: MachineScaling, request: tracing.AnalysisRequest, target: target_costs.TargetHardware
) -> MachineScaling:
    """Add what `advisor analyze` answers on some devices, in place of what it did on fewer."""
    effort, own = request.options.effort, request.traced.requested_device_of
    others = [family for family in request.options.families if family != SEARCHED]
    cluster, costs = target.cluster, assume_costs(request, target)
    proposals = propose_all(request.graph, costs, others, effort, requested_device_of=own)
    predictions = predict(proposals)
    bound = bound_of(predictions)
    predictions = with_searched(predictions, bound, effort)
    candidates = candidates_of(predictions, RunResults())
    answer = answer_of(request, predictions, RunResults(), candidates, bound)
    split = next((c for c in candidates if c.name == answer.candidate), None)
    devices, samples = len(cluster.devices), found.alone[0].samples
    row = None if split is None else _scaled_step(predictions, split, devices, samples)
    # Fewer devices may do better.
    fewer = [step for step in found.best(Scaling.STRONG) if step.devices > 1][-1:]
    if fewer and (row is None or fewer[0].step_ns < row.step_ns):
        row = replace(fewer[0], devices=devices)
    rows = () if row is None else (replace(row, verdict=answer.verdict),)
    return replace(found, rows=(*found.rows, *rows), answer=answer.answer, verdict=answer.verdict)


def _scaled_step(
    predictions: Predictions, split: Candidate, devices: int, samples: int
) -> ScaledStep | None:
    """Return a candidate as a step on so many devices, None if it was not predicted."""
    alone = predictions.predicted[defaults.BASELINE]
    if split.placement is None or split.predicted is None:
        return None
    proposals, placement = predictions.proposals, split.placement
    cluster, of_split = proposals.prices.cluster, proposals.splits.get(split.name)
    simulator = proposals.simulator if of_split is None else of_split.simulator
    bare = cluster.scaled(copies=1, launches=0)
    step = simulator.outline(simulator.devices_of(placement))
    alone_ns, step_ns = alone.schedule.step_ns, split.predicted.step_ns
    bare_alone_ns = proposals.simulator.on(bare).step_ns(proposals.placements[defaults.BASELINE])
    used = {*placement.device_of.values()} & {*cluster.device_names()}
    fits = alone.too_large is None
    share = 1.0 if split.samples is None else 1 / len(split.samples)
    return ScaledStep(
        scaling=Scaling.STRONG,
        family=split.name,
        devices=devices,
        used=len(used),
        samples=samples,
        step_ns=step_ns,
        alone_per_s=samples / alone_ns * NS_PER_S if fits else None,
        ratio=split.predicted_ratio if fits else None,
        without_launches=simulator.on(bare).step_ns(placement) / bare_alone_ns,
        limit=limit_of(step, cluster, alone_ns / devices, share),
    )


def _read_machine(text: str) -> Machine:
    """Return the machine that a text or a cluster file describes.

    Raises:
        AdvisorError: it describes none.
    """
    machine = load_machine(Path(text)) if target_costs.is_cluster_file(text) else read_machine(text)
    target_costs.check_has_figures(text, machine.host)
    return machine


def _trace_split(
    loader: Child, batch: int, count: int, time_limit_s: float
) -> SplitTraces | BatchSplitError:
    try:
        samples = shares_of(batch, [1.0] * count)
    except BatchSplitError as error:
        return error
    answer = loader.call(splitter.trace_split, samples, time_limit_s=time_limit_s)
    return tracing.or_error(answer, "splitting it")
