"""A model simulated on 1, 2, 4, … devices of a machine, with each family.

Model: of a machine its first devices, with the links and hosts that they have. On so many devices
each family that splits the batch (`data_parallel`) is simulated with the whole batch on every
device (*weak scaling*, more samples a step); families that split layers within a host have the
samples of all of its devices, laid out as for the model's batch. All hosts of a hierarchy do the
same, so one is simulated (`scaled_steps`), whose devices exchange within it and with those of the
others. What a further device does not bring is lost to what the step then waits for longest.

With the batch shared among the devices (*strong scaling*, the same training) it is `advisor
analyze` that answers, which searches as well (`compare_hardware`). Of a machine in levels, where it
does not, the same families are simulated as for weak scaling.

Left out: layers split among hosts, uneven shares of unequal devices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.doubts import assumed_doubt
from placement_advisor.analysis.folded_steps import FoldedStep, FoldedSteps
from placement_advisor.analysis.host_traces import any_traced
from placement_advisor.analysis.machine_scaling import (
    FamilyMemory,
    MachineScaling,
    OneDevice,
    ScaledStep,
    Scaling,
    SimulatedStep,
)
from placement_advisor.analysis.scaled_steps import limit_of, simulator_of, step_ns_if_wrong
from placement_advisor.analysis.step_memory import StepMemory
from placement_advisor.candidates import families, pipeline, references, towers
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.cost.rings import ALL_DEVICES, ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import BatchSplitError
from placement_advisor.simulator.sensitivity import predicted_ratio
from placement_advisor.units import NS_PER_S, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.host_traces import HostTraces
    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.hierarchy import Machine
    from placement_advisor.machine.nccl_rings import Ring

# Families that split the layers among the devices of a host.
LAYER_FAMILIES = (towers.TOWERS, pipeline.FAMILY)


def scaled_machine(machine: Machine, traces: HostTraces, price: float | None) -> MachineScaling:
    """Simulate a model on ever more devices of a machine, of which one costs ``price`` an hour."""
    found = _Found(machine, traces)
    for part in _parts(machine):
        found.split_batch(part)
        found.split_layers(part)
    return MachineScaling(
        label=machine.label,
        answer=None,
        verdict=None,
        doubt=found.doubt,
        rows=tuple(found.rows()),
        steps=tuple(found.steps),
        alone=found.alone,
        memory=tuple(found.memory),
        memory_bytes=machine.host.devices[0].memory_bytes,
        price_per_hour=price,
        notes=tuple(dict.fromkeys(found.notes)),
    )


class _Best(NamedTuple):
    """The fastest step so far on a part of a machine: ``replicas`` have a share of it each."""

    family: str
    samples: int
    step: FoldedStep
    part: _Part
    replicas: int


class _Found:
    """What is known of a model on a machine so far, of one device to begin with."""

    def __init__(self, machine: Machine, traces: HostTraces) -> None:
        self._traces = traces
        self.scalings = tuple(Scaling) if machine.levels else (Scaling.WEAK,)
        self._traced = any_traced(traces.splits)
        self._folded = FoldedSteps(machine.host)
        self._most = machine.device_counts()[-1]
        self._graph = traces.whole.whole
        self._costs = roofline_by_place(self._graph, machine.host)
        self.doubt = assumed_doubt(self._costs, machine.host)
        # In each way in which costs may be wrong, and without launches.
        self._ways = (*self.doubt.ways, (1.0, 0.0))
        self._layouts: dict[int, Mapping[str, Placement | NotApplicable]] = {}
        first = machine.host.with_devices(machine.host.device_names()[:1])
        self._first = _Part(cluster=first, hosts=1, rings=(ring_of_devices(first),))
        self._all_on_first = references.propose_single(self._graph, self._costs, first)
        self.steps, self.notes = list[SimulatedStep](), list[str]()
        self.memory: list[FamilyMemory] = []
        self._best: dict[tuple[Scaling, int], _Best] = {}
        # One device with the batch, and with several times that.
        self._alone: list[tuple[OneDevice, tuple[int, ...]]] = []
        step, steps = self._add_alone(traces.whole)
        self._samples = self.alone[0].samples
        for times in sorted(traces.larger):
            larger = traces.weak(1, times)
            if isinstance(larger, BatchSplitError):
                self.notes.append(f"one device: {larger.message}")
            else:
                self._add_alone(larger)
        another = traces.another()
        if another is not None:
            self.memory.append(steps.memory(references.SINGLE, step, another))

    @property
    def alone(self) -> tuple[OneDevice, ...]:
        """One device with ever larger batches."""
        return tuple(one for one, _ in self._alone)

    def rows(self) -> Iterator[ScaledStep]:
        """Yield one device, then the best step of each scaling on each number of devices."""
        one, if_wrong_ns = self._alone[0]
        if one.fits:
            yield ScaledStep(
                scaling=Scaling.WEAK,
                family=references.SINGLE,
                devices=1,
                used=1,
                samples=one.samples,
                step_ns=one.step_ns,
                alone_per_s=one.samples_per_s,
                ratio=None,
                without_launches=None,
                limit=None,
                if_wrong_ns=if_wrong_ns,
            )
        for scaling in self.scalings:
            fastest: ScaledStep | None = None
            for (of, devices), best in self._best.items():
                if of is not scaling:
                    continue
                row = self._row(scaling, devices, best)
                # Fewer devices may do better.
                if fastest is not None and fastest.samples_per_s > row.samples_per_s:
                    row = self._against_one(replace(fastest, devices=devices))
                fastest = row
                yield row

    def split_batch(self, part: _Part) -> None:
        """Simulate the families that split the batch among devices."""
        here = len(part.cluster.devices)
        if self._traced is not None:
            other = self._traced.of_share(here).folded()
            steps = _Steps(self._traced.weak(here), part, self._folded)
            self._add(FAMILIES, steps, Scaling.WEAK, other)
        if Scaling.STRONG not in self.scalings:
            return
        split = self._traces.splits[part.devices]
        if isinstance(split, BatchSplitError):
            self.notes.append(f"{part.devices} devices: {split.message}")
        else:
            self._add(FAMILIES, _Steps(split.first(here), part, self._folded), Scaling.STRONG)

    def split_layers(self, part: _Part) -> None:
        """Simulate the families that split layers within a host, where that has several devices."""
        here = len(part.cluster.devices)
        if here == 1:
            return
        if here not in self._layouts:
            self._layouts[here] = families.propose(
                LAYER_FAMILIES, self._graph, self._costs, part.cluster
            )
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
                    steps = _LaidOutSteps(answer, part, self._folded, within)
                    self._add((family,), steps, scaling, other)

    def _add_alone(self, traces: SplitTraces) -> tuple[FoldedStep, _Steps]:
        steps = _LaidOutSteps(traces, self._first, self._folded, self._all_on_first)
        step = steps.simulated(references.SINGLE)
        (samples,) = traces.wiring.shares
        one = OneDevice(samples, step.outline.step_ns, step.memory.fits())
        self._alone.append((one, self._if_wrong_ns(step)))
        return step, steps

    def _if_wrong_ns(self, step: FoldedStep) -> tuple[int, ...]:
        return tuple(step.if_wrong(*way) for way in self._ways)

    def _add(
        self,
        names: Sequence[str],
        steps: _Steps,
        scaling: Scaling,
        other: SplitTraces | None = None,
    ) -> None:
        """Add steps, and what they hold with the whole batch on each of all devices."""
        samples = self._samples * (steps.devices if scaling is Scaling.WEAK else 1)
        for family in names:
            step = steps.simulated(family)
            if isinstance(step, NotApplicable):
                self.notes.append(f"{steps.devices} devices: {family} {step.reason}")
                continue
            fits, step_ns = step.memory.fits(), step.outline.step_ns
            self.steps.append(SimulatedStep(scaling, family, steps.devices, samples, step_ns, fits))
            key = scaling, steps.devices
            known = self._best.get(key)
            if fits and (known is None or step_ns < known.step.outline.step_ns):
                self._best[key] = _Best(family, samples, step, steps.part, steps.replicas)
            if scaling is Scaling.WEAK and steps.devices == self._most:
                assert other is not None
                self.memory.append(steps.memory(family, step, other))

    def _row(self, scaling: Scaling, devices: int, best: _Best) -> ScaledStep:
        outline = best.step.outline
        row = ScaledStep(
            scaling=scaling,
            family=best.family,
            devices=devices,
            used=devices,
            samples=best.samples,
            step_ns=outline.step_ns,
            alone_per_s=None,
            ratio=None,
            without_launches=None,
            limit=None,
            if_wrong_ns=self._if_wrong_ns(best.step),
        )
        row = self._against_one(row)
        if row.alone_per_s is None:
            return row
        ideal_ns = best.samples / row.alone_per_s / devices * NS_PER_S
        of_one = max(
            one.samples for one, _ in self._ones(row) if one.samples_per_s == row.alone_per_s
        )
        share = min(1.0, best.samples / of_one / best.replicas)
        return replace(row, limit=limit_of(outline, best.part.cluster, ideal_ns, share))

    def _ones(self, row: ScaledStep) -> list[tuple[OneDevice, tuple[int, ...]]]:
        """Return what one device could do instead: no larger batch than a step may have."""
        is_weak = row.scaling is Scaling.WEAK
        most = self._samples * row.devices if is_weak else self._samples
        return [(one, wrong) for one, wrong in self._alone if one.fits and one.samples <= most]

    def _against_one(self, row: ScaledStep) -> ScaledStep:
        """Hold a step against what one device does best, whatever costs are."""
        ones = self._ones(row)
        if not ones:
            return row
        of_one = zip(
            *((n / one.samples for n in (one.step_ns, *if_wrong)) for one, if_wrong in ones),
            strict=True,
        )
        ratios = [
            step_ns / row.samples / min(alone_ns)
            for step_ns, alone_ns in zip((row.step_ns, *row.if_wrong_ns), of_one, strict=True)
        ]
        return replace(
            row,
            alone_per_s=max(one.samples_per_s for one, _ in ones),
            ratio=predicted_ratio(ratios[:-1], self.doubt),
            without_launches=ratios[-1],
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
        self._traces, self.part, self._folded = traces, part, folded
        self.devices = part.devices

    @property
    def replicas(self) -> int:
        """How many there are, each of which does all ops on its share of the samples."""
        return self.devices

    def memory(self, family: str, step: FoldedStep, other: SplitTraces) -> FamilyMemory:
        """Return what a family's step holds; ``other`` has other samples on each device."""
        assert step.sized is not None
        peak_bytes, of_replica = step.memory.busiest(step.sized(other))
        largest = None if of_replica is None else of_replica * self.replicas // self.devices
        return FamilyMemory(family, self.devices, peak_bytes, largest)

    def simulated(self, family: str) -> FoldedStep | NotApplicable:
        """Simulate a family's step."""
        cluster, rings = self.part.cluster, self.part.rings
        if len(self._traces.shares) == 1:
            return self._folded.simulated(family, self._evenly, cluster, rings)
        propose = self._whole.propose_on_hosts if self.part.hosts > 1 else self._whole.propose
        proposed = propose(family, cluster.devices, ALL_DEVICES)
        if isinstance(proposed, NotApplicable):
            return proposed
        simulator = simulator_of(proposed, cluster, rings, 1.0)
        device = simulator.devices_of(proposed.placement)
        outline, most = simulator.outline(device), max(self._traces.shares)
        held = StepMemory.of_graph(outline, proposed.split.graph, most, cluster.devices)
        return FoldedStep(outline, held, step_ns_if_wrong(simulator, device))

    @cached_property
    def _evenly(self) -> SplitTraces:
        return self._traces.folded()

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
    def replicas(self) -> int:
        return self.part.hosts

    def simulated(self, family: str) -> FoldedStep:
        """Simulate the step of a family that splits layers."""
        part = self.part
        return self._folded.laid_out(self._within, self._traces, part.cluster, part.rings)
