"""The costs of a step on hardware that is not this machine, and how far they may be off.

`--hardware` gives devices and links; op costs follow from their figures. A profile recorded on
such devices (`--costs`) replaces the costs of the ops that it shows, and of the links on which it
has enough copies; all other costs stay assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import ASSUMED_WITHIN, CostSource, CostTable
from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import COST_FREE_ROLES
from placement_advisor.machine.cluster_file import load_cluster
from placement_advisor.machine.presets import hardware_figures, read_hardware
from placement_advisor.machine.testbed_plan import TestbedKind, TestbedPlan
from placement_advisor.profile import recorded_ops
from placement_advisor.profile.recorded_costs import recorded_costs, recorded_links
from placement_advisor.simulator.sensitivity import CostUncertainty
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.tf.answers import Traced


# A roofline is within 2 for two kinds of op in three (docs/reference/figures.md), most of which
# both sides of a ratio share: what is left between them is taken for a quarter, by judgement.
# Nobody has timed launches and copies there: twice and half as much is judgement, too.
ASSUMED_UNCERTAINTY = CostUncertainty(copies=2.0, launches=2.0, ops=1.25, may_hide_launches=True)
# What was recorded of links is their time without waiting and without the call that starts a copy.
# Judgement: between what is measured here and what is assumed.
RECORDED_UNCERTAINTY = CostUncertainty(copies=1.5, launches=2.0, ops=1.1, may_hide_launches=True)
# Where both were measured: meant to hold nine in ten ratios (docs/explanation/cost-model.md: how
# many it did).
MEASURED_UNCERTAINTY = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
# Ops were measured here, and copies were not.
OWN_PROCESS_UNCERTAINTY = replace(MEASURED_UNCERTAINTY, copies=ASSUMED_UNCERTAINTY.copies)


# By how much runs of one step differ, by judgement.
_RUNS_DIFFER = 0.02


def speedup_within(efficiency: float, share: float | None = None) -> float:
    """Return the factor, either way, within which the speed-up of equal devices of one host lies.

    Its logarithm is a ``share`` of what is predicted to be lost: by default that within which nine
    in ten published ones were (`[exchange]` of `hardware.toml`).
    """
    within: float = hardware_figures()["exchange"]["within"] if share is None else share
    return math.exp(within * (max(0.0, 1 - efficiency) + _RUNS_DIFFER))


def assumed_uncertainty(costs: Mapping[str, CostTable], cluster: Cluster) -> CostUncertainty:
    """Return how wrong assumed costs may be, by the device whose ops are known least.

    Ops within `ASSUMED_WITHIN` give `ASSUMED_DOUBT`, exact ones what recorded ones have. Between
    them errors of ops and of all else are independent: squares of logarithms add up.
    """
    within = max(costs[device.name].total_within for device in cluster.devices)
    share = math.log(within) / math.log(ASSUMED_WITHIN)
    known, assumed = RECORDED_UNCERTAINTY, ASSUMED_UNCERTAINTY
    return CostUncertainty(
        copies=_factor_between(known.copies, assumed.copies, share),
        launches=_factor_between(known.launches, assumed.launches, share),
        ops=_factor_between(known.ops, assumed.ops, share),
        may_hide_launches=True,
    )


def _factor_between(known: float, assumed: float, share: float) -> float:
    """Return the factor where ops are off by a share of what is assumed of them, to two digits."""
    square, most = math.log(known) ** 2, math.log(assumed) ** 2
    return round(math.exp(math.sqrt(square + share**2 * (most - square))), 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What ops cost by device on a cluster, whose costs these are, and how wrong they may be.

    ``notes`` is what to say of them.
    """

    cluster: Cluster
    costs: Mapping[str, CostTable]
    source: CostSource
    doubt: CostUncertainty
    notes: tuple[str, ...] = ()

    @property
    def is_assumed(self) -> bool:
        """Whether they rest on figures of devices alone."""
        return self.source is CostSource.ASSUMED


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHardware:
    """Devices to predict for; ``recorded`` is a profile of some of them, if there is one."""

    label: str
    cluster: Cluster
    recorded: recorded_ops.RecordedProfile | None

    def plan(self) -> TestbedPlan:
        """Return the plan to run nothing."""
        basis = "assumed" if self.recorded is None else "op times from a recorded profile"
        return TestbedPlan(
            kind=TestbedKind.NONE,
            devices=self.cluster.devices,
            stand_in=False,
            description=f"{self.label} ({basis})",
            not_run=f"--hardware {self.label}: predicted for devices that are not here, not run",
        )

    def prices(self, traced: Traced) -> StepCosts:
        """Return what the ops of a model cost there.

        Raises:
            AdvisorError: the profile is not one of this model.
        """
        costs = roofline_by_place(traced.graph, self.cluster)
        if self.recorded is None:
            return StepCosts(
                cluster=self.cluster,
                costs=costs,
                source=CostSource.ASSUMED,
                doubt=assumed_uncertainty(costs, self.cluster),
            )
        first = self.cluster.devices[0].name
        table, coverage = recorded_costs(
            traced.graph, self.recorded, costs[first], members=traced.members
        )
        links = recorded_links(self.recorded)
        known = [(link.source, link.target) for link in self.cluster.links]
        cluster = replace(
            self.cluster,
            links=tuple(
                replace(
                    link,
                    latency_ns=seen.latency_ns,
                    bandwidth_bytes_per_s=seen.bandwidth_bytes_per_s,
                    curve=seen.curve,
                    basis=seen.basis,
                )
                if (seen := links.get((link.source, link.target)))
                else link
                for link in self.cluster.links
            ),
        )
        recorded = self.recorded.graph
        another = recorded is not None and _ops_with_time(recorded) != _ops_with_time(traced.graph)
        return StepCosts(
            cluster=cluster,
            costs=costs | {device.name: table for device in cluster.devices},
            source=CostSource.RECORDED,
            doubt=RECORDED_UNCERTAINTY,
            notes=(
                *([_other_step_note(self.recorded.path, traced)] if another else ()),
                f"--costs: this model has {format_share(coverage.time_share)} of the time in "
                f"{self.recorded.path}, which prices {format_share(coverage.op_share)} of "
                "its ops; device figures price the others. Links recorded: "
                f"{len(links.keys() & set(known))} of {len(known)}, the others assumed",
            ),
        )


