"""`advisor compare-hardware`: what each further device of a machine brings a model.

Model: of a machine its first 1, 2, 4, … devices and all of them, with the links and hosts that they
have. On so many devices each family that splits the batch (`data_parallel`) is simulated twice:
with the whole batch on every device (*weak scaling*, more samples a step), and with the batch
shared among them (*strong scaling*, the same training). Families that split layers do so within a
host, laid out as for the model's batch, and a host has the samples of all of its devices. All hosts
of a hierarchy do the same, so one is simulated (`scaled_steps`), whose devices exchange within it
and with those of the others. Every figure is assumed; nothing runs.

What a further device does not bring is lost to what the step then waits for longest. The *knee* is
the last number of devices at which doubling them brings at least half of what it could: speed-ups
are of the best family on each.

Left out: layers split among hosts, uneven shares of unequal devices.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.folded_steps import FoldedStep, FoldedSteps
from placement_advisor.analysis.host_traces import HostTraces, any_traced
from placement_advisor.analysis.prices_elsewhere import check_priced, is_cluster_file
from placement_advisor.analysis.scaled_steps import Limit, limit_of, simulated
from placement_advisor.analysis.step_memory import SizedOps, StepMemory
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.candidates import families, pipeline, single, towers
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.batch_split.shares import shares_of
from placement_advisor.candidates.batch_split.split_traces import unsplit
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.candidates.rationale_phrases import counted
from placement_advisor.cost.rings import ALL_DEVICES, ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.machine.cluster_file import load_machine
from placement_advisor.machine.hierarchy import read_machine
from placement_advisor.processes.call_failure import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.calls import splitter
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.candidates.batch_split.split_traces import SplitTraces
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.hierarchy import Machine
    from placement_advisor.machine.nccl_rings import Ring
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.load.model_source import ModelSource

# Families that split the layers among the devices of a host.
LAYER_FAMILIES = (towers.FAMILY, pipeline.FAMILY)
# A doubling that brings less than half of what it could.
_KNEE = 1.5
_SECONDS_PER_HOUR = 3_600


class Scaling(StrEnum):
    """What stays the same while devices are added: the batch of each, or that of all."""

    WEAK = "weak"
    STRONG = "strong"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledStep:
    """A simulated step on the first devices of a machine.

    ``samples`` are those of all devices together, ``efficiency`` is the throughput of a device over
    that of one alone. ``limit`` is None where next to nothing is lost; it is memory where the step
    does not fit.
    """

    scaling: Scaling
    family: str
    devices: int
    samples: int
    step_ns: int
    efficiency: float
    limit: Limit | None

    @property
    def fits(self) -> bool:
        """Whether every device has the memory for it."""
        return self.limit is not Limit.MEMORY

    @property
    def samples_per_s(self) -> float:
        """The throughput of all devices."""
        return self.samples / self.step_ns * NS_PER_S

    @property
    def speedup(self) -> float:
        """The throughput over that of one device."""
        return self.efficiency * self.devices


class FamilyMemory(NamedTuple):
    """What a family's step on so many devices holds on the one that holds most.

    Each device has the model's batch. ``largest_batch`` is the most samples for each that fit, None
    where that is not known.
    """

    family: str
    devices: int
    peak_bytes: int
    largest_batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineScaling:
    """What a machine does with a model, by number of devices; ``steps`` begin with one device.

    ``memory`` is that of one device alone and of all devices, ``memory_bytes`` what each of these
    has, None if it is not known. ``price_per_hour`` is that of a device, None if it is not known.
    ``notes`` say what could not be simulated.
    """

    label: str
    steps: tuple[ScaledStep, ...]
    memory: tuple[FamilyMemory, ...]
    memory_bytes: int | None
    price_per_hour: float | None
    notes: tuple[str, ...]

    def best(self, scaling: Scaling) -> tuple[ScaledStep, ...]:
        """Return the fastest step that fits on each number of devices."""
        fastest: dict[int, ScaledStep] = {}
        for step in self.steps:
            known = fastest.get(step.devices)
            is_asked = step.scaling is scaling or step.devices == 1
            if is_asked and step.fits and (known is None or step.step_ns < known.step_ns):
                fastest[step.devices] = step
        return tuple(fastest[devices] for devices in sorted(fastest))

    def knee(self, scaling: Scaling) -> ScaledStep | None:
        """Return the step on as many devices as each doubling up to them pays for."""
        best = self.best(scaling)
        last = best[0] if best else None
        for step in best[1:]:
            assert last is not None
            doublings = step.devices / last.devices
            if step.speedup / last.speedup < 1 + (_KNEE - 1) * (doublings - 1):
                break
            last = step
        return last

    def cost_per_million(self, step: ScaledStep) -> float | None:
        """Return what a million samples cost, in the unit of the price; None without a price."""
        if self.price_per_hour is None:
            return None
        hours = 1e6 / step.samples_per_s / _SECONDS_PER_HOUR
        return hours * self.price_per_hour * step.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareComparison:
    """A model on several machines; ``batch`` is its own, ``ops`` are those of its step."""

    model: str
    mode: str
    batch: int
    ops: int
    machines: tuple[MachineScaling, ...]


def compare_hardware(
    source: ModelSource,
    hardware: Sequence[str],
    prices: Sequence[float] | None,
    watcher: Watcher,
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
    machines = [_machine(text) for text in hardware]
    shared_by: set[int] = set()
    within: set[int] = set()
    for machine in machines:
        counts, of_host = machine.device_counts(), len(machine.host.devices)
        # Where layers are split within hosts, each host has a share.
        shared_by.update(counts, (count // of_host for count in counts))
        within.update(min(count, of_host) for count in counts)
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        traced = traced_model(source, None, loader, watcher)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        splits: dict[int, SplitTraces | BatchSplitError] = {}
        for done, count in enumerate(sorted(shared_by - {0, 1})):
            watcher.working("splitting the batch", done, len(shared_by - {0, 1}))
            splits[count] = _split(loader, batch, count, source.time_limit_s)
        larger: dict[int, OpGraph | BatchSplitError] = {}
        for done, times in enumerate(sorted(within - {1})):
            watcher.working("tracing larger batches", done, len(within - {1}))
            larger[times] = _larger(loader, times, source.time_limit_s)
    scaled = []
    # Ops by the hundred thousand: looking for cycles among them takes a fifth of the time.
    gc.disable()
    try:
        for done, machine in enumerate(machines):
            watcher.working("simulating", done, len(machines))
            price = None if prices is None else prices[done]
            scaled.append(_scaled(machine, traced.graph, batch, splits, larger, price))
    finally:
        gc.enable()
    return HardwareComparison(
        model=traced.name,
        mode=traced.mode,
        batch=batch,
        ops=len(traced.graph),
        machines=tuple(scaled),
    )


def _machine(text: str) -> Machine:
    """Return the machine that a text or a cluster file describes.

    Raises:
        AdvisorError: it describes none.
    """
    machine = load_machine(Path(text)) if is_cluster_file(text) else read_machine(text)
    check_priced(text, machine.host)
    return machine


def _split(
    loader: Child, batch: int, count: int, time_limit_s: float
) -> SplitTraces | BatchSplitError:
    try:
        samples = shares_of(batch, [1.0] * count)
    except BatchSplitError as error:
        return error
    answer = loader.call(splitter.trace_split, samples, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        return BatchSplitError(f"splitting it failed: {answer.message}")
    return answer


def _larger(loader: Child, times: int, time_limit_s: float) -> OpGraph | BatchSplitError:
    answer = loader.call(splitter.trace_repeated, times, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        return BatchSplitError(f"tracing {times} times its batch failed: {answer.message}")
    return answer


def _scaled(
    machine: Machine,
    graph: OpGraph,
    batch: int,
    splits: Mapping[int, SplitTraces | BatchSplitError],
    larger: Mapping[int, OpGraph | BatchSplitError],
    price: float | None,
) -> MachineScaling:
    """Simulate one machine.

    Raises:
        AdvisorError: its first device cannot run the model by itself.
    """
    costs = roofline_by_place(graph, machine.host)
    placement = single.propose(graph, costs, machine.host)
    if isinstance(placement, NotApplicable):
        raise AdvisorError(f"{machine.label}: {placement.reason}")
    simulator = Simulator(graph, costs, machine.host)
    alone = simulator.outline(simulator.devices_of(placement))
    held = StepMemory.of_graph(alone, graph, batch, machine.host.devices)
    one = ScaledStep(
        scaling=Scaling.WEAK,
        family=single.FAMILY,
        devices=1,
        samples=batch,
        step_ns=alone.step_ns,
        efficiency=1.0,
        limit=None if held.fits() else Limit.MEMORY,
    )
    steps, memory, notes = [one], [], []
    traced = any_traced(splits)
    folded = FoldedSteps(machine.host)
    of_hosts = HostTraces(unsplit(graph, batch), splits, larger)
    layouts: dict[int, Mapping[str, Placement | NotApplicable]] = {}
    most = machine.device_counts()[-1]
    if traced is not None:
        samples, share = max(traced.shares.items())
        ops = SizedOps(samples, [share.op(op.name) for op in simulator.ops])
        memory.append(FamilyMemory(single.FAMILY, 1, *held.busiest(ops)))
    for part in _parts(machine):
        here, split = len(part.cluster.devices), splits[part.devices]
        found: dict[Scaling, SplitTraces] = {}
        if traced is not None:
            found[Scaling.WEAK] = traced.weak(here)
        if isinstance(split, BatchSplitError):
            notes.append(f"{part.devices} devices: {split.message}")
        else:
            found[Scaling.STRONG] = split.first(here)
        for scaling, traces in found.items():
            of_batch = _Steps(traces, part, folded)
            for family in FAMILIES:
                step = of_batch.simulated(family)
                if isinstance(step, NotApplicable):
                    notes.append(f"{part.devices} devices: {family} {step.reason}")
                    continue
                steps.append(of_batch.scaled(family, step, scaling, one))
                if traced is not None and scaling is Scaling.WEAK and part.devices == most:
                    memory.append(of_batch.memory(family, step, traced.of_share(here).folded()))
        if here == 1:
            continue
        if here not in layouts:
            layouts[here] = families.propose(LAYER_FAMILIES, graph, costs, part.cluster)
        of_host = {
            Scaling.WEAK: of_hosts.weak(part.hosts, here),
            Scaling.STRONG: of_hosts.strong(part.hosts),
        }
        for family, within in layouts[here].items():
            if isinstance(within, NotApplicable):
                notes.append(f"{family}: {within.reason}")
                continue
            for scaling, answer in of_host.items():
                if isinstance(answer, BatchSplitError):
                    notes.append(f"{counted(part.hosts, 'host')}: {answer.message}")
                    continue
                of_layers = _LaidOutSteps(answer, part, folded, within)
                laid_out = of_layers.simulated(family)
                steps.append(of_layers.scaled(family, laid_out, scaling, one))
                smaller = of_hosts.weak(part.hosts, 1)
                if scaling is Scaling.WEAK and part.devices == most:
                    assert not isinstance(smaller, BatchSplitError), "the larger batch is traced"
                    memory.append(of_layers.memory(family, laid_out, smaller))
    return MachineScaling(
        label=machine.label,
        steps=tuple(steps),
        memory=tuple(memory),
        memory_bytes=machine.host.devices[0].memory_bytes,
        price_per_hour=price,
        notes=tuple(dict.fromkeys(notes)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The first devices of a machine: ``cluster`` is one of so many equal hosts."""

    cluster: Cluster
    hosts: int
    rings: tuple[Ring, ...]

    @property
    def devices(self) -> int:
        return self.hosts * len(self.cluster.devices)


