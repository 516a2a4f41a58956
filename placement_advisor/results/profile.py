"""What `advisor profile` answers: where the time of a recorded step went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from placement_advisor import __version__
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    NotNegative,
    Ns,
    Rows,
    Text,
    like,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.profile import totals
    from placement_advisor.profile.device_trace import DeviceUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a device did, by use: copies to and from peers and hosts, within it, collectives."""

    compute_ns: Ns
    """Time in kernels and memsets."""
    peer_ns: Ns
    """Time in copies from and to other devices."""
    peer_exposed_ns: Ns | None
    """The part of it in which the device computed nothing; None if not known."""
    host_ns: Ns
    """Time in copies from and to the host."""
    host_exposed_ns: Ns | None
    """The part of it in which the device computed nothing; None if not known."""
    within_ns: Ns
    """Time in copies within the card."""
    within_exposed_ns: Ns | None
    """The part of it in which the device computed nothing; None if not known."""
    collective_ns: Ns
    """Time in collectives."""
    collective_exposed_ns: Ns | None
    """The part of it in which the device computed nothing; None if not known."""
    unclassified_ns: Ns
    """Time in copies of no known kind."""
    unclassified_exposed_ns: Ns | None
    """The part of it in which the device computed nothing; None if not known."""
    idle_ns: Ns | None
    """Time in none of these; None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device."""

    name: Text
    """Name of the device."""
    in_all: Amounts
    per_step: Amounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePerStep:
    """Copies of a step."""

    count: NotNegative
    """Copies."""
    size_bytes: NotNegative
    """Bytes of those of known size."""
    time_ns: NotNegative
    """Time in which at least one was under way."""
    exposed_ns: NotNegative
    """The part of it in which the device that waits computed nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """All copies of a sort from one device to another."""

    source: Text
    """Whence: a device, `host`, or `unknown`."""
    target: Text
    """Whither: a device, `host`, or `unknown`."""
    kind: Text
    """Direction, as nvprof writes it."""
    count: Count
    """Copies."""
    of_unknown_size: Count
    """Copies whose size neither the profile nor the graph says."""
    size_bytes: Count
    """Bytes of the others."""
    time_ns: Ns
    """Time in which at least one was under way."""
    exposed_ns: Ns
    """The part of it in which the device that waits computed nothing."""
    bytes_per_s: NotNegative | None
    """Bytes over that time; None where a size is not known."""
    per_step: RoutePerStep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHost:
    """Copies between hosts."""

    source: Text
    """Device whence."""
    target: Text
    """Device whither."""
    count: Count
    """Copies, each of two halves."""
    of_unknown_size: Count
    """Copies whose size neither the profile nor the graph says."""
    size_bytes: Count
    """Bytes of the others, each counted once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Copies of a tensor on one route."""

    tensor: Text
    """Edge of the graph, as TensorFlow names it."""
    source: Text
    """Whence: a device, `host`, or `unknown`."""
    target: Text
    """Whither: a device, `host`, or `unknown`."""
    kind: Text
    """Direction, as nvprof writes it."""
    count: Count
    """Copies."""
    of_unknown_size: Count
    """Copies whose size neither the profile nor the graph says."""
    size_bytes: Count
    """Bytes of the others."""
    time_ns: Ns
    """What each took, added up."""
    exposed_ns: Ns
    """Its part of the time in which the device that waits computed nothing while copies were under
    way; copies that are exposed at the same moment share it.
    """
    op: Text | None
    """Op of the graph file that makes it; None without a graph, or if it is not there."""
    layer: Text | None
    """Layer of that op."""
    tensor_bytes: Count | None
    """Size of one of it, by the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A kernel, or a sort of copies."""

    name: Text
    """Kernel, or kind of copy."""
    calls: Count
    """Events."""
    total_ns: Ns
    """What each took, added up."""
    min_ns: Ns
    """The shortest."""
    max_ns: Ns
    """The longest."""
    is_copy: bool
    """Whether it is a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a device waits for in a step."""

    device: Text
    """Who waited."""
    cause: Literal["copy", "op", "sending", "start", "client", "unexplained"]
    """`copy`: a tensor was under way to it; `op`: a tensor was not made yet; `sending`: its core
    sent a tensor; `start`: the executor began an op; `client`: no step, or no word of its end;
    `unexplained`.
    """
    what: Text
    """Tensor or op; empty for the client and where there is no cause."""
    where: Text
    """Device that it comes from, goes to (`sending`) or is of."""
    time_ns: Ns
    """All of it together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xprof:
    """What XProf's overview says of the same profile, means over steps."""

    step_ns: Ns
    """Step."""
    compute_ns: Ns
    """Device compute."""
    device_to_device_ns: Ns
    """Device to device."""
    collectives_ns: Ns
    """Collectives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of devices went in a recorded profile."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(1)]
    advisor_version: Text
    """Version of placement-advisor that read the profile."""
    path: Text
    """The file or run that was read."""
    format: Literal[
        "TensorFlow profile (XSpace)",
        "Chrome trace (TensorBoard's trace viewer)",
        "PyTorch trace (Kineto)",
        "Chrome trace",
        "nvprof summary",
        "nvprof GPU trace",
        "Nsight Systems summary",
        "Nsight Systems GPU trace",
    ]
    """What it is, told by its content."""
    steps_from: Text
    """What told the steps apart: `group_id`, `step marks`, or `none`."""
    step_ns: Rows[Ns]
    """The steps that count, in order."""
    warm_up_steps: Count
    """Steps that were left out of medians."""
    span_ns: Ns | None
    """From the first to the last thing that any device did; None if not known."""
    unclassified_share: NotNegative
    """Share of the time in which devices did something that is of no known kind."""
    devices: Rows[Device]
    """Each device of the profile."""
    routes: Rows[Route]
    """Copies by source, target and kind, in all of the profile."""
    by_host: Rows[ByHost]
    """Copies from a GPU to another by way of the host, joined from a copy to the host and one from
    it; both are in `routes` as well.
    """
    tensors: Rows[Tensor]
    """Copies by tensor and route, what devices waited longest for first."""
    activities: Rows[Activity]
    """Rows of the nvprof-style table, the longest first."""
    waits: Rows[Wait]
    """What devices waited for in the steps that count, where the profile shows it."""
    explained_shares: ByName[float]
    """Share of each device's time in steps that has a named cause, by device, where waits are
    known.
    """
    xprof: Xprof | None
    """None if it was not asked, or had no answer."""
    notes: Rows[Text]
    """What a reader should know."""

    @classmethod
    def of(cls, read: totals.ReadProfile) -> Profile:
        """Return it as it is published."""
        profile = read.totals
        return like(
            cls,
            profile,
            schema_version=1,
            advisor_version=__version__,
            format=read.form,
            step_ns=tuple(profile.step_ns),
            devices=tuple(map(_device, profile.devices)),
            routes=tuple(map(_route, profile.routes)),
            by_host=tuple(like(ByHost, each) for each in profile.by_host),
            tensors=tuple(
                like(
                    Tensor,
                    each,
                    source=each.route.source,
                    target=each.route.target,
                    kind=each.route.kind,
                )
                for each in profile.tensors
            ),
            activities=tuple(like(Activity, each) for each in profile.activities),
            waits=tuple(like(Wait, each) for each in profile.waits),
            xprof=None if read.xprof is None else like(Xprof, read.xprof),
            notes=(*([] if read.which is None else [read.which]), *profile.notes),
        )


def _device(device: totals.DeviceTotals) -> Device:
    per_step = device.per_step
    return Device(
        name=device.device,
        in_all=_amounts(device.total, device.idle_ns),
        per_step=None if per_step is None else _amounts(per_step, device.idle_per_step_ns),
    )


def _amounts(amounts: Mapping[DeviceUse, totals.TimeTotals], idle_ns: int | None) -> Amounts:
    told: dict[str, Any] = {"idle_ns": idle_ns}
    for use, amount in amounts.items():
        told[f"{use.name.lower()}_ns"] = amount.time_ns
        if use.name != "COMPUTE":
            told[f"{use.name.lower()}_exposed_ns"] = amount.exposed_ns
    return Amounts(**told)


def _route(totals: totals.RouteTotals) -> Route:
    route, per_step = totals.route, None
    if totals.count_per_step is not None:
        per_step = RoutePerStep(
            count=totals.count_per_step,
            size_bytes=totals.bytes_per_step,  # type: ignore[arg-type]
            time_ns=totals.time_per_step_ns,  # type: ignore[arg-type]
            exposed_ns=totals.exposed_per_step_ns,  # type: ignore[arg-type]
        )
    return like(
        Route,
        totals,
        source=route.source,
        target=route.target,
        kind=route.kind,
        per_step=per_step,
    )
