"""A model simulated on 1, 2, 4, … devices of a machine, with each family.

Model: of a machine its first devices, with the links and hosts that they have. On so many devices
each family that splits the batch (`data_parallel`) is simulated twice: with the whole batch on
every device (*weak scaling*, more samples a step), and with the batch shared among them (*strong
scaling*, the same training). Families that split layers do so within a host, laid out as for the
model's batch, and a host has the samples of all of its devices. All hosts of a hierarchy do the
same, so one is simulated (`scaled_steps`), whose devices exchange within it and with those of the
others. What a further device does not bring is lost to what the step then waits for longest.

A larger batch brings one device something as well. So a step whose layers are split is held against
one device that takes all samples of a host.

Left out: layers split among hosts, uneven shares of unequal devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from placement_advisor.analysis.folded_steps import FoldedStep, FoldedSteps
from placement_advisor.analysis.host_traces import any_traced
from placement_advisor.analysis.machine_scaling import (
    FamilyMemory,
    MachineScaling,
    OneDevice,
    ScaledStep,
    Scaling,
)
from placement_advisor.analysis.scaled_steps import Limit, limit_of, simulated
from placement_advisor.analysis.step_memory import StepMemory
from placement_advisor.candidates import families, pipeline, single, towers
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.candidates.rationale_phrases import counted
from placement_advisor.cost.rings import ALL_DEVICES, ring_of_devices
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import BatchSplitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.host_traces import HostTraces
    from placement_advisor.candidates.batch_split.split_traces import SplitTraces
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.machine.hierarchy import Machine
    from placement_advisor.machine.nccl_rings import Ring

# Families that split the layers among the devices of a host.
LAYER_FAMILIES = (towers.FAMILY, pipeline.FAMILY)


def scaled_machine(machine: Machine, traces: HostTraces, price: float | None) -> MachineScaling:
    """Simulate a model on ever more devices of a machine, of which one costs ``price`` an hour."""
    found = _Found(machine, traces)
    for part in _parts(machine):
        found.split_batch(part)
        found.split_layers(part)
    return MachineScaling(
        label=machine.label,
        steps=tuple(found.steps),
        larger=tuple(found.larger.values()),
        memory=tuple(found.memory),
        memory_bytes=machine.host.devices[0].memory_bytes,
        price_per_hour=price,
        notes=tuple(dict.fromkeys(found.notes)),
    )


class _Found:
    """What is known of a model on a machine so far, of one device to begin with."""

    def __init__(self, machine: Machine, traces: HostTraces) -> None:
        self._traces = traces
        self._traced = any_traced(traces.splits)
        self._folded = FoldedSteps(machine.host)
        self._most = machine.device_counts()[-1]
        self._graph = traces.whole.whole
        self._costs = roofline_by_place(self._graph, machine.host)
        self._layouts: dict[int, Mapping[str, Placement | NotApplicable]] = {}
        first = machine.host.with_devices(machine.host.device_names()[:1])
        self._first = _Part(cluster=first, hosts=1, rings=(ring_of_devices(first),))
        self._all_on_first = single.propose(self._graph, self._costs, first)
        self._one, step, steps = self._alone(traces.whole)
        # What one device does with the samples of several, by how many.
        self.larger: dict[int, OneDevice] = {}
        first_step = ScaledStep(
            scaling=Scaling.WEAK,
            family=single.FAMILY,
            devices=1,
            samples=self._one.samples,
            step_ns=self._one.step_ns,
            efficiency=1.0,
            limit=None if self._one.fits else Limit.MEMORY,
        )
        self.steps, self.notes = [first_step], list[str]()
        self.memory: list[FamilyMemory] = []
        another = traces.another()
        if another is not None:
            self.memory.append(steps.memory(single.FAMILY, step, another))

    def split_batch(self, part: _Part) -> None:
        """Simulate the families that split the batch among devices."""
        here, split = len(part.cluster.devices), self._traces.splits[part.devices]
        if self._traced is not None:
            other = self._traced.of_share(here).folded()
            steps = _Steps(self._traced.weak(here), part, self._folded)
            self._add(FAMILIES, steps, Scaling.WEAK, self._one, other)
        if isinstance(split, BatchSplitError):
            self.notes.append(f"{part.devices} devices: {split.message}")
        else:
            steps = _Steps(split.first(here), part, self._folded)
            self._add(FAMILIES, steps, Scaling.STRONG, self._one)

    def split_layers(self, part: _Part) -> None:
        """Simulate the families that split layers within a host, where that has several devices."""
        here = len(part.cluster.devices)
        if here == 1:
            return
        if here not in self._layouts:
            self._layouts[here] = families.propose(
                LAYER_FAMILIES, self._graph, self._costs, part.cluster
            )
        of_host = {
            Scaling.WEAK: self._traces.weak(part.hosts, here),
            Scaling.STRONG: self._traces.strong(part.hosts),
        }
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
                    is_weak = scaling is Scaling.WEAK
                    one = self._one_with_samples_of(here) if is_weak else self._one
                    steps = _LaidOutSteps(answer, part, self._folded, within)
                    self._add((family,), steps, scaling, one, other)

    def _one_with_samples_of(self, devices: int) -> OneDevice:
        """Return what one device does with the batches of several."""
        if devices not in self.larger:
            traces = self._traces.weak(1, devices)
            assert not isinstance(traces, BatchSplitError), "the larger batch is traced"
            self.larger[devices], *_ = self._alone(traces)
        return self.larger[devices]

    def _alone(self, traces: SplitTraces) -> tuple[OneDevice, FoldedStep, _Steps]:
        steps = _LaidOutSteps(traces, self._first, self._folded, self._all_on_first)
        step = steps.simulated(single.FAMILY)
        (samples,) = traces.wiring.shares
        return OneDevice(samples, step.outline.step_ns, step.memory.fits()), step, steps

    def _add(
        self,
        names: Sequence[str],
        steps: _Steps,
        scaling: Scaling,
        one: OneDevice,
        other: SplitTraces | None = None,
    ) -> None:
        """Add steps, and what they hold with the whole batch on each of all devices.

        They are held against ``one`` device.
        """
        samples = self._one.samples * (steps.devices if scaling is Scaling.WEAK else 1)
        for family in names:
            step = steps.simulated(family)
            if isinstance(step, NotApplicable):
                self.notes.append(f"{steps.devices} devices: {family} {step.reason}")
                continue
            self.steps.append(steps.scaled(family, step, scaling, samples, one))
            if scaling is Scaling.WEAK and steps.devices == self._most:
                assert other is not None
                self.memory.append(steps.memory(family, step, other))


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
        self.devices = part.devices

    def scaled(
        self, family: str, step: FoldedStep, scaling: Scaling, samples: int, one: OneDevice
    ) -> ScaledStep:
        """Hold a family's step, of so many samples, against ``one`` device."""
        share = samples / one.samples / self.devices
        of_op = min(1.0, samples / one.samples / self._replicas)
        limit = limit_of(step.outline, self._part.cluster, one.step_ns * share, of_op)
        return ScaledStep(
            scaling=scaling,
            family=family,
            devices=self.devices,
            samples=samples,
            step_ns=step.outline.step_ns,
            efficiency=share * one.step_ns / step.outline.step_ns,
            limit=limit if step.memory.fits() else Limit.MEMORY,
        )

    @property
    def _replicas(self) -> int:
        """How many there are, each of which does all ops on its share of the samples."""
        return self.devices

    def memory(self, family: str, step: FoldedStep, other: SplitTraces) -> FamilyMemory:
        """Return what a family's step holds; ``other`` has other samples on each device."""
        assert step.sized is not None
        peak_bytes, of_replica = step.memory.busiest(step.sized(other))
        largest = None if of_replica is None else of_replica * self._replicas // self.devices
        return FamilyMemory(family, self.devices, peak_bytes, largest)

    def simulated(self, family: str) -> FoldedStep | NotApplicable:
        """Simulate a family's step."""
        cluster, rings = self._part.cluster, self._part.rings
        if len(self._traces.shares) == 1:
            return self._folded.simulated(family, self._evenly, cluster, rings)
        propose = self._whole.propose_on_hosts if self._part.hosts > 1 else self._whole.propose
        proposed = propose(family, cluster.devices, ALL_DEVICES)
        if isinstance(proposed, NotApplicable):
            return proposed
        outline, graph = simulated(proposed, cluster, rings), proposed.split.graph
        most = max(self._traces.shares)
        return FoldedStep(outline, StepMemory.of_graph(outline, graph, most, cluster.devices))

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
    def _replicas(self) -> int:
        return self._part.hosts

    def simulated(self, family: str) -> FoldedStep:
        """Simulate the step of a family that splits layers."""
        part = self._part
        return self._folded.laid_out(self._within, self._traces, part.cluster, part.rings)