def _parts(machine: Machine) -> Iterator[_Part]:
    """Yield what a step is simulated on, for each number of devices but one."""
    names = machine.host.device_names()
    for count in machine.device_counts()[1:]:
        cluster = machine.host.with_devices(names[:count])
        hosts = count // len(cluster.devices)
        rings = (ring_of_devices(cluster), *machine.first_levels(hosts))
        yield _Part(cluster=cluster, hosts=hosts, rings=rings)


class _Steps:
    """The split steps of a batch on a part of a machine."""

    def __init__(self, traces: SplitTraces, part: _Part, folded: FoldedSteps) -> None:
        self._traces, self._part, self._folded = traces, part, folded

    def scaled(
        self, family: str, step: FoldedStep, scaling: Scaling, one: ScaledStep
    ) -> ScaledStep:
        """Hold a family's step against ``one`` device."""
        samples = one.samples * (self._part.devices if scaling is Scaling.WEAK else 1)
        share = samples / one.samples / self._part.devices
        ideal_ns = one.step_ns * share
        of_op = min(1.0, share * self._part.devices / self._replicas)
        limit = limit_of(step.outline, self._part.cluster, ideal_ns, of_op)
        return ScaledStep(
            scaling=scaling,
            family=family,
            devices=self._part.devices,
            samples=samples,
            step_ns=step.outline.step_ns,
            efficiency=share * one.step_ns / step.outline.step_ns,
            limit=limit if step.memory.fits() else Limit.MEMORY,
        )

    @property
    def _replicas(self) -> int:
        """How many there are, each of which does all ops on its share of the samples."""
        return self._part.devices

    def memory(self, family: str, step: FoldedStep, smaller: SplitTraces) -> FamilyMemory:
        """Return what a family's step holds; ``smaller`` has the same with less on each device."""
        assert step.sized is not None
        peak_bytes, of_replica = step.memory.busiest(step.sized(smaller))
        largest = None if of_replica is None else of_replica * self._replicas // self._part.devices
        return FamilyMemory(family, self._part.devices, peak_bytes, largest)

    def simulated(self, family: str) -> FoldedStep | NotApplicable:
        """Simulate a family's step."""
        cluster, rings = self._part.cluster, self._part.rings
        if len(self._traces.shares) == 1:
            return self._folded.simulated(family, self._traces.folded(), cluster, rings)
        propose = self._whole.propose_on_hosts if self._part.hosts > 1 else self._whole.propose
        proposed = propose(family, cluster.devices, ALL_DEVICES)
        if isinstance(proposed, NotApplicable):
            return proposed
        outline, graph = simulated(proposed, cluster, rings), proposed.split.graph
        most = max(self._traces.shares)
        return FoldedStep(outline, StepMemory.of_graph(outline, graph, most, cluster.devices))

    @cached_property
    def _whole(self) -> DataParallelSteps:
        return DataParallelSteps(self._traces)


class _LaidOutSteps(_Steps):
    """The steps of a batch that hosts share, whose layers the devices of each split."""

    def __init__(
        self, traces: SplitTraces, part: _Part, folded: FoldedSteps, within: Placement
    ) -> None:
        super().__init__(traces, part, folded)
        self._within = within

    @property
    def _replicas(self) -> int:
        return self._part.hosts

    def simulated(self, family: str) -> FoldedStep:
        """Simulate the step of a family that splits layers."""
        part = self._part
        return self._folded.laid_out(self._within, self._traces, part.cluster, part.rings)
