"""What `advisor profile` answers: where the time of a recorded step went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    """Kernels and memsets."""
    peer_ns: Ns
    """Copies between devices."""
    peer_exposed_ns: Ns | None
    host_ns: Ns
    """Copies to and from the host."""
    host_exposed_ns: Ns | None
    within_ns: Ns
    """Copies within the card."""
    within_exposed_ns: Ns | None
    collective_ns: Ns
    collective_exposed_ns: Ns | None
    unclassified_ns: Ns
    """Copies of unknown kind."""
    unclassified_exposed_ns: Ns | None
    idle_ns: Ns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device."""

    name: Text
    in_all: Amounts
    per_step: Amounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePerStep:
    """Copies of a step."""

    count: NotNegative
    """Mean."""
    size_bytes: NotNegative
    """Of known size."""
    time_ns: NotNegative
    """At least one under way."""
    exposed_ns: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """All copies of a sort from one device to another."""

    source: Text
    """Device, `host` or `unknown`."""
    target: Text
    """Likewise."""
    kind: Text
    """As nvprof writes it."""
    count: Count
    of_unknown_size: Count
    size_bytes: Count
    """Of known size."""
    time_ns: Ns
    """At least one under way."""
    exposed_ns: Ns
    bytes_per_s: NotNegative | None
    """None unless all sizes are known."""
    per_step: RoutePerStep | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHost:
    """Copies between hosts."""

    source: Text
    target: Text
    count: Count
    """Each of two halves."""
    of_unknown_size: Count
    size_bytes: Count
    """Of known size, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Copies of a tensor on one route."""

    tensor: Text
    """As TensorFlow names edges."""
    source: Text
    """Device, `host` or `unknown`."""
    target: Text
    """Likewise."""
    kind: Text
    """As nvprof writes it."""
    count: Count
    of_unknown_size: Count
    size_bytes: Count
    """Of known size."""
    time_ns: Ns
    """Summed."""
    exposed_ns: Ns
    """Simultaneous copies share it."""
    op: Text | None
    """None if not in a graph."""
    layer: Text | None
    tensor_bytes: Count | None
    """Of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A kernel, or a sort of copies."""

    name: Text
    """Kernel or kind of copy."""
    calls: Count
    total_ns: Ns
    """Summed."""
    min_ns: Ns
    max_ns: Ns
    is_copy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a device waits for in a step."""

    device: Text
    cause: Literal["copy", "op", "sending", "start", "client", "unexplained"]
    """A tensor under way, or not made (`op`); executor `start`; `client`: between steps."""
    what: Text
    """Tensor or op; else empty."""
    where: Text
    """Source, target (`sending`), or the op's device."""
    time_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Xprof:
    """What XProf's overview says of the same profile, means over steps."""

    step_ns: Ns
    compute_ns: Ns
    device_to_device_ns: Ns
    collectives_ns: Ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Where the time of devices went in a recorded profile."""

    __pydantic_config__: ClassVar = STRICT

    schema_version: Literal[1]
    advisor_version: Text
    path: Text
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
    steps_from: Text
    """`group_id`, `step marks` or `none`."""
    step_ns: Rows[Ns]
    """Counted steps, in order."""
    warm_up_steps: Count
    """Left out of medians."""
    span_ns: Ns | None
    """First to last event."""
    unclassified_share: NotNegative
    """Of busy time."""
    devices: Rows[Device]
    routes: Rows[Route]
    """In all of the profile."""
    by_host: Rows[ByHost]
    """Via host; also in `routes`."""
    tensors: Rows[Tensor]
    """Longest waited for first."""
    activities: Rows[Activity]
    """Longest first."""
    waits: Rows[Wait]
    """In counted steps."""
    explained_shares: ByName[float]
    """Of steps, with named cause."""
    xprof: Xprof | None
    """None if not asked, or unanswered."""
    notes: Rows[Text]

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
