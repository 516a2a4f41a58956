"""What `advisor simulate` answers: one simulated step, by assumed costs.

Left out: single ops and copies, which ``--trace`` writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Le, MinLen
from pydantic import StringConstraints

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    Ns,
    Positive,
    Rows,
    Share,
    Text,
    like,
)
from placement_advisor.simulator.schedule import PathKind, time_by_kind

if TYPE_CHECKING:
    from placement_advisor.simulator import simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class CostShares:
    """Share of the ops' time by where their costs come from."""

    measured: Share
    """Share that was measured."""
    kernel: Share
    """Share that follows from dimensions of kernels, by formulas fitted to a record of such
    kernels.
    """
    kernel_assumed: Share
    """Share that follows from the same formulas, for kernels of a kind that the record lacks."""
    roofline: Share
    """Share that follows from flops and bytes by a formula."""
    guessed: Share
    """Share that covers only what is known of an op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """A device or host; its seven times add up to the step."""

    name: Text
    """Name of the device."""
    kind: Text
    """Sort of device, such as `CPU` or `GPU`."""
    compute_ns: Ns
    """Time of its ops, with their launch overhead where launches are not ahead."""
    copy_work_ns: Ns
    """Time in which it works on copies instead."""
    before_first_ns: Ns
    """Idle time before its first work; the step time if it has none."""
    waits_for_copy_ns: Ns
    """Idle time in between with a tensor on its way to it."""
    waits_for_launch_ns: Ns
    """Idle time in between with none, while its host launches an op; 0 where launches are not
    ahead.
    """
    waits_for_device_ns: Ns
    """Other idle time in between: other devices are not done."""
    after_last_ns: Ns
    """Idle time after its last work."""
    peak_memory_bytes: Count
    """The most that it holds at one moment."""
    memory_bytes: Count | None
    """Memory that it has; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies from one device to another."""

    source: Text
    """Device that sends."""
    target: Text
    """Device that receives."""
    count: Positive
    """Copies per step, control signals included."""
    bytes: Count | None
    """Bytes per step, of the tensors whose size is known; None if none is known."""
    unknown: Count
    """Copies of a tensor of unknown size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTimes:
    """Time of the critical path by kind; adds up to the step time."""

    compute: Count
    """Ops, with their launch overhead where launches are not ahead."""
    copy: Count
    """Copies, with the work of their ends."""
    queueing: Count
    """Copies that wait for a wire that others hold."""
    overhead: Count
    """What starts a device, launches ahead of it, and what ends the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """A part of the critical path."""

    kind: PathKind
    """What the part is spent on."""
    what: Text
    """Op, tensor that crosses (`op:port`, or `^op` for a control signal), or overhead in words."""
    where: Text
    """Device, or source and target of a copy."""
    start_ns: Ns
    """When it begins."""
    end_ns: Ns
    """When it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One simulated step; all is from assumed costs."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that simulated the step."""
    graph_file: Text
    """Graph file as the user gave it."""
    graph_fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
    """Hash of the op graph."""
    placement_file: Text
    """Placement file as the user gave it."""
    label: Text
    """Name of the placement."""
    machine: Text
    """What was simulated: hardware or cluster file as the user gave it, or the stand-in, in words.
    """
    renamed_devices: ByName[Text]
    """Name in this file of each device that the placement file calls otherwise; empty if the names
    are the same.
    """
    cost_shares: CostShares
    step_ns: Ns
    """Step time, from its call to its return."""
    devices: Annotated[Rows[DeviceTime], MinLen(1)]
    """Devices in order, hosts last. The seven times of each add up to the step time."""
    transfers: Rows[Copies]
    """Copies by direction, that of most bytes first."""
    exposed_ns: Ns
    """What the device that waits longest for copies waits, computing nothing."""
    hidden_ns: Ns
    """Time in which copies are on their way to that device and it computes."""
    path_ns: PathTimes
    path: Rows[PathPart]
    """Parts of the critical path, from 0 to the step time without gaps."""

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
