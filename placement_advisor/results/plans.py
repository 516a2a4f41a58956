"""Answers of `advisor search`, `balance` and `compare-hardware`.

Times of `search` and `compare-hardware` are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.analysis import machine_scaling
from placement_advisor.analysis import machine_scaling as found
from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.cost.batch import BatchMemory, SplitStep
from placement_advisor.files import contract

if TYPE_CHECKING:
    from placement_advisor.candidates.searched import SearchResult
    from placement_advisor.cost import batch as batch_costs
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.solvers.effort import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a device or host has to do by the placement."""

    name: contract.Text
    work_ns: contract.Ns
    """Of its ops, launches included."""
    ops: contract.Count
    held_bytes: contract.Count
    """Variables and outputs of ops."""
    capacity_bytes: contract.Count | None
    """None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The best placement of an op graph for one step, and a bound on any."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[2]
    advisor_version: contract.Text
    graph_file: contract.Text
    ops: contract.Count
    machine: contract.Text
    """As given."""
    step_ns: contract.Ns
    lower_bound_ns: contract.Ns
    """Under the same costs."""
    proven: bool
    """The step equals the bound."""
    stopped_by: Literal["proof", "effort", "clock"]
    """After `clock`, another run may differ."""
    seconds: contract.NotNegative
    """To read the graph and search."""
    seed: contract.Count
    effort_units: contract.NotNegative | None
    """None without a limit."""
    effort_units_spent: contract.NotNegative
    time_limit_s: contract.NotNegative | None
    """None without a limit."""
    devices: contract.Filled[Device]
    """Hosts come last."""
    device_of: contract.ByName[contract.Text]

    @classmethod
    def of(
        cls,
        found: SearchResult,
        effort: Effort,
        graph: OpGraph,
        costs: Mapping[str, CostTable],
        cluster: Cluster,
        **asked: object,
    ) -> Search:
        """Return it as it is published; ``asked`` are its fields that the search does not know."""
        return contract.like(
            cls,
            found,
            effort,
            advisor_version=__version__,
            ops=len(found.placement.device_of),
            proven=found.is_proven,
            effort_units=None if math.isinf(effort.units) else effort.units,
            effort_units_spent=found.units,
            devices=_devices(graph, costs, cluster, found.placement.device_of),
            device_of=found.placement.device_of,
            **asked,
        )


def _devices(
    graph: OpGraph,
    costs: Mapping[str, CostTable],
    cluster: Cluster,
    device_of: Mapping[str, str],
) -> Iterator[Device]:
    for place in cluster.places():
        ops = [graph.op(name) for name, device in device_of.items() if device == place.name]
        if not ops and place in cluster.hosts:
            continue
        priced = [costs[place.name].costs.get(op.name) for op in ops]
        yield Device(
            name=place.name,
            work_ns=sum(place.busy_ns(cost.time_ns) for cost in priced if cost is not None),
            ops=len(ops),
            held_bytes=sum(op.parameter_bytes + sum(b or 0 for b in op.output_bytes) for op in ops),
            capacity_bytes=place.memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTiming:
    """Steps of one batch on one device, and how far the line is off."""

    samples: contract.Positive
    step_ns: contract.Ns
    """Mean without the outer tenths."""
    residual: float
    """(line - measured) / measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAlone:
    """A device alone, and the line through its measurements."""

    name: contract.Text
    most_samples: contract.Positive | None
    """None if its memory is unknown."""
    fixed_ns: contract.Ns
    """Independent of the batch, fitted."""
    per_sample_ns: contract.NotNegative
    """Fitted."""
    measured: contract.Rows[BatchTiming]
    """Largest batch first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSplit:
    """A split that was run."""

    samples: contract.Rows[contract.Positive]
    """By device."""
    step_ns: contract.Ns
    """Mean without the outer tenths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShares:
    """A split of the batch, by the lines of devices alone."""

    samples: contract.Rows[contract.Count]
    """By device."""
    slowest_ns: contract.Ns
    """Of the slowest device, without merging."""
    most_samples_per_s: contract.NotNegative
    """Of all devices, without merging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """How to share a batch among devices, from what each takes alone."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    model: contract.Text
    testbed: contract.Text
    batch: contract.Positive
    warnings: contract.Rows[contract.Text]
    memory: BatchMemory
    devices: contract.Rows[DeviceAlone]
    advised: contract.Rows[contract.Count]
    """By device: the best known split."""
    tried: contract.Rows[MeasuredSplit]
    best: BatchShares
    even: BatchShares
    other_batches: contract.Rows[BatchShares]
    """Half, two, four times the batch."""
    best_batch: BatchShares | None
    """Most samples per second that fit."""

    @classmethod
    def of(cls, balance: batch_costs.Balance) -> Balance:
        """Return it as it is published."""
        return contract.like(
            cls,
            balance,
            advisor_version=__version__,
            devices=map(_device, balance.devices, balance.most),
            tried=[
                MeasuredSplit(samples=samples, step_ns=step_ns)
                for samples, step_ns in balance.tried.items()
            ],
            best=_shares(balance.best),
            even=_shares(balance.even),
            other_batches=map(_shares, balance.others),
            best_batch=balance.best_batch and _shares(balance.best_batch),
        )


