"""From a trace to what people ask of it: per step and in total, by device, route and tensor.

Model: a device's time in a use is the time in which at least one event of it was under way. A copy
is *exposed* while the device that waits for it computes nothing: the target, or the one device
there is at its ends. What a device spends in no use is idle. Figures per step are medians over the
steps but the first, in which the profiler sets itself up, if there are others.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.measurement.measurement import Activity
from placement_advisor.profile.spans import Spans, length, length_before, outside, union
from placement_advisor.profile.tensor_totals import computing_at, tensor_totals, waits_for
from placement_advisor.profile.timeline.by_host import copies_by_host
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES, Use
from placement_advisor.profile.timeline.waiting import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.file_format import FileFormat
    from placement_advisor.profile.tensor_totals import TensorTotals
    from placement_advisor.profile.timeline.by_host import ByHost
    from placement_advisor.profile.timeline.device_trace import Copied, Route, Trace
    from placement_advisor.profile.timeline.waiting import Wait
    from placement_advisor.profile.xprof_overview import XprofOverview

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A time, and the part of it in which the device computed nothing, None if not known."""

    time_ns: int
    exposed_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals:
    """What a device's time went to: in all of the profile, and in the median step.

    ``per_step`` and ``idle_per_step_ns`` are None where the profile shows no steps, ``idle_ns``
    where it has sums alone.
    """

    device: str
    total: Mapping[Use, Amount]
    idle_ns: int | None
    per_step: Mapping[Use, Amount] | None
    idle_per_step_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTotals:
    """All copies on a route; ``size_bytes`` are those of copies that give their size.

    ``time_ns`` is that in which at least one was under way, ``exposed_ns`` what of it the device
    that waits did not compute. ``count_per_step`` and the like are medians, None without steps.
    """

    route: Route
    count: int
    of_unknown_size: int
    size_bytes: int
    time_ns: int
    exposed_ns: int
    count_per_step: float | None
    bytes_per_step: float | None
    time_per_step_ns: float | None
    exposed_per_step_ns: float | None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes over the time in which any was under way, None where a size is not known."""
        if self.of_unknown_size or not self.time_ns:
            return None
        return self.size_bytes / self.time_ns * 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTotals:
    """What a profile says.

    ``span_ns`` is from the first to the last thing that any device did, None if not known.
    ``step_ns`` are the steps that count, ``warm_up_steps`` were left out of medians. ``waits`` say
    what devices waited for in the steps that count, the longest first for each device.
    """

    path: str
    steps_from: str
    step_ns: tuple[int, ...]
    warm_up_steps: int
    span_ns: int | None
    devices: tuple[DeviceTotals, ...]
    routes: tuple[RouteTotals, ...]
    by_host: tuple[ByHost, ...]
    tensors: tuple[TensorTotals, ...]
    activities: tuple[Activity, ...]
    waits: tuple[Wait, ...]
    notes: tuple[str, ...]

    @property
    def unclassified_share(self) -> float:
        """Share of the time in which devices did something that is of no known kind."""
        busy_ns = sum(amount.time_ns for d in self.devices for amount in d.total.values())
        unknown_ns = sum(d.total[Use.UNCLASSIFIED].time_ns for d in self.devices)
        return unknown_ns / busy_ns if busy_ns else 0.0

    @property
    def explained_shares(self) -> dict[str, float]:
        """Share of each device's time in steps that has a named cause, where waits are known."""
        steps_ns = sum(self.step_ns)
        unexplained_ns = {wait.device: 0 for wait in self.waits}
        for wait in self.waits:
            if wait.cause is Cause.UNEXPLAINED:
                unexplained_ns[wait.device] += wait.time_ns
        return {device: 1 - time_ns / steps_ns for device, time_ns in unexplained_ns.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadProfile:
    """What a profile says, and what XProf's overview says of it, None if that was not to be had.

    ``form`` says what it is. ``which`` says which run was read of several, None where there is one.
    """

    form: FileFormat
    totals: ProfileTotals
    xprof: XprofOverview | None
    which: str | None = None


def totals_of(trace: Trace) -> ProfileTotals:
    """Return what a trace says."""
    warm_up = int(len(trace.step_starts) > 2)  # noqa: PLR2004 - two moments are one step
    cuts = np.array(trace.step_starts[warm_up:], np.int64)
    everything = union(spans for uses in trace.uses.values() for spans in uses.values())
    first, last = (
        (int(everything.start[0]), int(everything.end[-1])) if len(everything.start) else (0, 0)
    )
    return ProfileTotals(
        path=trace.path,
        steps_from=trace.steps_from,
        step_ns=tuple(np.diff(cuts).tolist()),
        warm_up_steps=warm_up,
        span_ns=last - first,
        devices=tuple(
            _device(device, trace.uses[device], cuts, last - first) for device in trace.devices
        ),
        routes=tuple(
            _route(route, copied, trace.uses, cuts) for route, copied in trace.copied.items()
        ),
        by_host=copies_by_host(trace.copied),
        tensors=tensor_totals(trace),
        activities=_activities(trace),
        waits=trace.waits,
        notes=trace.notes,
    )


def _device(device: str, uses: Mapping[Use, Spans], cuts: Ints, span_ns: int) -> DeviceTotals:
    computing = uses[Use.COMPUTE]
    exposed = {
        use: spans if use is Use.COMPUTE else outside(spans, computing)
        for use, spans in uses.items()
    }
    busy = union(uses.values())
    per_step = idle_per_step_ns = None
    if len(cuts):
        per_step = {
            use: Amount(time_ns=_per_step(spans, cuts), exposed_ns=_per_step(exposed[use], cuts))
            for use, spans in uses.items()
        }
        idle_per_step_ns = int(np.median(np.diff(cuts) - _in_steps(busy, cuts)))
    return DeviceTotals(
        device=device,
        total={
            use: Amount(time_ns=length(spans), exposed_ns=length(exposed[use]))
            for use, spans in uses.items()
        },
        idle_ns=span_ns - length(busy),
        per_step=per_step,
        idle_per_step_ns=idle_per_step_ns,
    )


def _route(
    route: Route, copied: Copied, uses: Mapping[str, Mapping[Use, Spans]], cuts: Ints
) -> RouteTotals:
    under_way = union([copied.spans])
    exposed = outside(under_way, computing_at(waits_for(route, uses), uses))
    known = copied.size_bytes != UNKNOWN_BYTES
    sizes = np.where(known, copied.size_bytes, 0)
    steps = len(cuts) > 0
    place = np.searchsorted(cuts, copied.spans.start, side="right") - 1
    inside = (place >= 0) & (place < len(cuts) - 1)
    count, size_bytes = (
        np.bincount(place[inside], weights[inside], minlength=max(0, len(cuts) - 1))
        for weights in (np.ones(len(sizes)), sizes)
    )
    return RouteTotals(
        route=route,
        count=len(sizes),
        of_unknown_size=int((~known).sum()),
        size_bytes=int(sizes.sum()),
        time_ns=length(under_way),
        exposed_ns=length(exposed),
        count_per_step=float(np.median(count)) if steps else None,
        bytes_per_step=float(np.median(size_bytes)) if steps else None,
        time_per_step_ns=_per_step(under_way, cuts) if steps else None,
        exposed_per_step_ns=_per_step(exposed, cuts) if steps else None,
    )


def _activities(trace: Trace) -> tuple[Activity, ...]:
    rows = [
        Activity(
            name=name,
            calls=row.calls,
            total_ns=row.total_ns,
            min_ns=row.min_ns,
            max_ns=row.max_ns,
            is_copy=use not in (Use.COMPUTE, Use.COLLECTIVE),
        )
        for (name, use), row in trace.rows.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _in_steps(disjoint: Spans, cuts: Ints) -> Ints:
    return np.diff(length_before(disjoint, cuts))


def _per_step(disjoint: Spans, cuts: Ints) -> int:
    return int(median(_in_steps(disjoint, cuts).tolist()))
