"""What `advisor simulate` answers: one simulated step, by assumed costs.

Left out: single ops and copies, which ``--trace`` writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    Filled,
    Ns,
    Positive,
    Rows,
    Share,
    Text,
    like,
)
from placement_advisor.graph.identities import Fingerprint
from placement_advisor.simulator.schedule import PathKind, time_by_kind

if TYPE_CHECKING:
    from placement_advisor.simulator import simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class CostShares:
    """Share of the ops' time by where their costs come from."""

    measured: Share
    kernel: Share
    """Formulas of measured kernels."""
    kernel_assumed: Share
    """The same, kernels never measured."""
    roofline: Share
    """By flops and bytes."""
    guessed: Share
    """Partly unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """A device or host; its seven times add up to the step."""

    name: Text
    kind: Text
    """Such as `CPU` or `GPU`."""
    compute_ns: Ns
    """With launches, unless ahead."""
    copy_work_ns: Ns
    before_first_ns: Ns
    """Idle; whole step without work."""
    waits_for_copy_ns: Ns
    """A tensor under way to it."""
    waits_for_launch_ns: Ns
    """None under way; host launches."""
    waits_for_device_ns: Ns
    """Other devices not done."""
    after_last_ns: Ns
    peak_memory_bytes: Count
    memory_bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies from one device to another."""

    source: Text
    target: Text
    count: Positive
    """Control signals included."""
    bytes: Count | None
    """Of known size."""
    unknown: Count
    """Of unknown size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTimes:
    """Time of the critical path by kind; adds up to the step time."""

    compute: Count
    """With launches, unless ahead."""
    copy: Count
    """With work of ends."""
    queueing: Count
    """For a wire."""
    overhead: Count
    """Start, launches ahead, end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """A part of the critical path."""

    kind: PathKind
    what: Text
    """Op, `op:port`, `^op`, or overhead."""
    where: Text
    """Device, or source and target."""
    start_ns: Ns
    end_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One simulated step; all is from assumed costs."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    graph_file: Text
    graph_fingerprint: Fingerprint
    placement_file: Text
    label: Text
    machine: Text
    """As given, or the stand-in."""
    renamed_devices: ByName[Text]
    """Placement's name to this."""
    cost_shares: CostShares
    step_ns: Ns
    """Call to return."""
    devices: Filled[DeviceTime]
    """Hosts last; seven times sum to step."""
    transfers: Rows[Copies]
    """Most bytes first."""
    exposed_ns: Ns
    """Of the device that waits longest."""
    hidden_ns: Ns
    """Copies under way while it computes."""
    path_ns: PathTimes
    path: Rows[PathPart]
    """From 0, no gaps."""

    @classmethod
    def of(cls, told: simulator.Simulation) -> Simulation:
        """Return it as it is published."""
        schedule, origin = told.schedule, told.origin
        shares = {basis.value: share for basis, share in told.basis_shares.items()}
        path_ns = {kind.value: time_ns for kind, time_ns in time_by_kind(told.path).items()}
        places = zip(told.cluster.places(), told.device_times, strict=True)
        return cls(
            schema_version=1,
            advisor_version=__version__,
            graph_file=origin.graph_file,
            graph_fingerprint=told.graph.fingerprint,
            placement_file=origin.placement_file,
            label=told.placement.label,
            machine=origin.machine,
            renamed_devices=dict(origin.renamed),
            cost_shares=CostShares(**shares),
            step_ns=schedule.step_ns,
            devices=tuple(
                like(
                    DeviceTime,
                    time,
                    name=place.name,
                    kind=place.kind,
                    peak_memory_bytes=schedule.peak_memory_bytes[place.name],
                    memory_bytes=place.memory_bytes,
                )
                for place, time in places
            ),
            transfers=tuple(
                like(
                    Copies,
                    each,
                    count=each.copies,
                    bytes=each.size.amount,
                    unknown=each.size.unknown,
                )
                for each in told.directions
            ),
            exposed_ns=schedule.exposed_ns,
            hidden_ns=told.hidden_ns,
            path_ns=PathTimes(**path_ns),
            path=tuple(like(PathPart, part) for part in told.path),
        )
