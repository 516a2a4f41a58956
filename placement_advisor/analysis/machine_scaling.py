"""`advisor compare-hardware`: what each further device of a machine brings a model.

Model: of a machine its first 1, 2, 4, … devices and all of them, with the links and hosts that they
have. On so many devices each family that splits the batch (`data_parallel`) is simulated twice:
with the whole batch on every device (*weak scaling*, more samples a step), and with the batch
shared among them (*strong scaling*, the same training). Equal devices are not quite equal, and all
wait for the slowest: the last one is slowed down as the slowest of so many is expected to be. Every
figure is assumed; nothing runs.

What a further device does not bring is lost to what the step then waits for longest. The *knee* is
the last number of devices at which doubling them brings at least half of what it could: speed-ups
are of the best family on each.

Left out: placements that split layers and not the batch, uneven shares of unequal devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import TYPE_CHECKING

from placement_advisor.analysis.prices_elsewhere import read_elsewhere
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.candidates import single
from placement_advisor.candidates.batch_split.data_parallel import FAMILIES, DataParallelSteps
from placement_advisor.candidates.batch_split.joint import ALL_GATHER, ALL_REDUCE
from placement_advisor.candidates.batch_split.shares import shares_of
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.candidates.rationale_phrases import counted
from placement_advisor.cost.rings import (
    ALL_DEVICES,
    collective_costs,
    ring_bandwidth,
    with_collectives,
)
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.machine.presets import hardware_figures
from placement_advisor.processes.call_failure import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.exposure import SeenCopy, exposed_by_device
from placement_advisor.simulator.peak import shortages
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.tf.calls import splitter
from placement_advisor.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis.prices_elsewhere import Elsewhere
    from placement_advisor.candidates.batch_split.data_parallel import DataParallel
    from placement_advisor.candidates.batch_split.split_traces import SplitTraces
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.load.model_source import ModelSource

# A doubling that brings less than half of what it could.
_KNEE = 1.5
# Below this share of a step, what is lost is not worth a word.
_LITTLE = 0.05
_SECONDS_PER_HOUR = 3_600


class Scaling(StrEnum):
    """What stays the same while devices are added: the batch of each, or that of all."""

    WEAK = "weak"
    STRONG = "strong"


class Limit(StrEnum):
    """What a step on several devices loses most of its time to."""

    EXCHANGE = "exchange"
    LAUNCHES = "launches"
    SHARED_WORK = "work that is not shared"
    MEMORY = "memory"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineScaling:
    """What a machine does with a model, by number of devices; ``steps`` begin with one device.

    ``price_per_hour`` is that of a device, None if it is not known. ``notes`` say what could not be
    simulated.
    """

    label: str
    steps: tuple[ScaledStep, ...]
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
    machines = [read_elsewhere(text, None) for text in hardware]
    counts = sorted({n for each in machines for n in device_counts(len(each.cluster.devices))})
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        traced = traced_model(source, None, loader, watcher)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        splits: dict[int, SplitTraces | BatchSplitError] = {}
        for done, count in enumerate(counts[1:]):
            watcher.working("splitting the batch", done, len(counts) - 1)
            splits[count] = _split(loader, batch, count, source.time_limit_s)
    scaled = []
    for done, machine in enumerate(machines):
        watcher.working("simulating", done, len(machines))
        price = None if prices is None else prices[done]
        scaled.append(_scaled(machine, traced.graph, batch, splits, price))
    return HardwareComparison(
        model=traced.name,
        mode=traced.mode,
        batch=batch,
        ops=len(traced.graph),
        machines=tuple(scaled),
    )


def device_counts(devices: int) -> list[int]:
    """Return 1, 2, 4, … and the number of all devices."""
    counts = [1 << power for power in range(devices.bit_length())]
    return counts if counts[-1] == devices else [*counts, devices]


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


def _scaled(
    machine: Elsewhere,
    graph: OpGraph,
    batch: int,
    splits: Mapping[int, SplitTraces | BatchSplitError],
    price: float | None,
) -> MachineScaling:
    """Simulate one machine.

    Raises:
        AdvisorError: its first device cannot run the model by itself.
    """
    costs = roofline_by_place(graph, machine.cluster)
    placement = single.propose(graph, costs, machine.cluster)
    if isinstance(placement, NotApplicable):
        raise AdvisorError(f"{machine.label}: {placement.reason}")
    alone = Simulator(graph, costs, machine.cluster).schedule(placement)
    fits_alone = not shortages(alone.peak_memory, machine.cluster.devices)
    steps = [
        ScaledStep(
            scaling=Scaling.WEAK,
            family=single.FAMILY,
            devices=1,
            samples=batch,
            step_ns=alone.step_ns,
            efficiency=1.0,
            limit=None if fits_alone else Limit.MEMORY,
        )
    ]
    notes = []
    for count in device_counts(len(machine.cluster.devices))[1:]:
        split = splits[count]
        if isinstance(split, BatchSplitError):
            notes.append(f"{count} devices: {split.message}")
            continue
        cluster = machine.cluster.with_devices(machine.cluster.device_names()[:count])
        for scaling, traces in ((Scaling.WEAK, split.weak(count)), (Scaling.STRONG, split)):
            found = DataParallelSteps(traces)
            for family in FAMILIES:
                proposed = found.propose(family, cluster.devices, ALL_DEVICES)
                if isinstance(proposed, NotApplicable):
                    notes.append(f"{count} devices: {family} {proposed.reason}")
                    continue
                samples = batch * count if scaling is Scaling.WEAK else batch
                steps.append(_step(proposed, cluster, scaling, samples, steps[0], alone))
    return MachineScaling(
        label=machine.label,
        steps=tuple(steps),
        price_per_hour=price,
        notes=tuple(dict.fromkeys(notes)),
    )


def simulated(
    proposed: DataParallel,
    cluster: Cluster,
    *,
    bandwidth: float | None = None,
    op_factor: float = 1.0,
) -> Schedule:
    """Return the schedule of a step whose batch is split among the devices of a cluster.

    ``bandwidth`` is that of rings through them, None for what is expected of NCCL. Ops of devices
    take ``op_factor`` times as long as their figures say.
    """
    split, placement = proposed
    there = with_collectives(cluster)
    costs = roofline_by_place(split.graph, there)
    for count, device in enumerate(cluster.devices, start=1):
        is_last = count == len(cluster.devices)
        factor = op_factor * (slowest_of(count) if is_last else 1.0)
        costs[device.name] = costs[device.name].scaled(factor)
    costs[ALL_DEVICES] = _collectives(split.graph, cluster, bandwidth)
    simulator = Simulator(split.graph, costs, there, collective_of=split.collective_of)
    return simulator.schedule(placement)


def slowest_of(devices: int) -> float:
    """Return how many times as long as one the slowest of equal devices takes, as expected.

    Their times are taken to be normally distributed.

    Source: Blom, Statistical estimates and transformed beta-variables (1958).
    """
    if devices == 1:
        return 1.0
    quantile = NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
    spread: float = hardware_figures()["alike"]["spread"]
    return 1 + spread * quantile


def _collectives(graph: OpGraph, cluster: Cluster, bandwidth: float | None) -> CostTable:
    kinds = {kind: [op for op in graph.ops if op.kind == kind] for kind in (ALL_REDUCE, ALL_GATHER)}
    known = ring_bandwidth(cluster) if bandwidth is None else bandwidth
    return collective_costs(kinds[ALL_REDUCE], kinds[ALL_GATHER], cluster, known)


def _step(
    proposed: DataParallel,
    cluster: Cluster,
    scaling: Scaling,
    samples: int,
    one: ScaledStep,
    alone: Schedule,
) -> ScaledStep:
    """Simulate a step whose batch is split, and hold it against ``one`` device."""
    count = len(cluster.devices)
    schedule = simulated(proposed, cluster)
    share = samples / one.samples / count
    limit = _limit(proposed, cluster, schedule, alone.step_ns * share, share)
    if shortages(schedule.peak_memory, cluster.devices):
        limit = Limit.MEMORY
    return ScaledStep(
        scaling=scaling,
        family=proposed.placement.label,
        devices=count,
        samples=samples,
        step_ns=schedule.step_ns,
        efficiency=share * one.step_ns / schedule.step_ns,
        limit=limit,
    )


def _limit(
    proposed: DataParallel, cluster: Cluster, schedule: Schedule, ideal_ns: float, share: float
) -> Limit | None:
    """Return what is lost most to, of a step that does a ``share`` of the work of one device."""
    lost_ns = schedule.step_ns - ideal_ns
    if lost_ns < _LITTLE * schedule.step_ns:
        return None
    devices = cluster.device_names()
    busiest = max(devices, key=lambda device: schedule.compute_ns[device])
    launch_ns = {device.name: device.launch_overhead_ns for device in cluster.devices}
    ops = sum(place == busiest for place in proposed.placement.device_of.values())
    # What does not shrink with the batch: launches of ops that are as many as before.
    launches_ns = ops * launch_ns[busiest] * (1 - share)
    # A collective is a copy to each device.
    collectives = [
        SeenCopy(ALL_DEVICES, device, (), run.start_ns, run.end_ns)
        for run in schedule.runs
        if run.device == ALL_DEVICES
        for device in devices
    ]
    copies = [*schedule.copies, *collectives]
    waiting_ns = max(exposed_by_device(schedule.runs, copies, devices).values())
    others_ns = lost_ns - launches_ns - waiting_ns
    losses = {
        Limit.EXCHANGE: waiting_ns,
        Limit.LAUNCHES: launches_ns,
        Limit.SHARED_WORK: others_ns,
    }
    return max(losses, key=lambda limit: losses[limit])