def _ops_with_time(graph: OpGraph) -> dict[str, tuple[str, tuple[int | None, ...]]]:
    """Return what takes time, by name; variables may be called otherwise once a training ran."""
    return {
        op.name: (op.kind, op.output_bytes) for op in graph.ops if op.role not in COST_FREE_ROLES
    }


def _other_step_note(recorded: str, traced: Traced) -> str:
    batch = "" if traced.batch_size is None else f" at a batch of {traced.batch_size}"
    return (
        f"--costs: {recorded_ops.GRAPH} in {recorded} is the graph of another step{batch}, and the "
        "times are of that step. --batch-size takes the recorded batch"
    )


def read_target_hardware(hardware: str, costs: Path | None) -> TargetHardware:
    """Return what `--hardware` (a cluster file, or devices by name) and `--costs` mean.

    Raises:
        AdvisorError: one of them means nothing, or lacks what the price of an op follows from.
    """
    is_file = is_cluster_file(hardware)
    cluster = load_cluster(Path(hardware)) if is_file else read_hardware(hardware)
    check_has_figures(hardware, cluster)
    return TargetHardware(
        label=hardware,
        cluster=cluster,
        recorded=None if costs is None else recorded_ops.read_recorded(costs),
    )


def check_has_figures(hardware: str, cluster: Cluster) -> None:
    """Check that every device and host has what the price of an op follows from.

    Raises:
        AdvisorError: one has not.
    """
    for place in cluster.places():
        for field in ("peak_flops_per_s", "memory_bandwidth_bytes_per_s"):
            if getattr(place, field) is None:
                raise AdvisorError(
                    f"{hardware}: device {place.name!r} has no {field}",
                    hint="ops are priced by it: give it, or name a preset",
                )


def is_cluster_file(hardware: str) -> bool:
    """Return whether `--hardware` names a file, not devices."""
    return hardware.endswith(".toml") or Path(hardware).exists()