def _device(device: batch_costs.DeviceSpeed, most_samples: int | None) -> DeviceAlone:
    return contract.like(
        DeviceAlone,
        device,
        most_samples=most_samples,
        fixed_ns=device.line.fixed_ns,
        per_sample_ns=device.line.per_sample_ns,
        measured=[
            BatchTiming(samples=point.batch, step_ns=round(point.step_ns), residual=residual)
            for point, residual in zip(device.points, device.residuals, strict=True)
        ],
    )


def _shares(split: SplitStep) -> BatchShares:
    return contract.like(BatchShares, split, samples=split.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What was traced."""

    name: contract.Text
    mode: Literal["train", "infer"]
    batch_size: contract.Positive
    """On one device."""
    ops: contract.Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The machine of most samples per second; None where the step fits on no single device."""

    hardware: contract.Text
    devices: contract.Positive
    """As many as pay off."""
    ties: contract.Rows[contract.Text]
    """Machines that may be as fast."""
    launches_decide: bool
    """Without launches, another machine is first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsWithin:
    """By which factors costs may be wrong, either way; ranges are what follows.

    Those of a batch that is split within a host, with the whole batch on each device, follow from
    published speed-ups in place of `copies` and `ops`.
    """

    copies: float
    launches: float
    """They may be free, too."""
    ops: float
    """Of a split against one device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Throughput over that of one device."""

    simulated: float
    low: float
    """With costs at their worst."""
    high: float
    """With costs at their best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The best step of a scaling on a number of devices."""

    scaling: found.Scaling | None
    """None for one device."""
    family: contract.Text
    """Says who holds the variables or layers."""
    devices: contract.Positive
    devices_used: contract.Positive
    samples: contract.Positive
    """Of all devices."""
    step_ns: contract.Ns
    samples_per_s: float
    """Of all devices."""
    one_device_samples_per_s: float | None
    """With as many samples."""
    speedup: Speedup | None
    """None if nothing compares."""
    efficiency: float | None
    """Speed-up over devices; None if above 1."""
    excess: found.Excess | None
    """Why it is above `devices`; `launches`: because more threads launch."""
    speedup_without_launches: float | None
    """None for one device."""
    limit: Limit | None
    """What most is lost to."""
    verdict: AdviceVerdict | None
    """Of `analyze --hardware`."""
    price_of_a_million_samples: float | None
    """In the unit of the price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDevice:
    """A step on one device."""

    samples: contract.Positive
    step_ns: contract.Ns
    samples_per_s: float
    fits: bool
    """Memory suffices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine does with the model, by number of devices."""

    hardware: contract.Text
    price_per_hour: float | None
    """Of a device, in any unit."""
    device_memory_bytes: contract.Count | None
    """Of the first device."""
    verdict: AdviceVerdict | None
    """Of `analyze --hardware`, all devices."""
    answer: contract.Text | None
    costs_within: CostsWithin
    memory: contract.Rows[found.FamilyMemory]
    """With the whole batch on each device."""
    best: contract.Rows[Row]
    """By scaling and devices."""
    steps: contract.Rows[found.SimulatedStep]
    """Families that `analyze` lacks."""
    one_device: contract.Rows[OneDevice]
    """At the batch and multiples of it."""
    knee: Mapping[found.Scaling, found.Knee | None]
    """With the whole batch on each."""
    notes: contract.Rows[contract.Text]
    """What was not simulated, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What each further device of machines brings a model; all is from assumed costs."""

    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Literal[1]
    advisor_version: contract.Text
    model: Model
    basis: Literal["assumed"]
    fastest: Fastest | None
    cheapest: Fastest | None
    machines: contract.Filled[Machine]

    @classmethod
    def of(cls, compared: machine_scaling.HardwareComparison) -> Scaling:
        """Return it as it is published."""
        return contract.like(
            cls,
            advisor_version=__version__,
            model=contract.like(Model, compared, name=compared.model, batch_size=compared.batch),
            fastest=_ranked(compared.fastest()),
            cheapest=_ranked(compared.cheapest()),
            machines=map(_machine, compared.machines),
        )


def _ranked(ranked: machine_scaling.Ranked | None) -> Fastest | None:
    if ranked is None:
        return None
    return Fastest(
        hardware=ranked.machine.label,
        devices=ranked.step.devices,
        ties=tuple(machine.label for machine in ranked.ties),
        launches_decide=ranked.is_by_launches,
    )


def _machine(machine: machine_scaling.MachineScaling) -> Machine:
    return contract.like(
        Machine,
        machine,
        hardware=machine.label,
        device_memory_bytes=machine.memory_bytes,
        costs_within=machine.doubt,
        best=[_row(machine, step) for step in machine.rows],
        one_device=machine.alone,
        knee={scaling: machine.knee(scaling) for scaling in found.Scaling},
    )


def _row(machine: machine_scaling.MachineScaling, step: machine_scaling.ScaledStep) -> Row:
    speedup, bare = step.speedup, step.without_launches
    return contract.like(
        Row,
        step,
        scaling=None if step.devices == 1 else step.scaling,
        devices_used=step.used,
        one_device_samples_per_s=step.alone_per_s,
        speedup=None
        if speedup is None
        else Speedup(simulated=speedup.median, low=speedup.low, high=speedup.high),
        speedup_without_launches=1 / bare if bare else None,
        price_of_a_million_samples=machine.cost_per_million(step),
    )
