"""A trace is summed up per step and in total: by device, by route, and by tensor.

A device's time in a use is the time in which at least one event of it was under way. A copy
is *exposed* while the device that waits for it computes nothing. Copies to one device that
are exposed at the same moment share that time equally, so the waits of all tensors add up to
no more than the device waited. A device that is in no use is idle. Figures per step are
medians.

GPUs that cannot reach each other copy through the host. The two halves of such a copy are
joined by tensor and size, in order of time. XProf's own overview page can be asked for the
same figures; it runs in a process of its own, on a copy of the files, because it writes
beside the profiles that it opens.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.files.contract import Count, NotNegative, Ns, Text
from placement_advisor.files.output import scratch_folder
from placement_advisor.processes.orphan_guard import die_with_parent
from placement_advisor.profile import copy_names, device_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.measurement.measurement import Activity
    from placement_advisor.profile.formats import FileFormat

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


# Rows that are Python's at a time.
_CHUNK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHost:
    """Copies from a GPU to another by way of the host; their halves are in `routes`, too."""

    source: Text
    target: Text
    count: Count
    of_unknown_size: Count
    size_bytes: Count
    """Of copies of known size, each counted once."""


def copies_by_host(
    copied: Mapping[device_trace.Route, device_trace.CopyColumns],
) -> tuple[ByHost, ...]:
    """Return the copies between each two GPUs that went by way of the host."""
    devices: dict[str, int] = {}
    hosts: dict[str, int] = {}
    halves = []
    for route, of_route in copied.items():
        onward = route.kind is copy_names.CopyKind.HOST_TO_DEVICE
        if not onward and route.kind is not copy_names.CopyKind.DEVICE_TO_HOST:
            continue
        device = route.target if onward else route.source
        moments = of_route.spans.start if onward else of_route.spans.end
        # Of several hosts, the names of devices begin with theirs.
        host = hosts.setdefault(device.rpartition("/")[0], len(hosts))
        facts = (host, moments, onward, devices.setdefault(device, len(devices)))
        columns = np.broadcast_arrays(of_route.tensor, of_route.size_bytes, *facts)
        halves.append(np.stack(columns)[:, of_route.tensor >= 0])
    if not halves:
        return ()
    counts = Counter(_pairs(np.concatenate(halves, axis=1)))
    names = tuple(devices)
    found = []
    for source, target in sorted({(source, target) for source, target, _ in counts}):
        sizes = {size: n for (a, b, size), n in counts.items() if (a, b) == (source, target)}
        found.append(
            ByHost(
                source=names[source],
                target=names[target],
                count=sum(sizes.values()),
                of_unknown_size=sizes.pop(device_trace.UNKNOWN_BYTES, 0),
                size_bytes=sum(size * n for size, n in sizes.items()),
            )
        )
    return tuple(found)


def _pairs(halves: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield source, target and size of each copy; the columns of halves are in no order.

    Rows are tensor, size, host, the moment (the end of a copy to the host, the start of one from
    it), whether it goes on from the host, and the device.
    """
    # At one moment ends come before starts.
    order = np.lexsort(halves[4::-1])
    same: tuple[int, ...] = ()
    # When what waits on the host came there, by its source.
    arrived: dict[int, deque[int]] = {}
    for start in range(0, len(order), _CHUNK):
        rows = halves[:, order[start : start + _CHUNK]].T.tolist()
        for tensor, size_bytes, host, moment_ns, onward, device in rows:
            if same != (tensor, size_bytes, host):
                same, arrived = (tensor, size_bytes, host), {}
            if not onward:
                arrived.setdefault(device, deque()).append(moment_ns)
                continue
            sources = [source for source in arrived if source != device and arrived[source]]
            if sources:
                first = min(sources, key=lambda source: arrived[source][0])
                arrived[first].popleft()
                yield first, device, size_bytes


# Differences of long sums of floats are off by less; whole nanoseconds are to stay whole.
_ROUNDING_NS = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTotals:
    """All copies of a tensor on a route; ``time_ns`` adds up what each took.

    ``exposed_ns`` is its part of the time in which the device that waits computed nothing.
    ``op``, ``layer`` and ``tensor_bytes``, the size of one, are what an op graph says of it.
    """

    tensor: str
    route: device_trace.Route
    count: int
    of_unknown_size: int
    size_bytes: int
    time_ns: int
    exposed_ns: int
    op: str | None = None
    layer: str | None = None
    tensor_bytes: int | None = None


def waits_for(route: device_trace.Route, uses: Mapping[str, object]) -> str:
    """Return the end of a route that waits for what is copied: the target, if it is a device."""
    return route.target if route.target in uses else route.source


def computing_at(
    end: str, uses: Mapping[str, Mapping[device_trace.DeviceUse, device_trace.Spans]]
) -> device_trace.Spans:
    """Return when an end of a route computes; never where it is no device."""
    return uses[end][device_trace.DeviceUse.COMPUTE] if end in uses else device_trace.NO_SPANS


def tensor_totals(trace: device_trace.Trace) -> tuple[TensorTotals, ...]:
    """Return what each tensor took on each route, what devices waited longest for first."""
    exposed_ns = _exposed(trace)
    found = []
    for route, copied in trace.copied.items():
        named = copied.tensor >= 0
        places, which = np.unique(copied.tensor[named], return_inverse=True)
        time_ns = (copied.spans.end - copied.spans.start)[named]
        known = copied.size_bytes[named] != device_trace.UNKNOWN_BYTES
        size_bytes = np.where(known, copied.size_bytes[named], 0)
        columns = (None, ~known, size_bytes, time_ns, exposed_ns[route][named])
        sums = (np.bincount(which, of_each) for of_each in columns)
        for place, *figures in zip(places.tolist(), *sums, strict=True):
            count, of_unknown_size, size, time = map(int, figures[:-1])
            found.append(
                TensorTotals(
                    tensor=trace.tensors[place],
                    route=route,
                    count=count,
                    of_unknown_size=of_unknown_size,
                    size_bytes=size,
                    time_ns=time,
                    exposed_ns=int(figures[-1] + _ROUNDING_NS),
                )
            )
    return tuple(
        sorted(found, key=lambda each: (-each.exposed_ns, -each.time_ns, each.tensor, each.route))
    )


def _exposed(trace: device_trace.Trace) -> dict[device_trace.Route, Floats]:
    """Return, for each route, what of each copy's time is exposed and its own."""
    routes: defaultdict[str, list[device_trace.Route]] = defaultdict(list)
    for route in trace.copied:
        routes[waits_for(route, trace.uses)].append(route)
    found: dict[device_trace.Route, Floats] = {}
    for end, mine in routes.items():
        copied: list[device_trace.CopyColumns] = [trace.copied[route] for route in mine]
        every = device_trace.all_spans([each.spans for each in copied])
        exposed = device_trace.spans_outside(
            device_trace.union_of_spans([every]), computing_at(end, trace.uses)
        )
        ends = np.cumsum([len(each.spans.start) for each in copied])
        found |= zip(
            mine, np.split(device_trace.span_shares(exposed, every), ends[:-1]), strict=True
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTotals:
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
    total: Mapping[device_trace.DeviceUse, TimeTotals]
    idle_ns: int | None
    per_step: Mapping[device_trace.DeviceUse, TimeTotals] | None
    idle_per_step_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePerStep:
    """Copies of a step."""

    count: NotNegative
    """Median, as all of these."""
    size_bytes: NotNegative
    """Of known size."""
    time_ns: NotNegative
    """At least one is under way."""
    exposed_ns: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTotals:
    """All copies on a route; ``size_bytes`` are those of copies that give their size.

    ``time_ns`` is that in which at least one was under way, ``exposed_ns`` what of it the device
    that waits did not compute. ``per_step`` is None without steps.
    """

    route: device_trace.Route
    count: int
    of_unknown_size: int
    size_bytes: int
    time_ns: int
    exposed_ns: int
    per_step: RoutePerStep | None

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
    waits: tuple[device_trace.Wait, ...]
    notes: tuple[str, ...]

    @property
    def unclassified_share(self) -> float:
        """Share of the time in which devices did something that is of no known kind."""
        busy_ns = sum(amount.time_ns for d in self.devices for amount in d.total.values())
        unknown_ns = sum(d.total[device_trace.DeviceUse.UNCLASSIFIED].time_ns for d in self.devices)
        return unknown_ns / busy_ns if busy_ns else 0.0

    @property
    def explained_shares(self) -> dict[str, float]:
        """Share of each device's time in steps that has a named cause, where waits are known."""
        steps_ns = sum(self.step_ns)
        unexplained_ns = {wait.device: 0 for wait in self.waits}
        for wait in self.waits:
            if wait.cause is device_trace.Cause.UNEXPLAINED:
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


def totals_of(trace: device_trace.Trace) -> ProfileTotals:
    """Return what a trace says."""
    warm_up = int(len(trace.step_starts) > 2)  # noqa: PLR2004 - two moments are one step
    cuts = np.array(trace.step_starts[warm_up:], np.int64)
    everything = device_trace.union_of_spans(
        spans for uses in trace.uses.values() for spans in uses.values()
    )
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
        activities=trace.activities,
        waits=trace.waits,
        notes=trace.notes,
    )


def _device(
    device: str, uses: Mapping[device_trace.DeviceUse, device_trace.Spans], cuts: Ints, span_ns: int
) -> DeviceTotals:
    computing = uses[device_trace.DeviceUse.COMPUTE]
    exposed = {
        use: spans
        if use is device_trace.DeviceUse.COMPUTE
        else device_trace.spans_outside(spans, computing)
        for use, spans in uses.items()
    }
    busy = device_trace.union_of_spans(uses.values())

    def amounts(
        length: Callable[[device_trace.Spans], int],
    ) -> dict[device_trace.DeviceUse, TimeTotals]:
        return {
            use: TimeTotals(time_ns=length(spans), exposed_ns=length(exposed[use]))
            for use, spans in uses.items()
        }

    has_steps = len(cuts) > 0
    return DeviceTotals(
        device=device,
        total=amounts(device_trace.spans_length),
        idle_ns=span_ns - device_trace.spans_length(busy),
        per_step=amounts(lambda spans: _per_step(spans, cuts)) if has_steps else None,
        idle_per_step_ns=int(np.median(np.diff(cuts) - _in_steps(busy, cuts)))
        if has_steps
        else None,
    )


def _route(
    route: device_trace.Route,
    copied: device_trace.CopyColumns,
    uses: Mapping[str, Mapping[device_trace.DeviceUse, device_trace.Spans]],
    cuts: Ints,
) -> RouteTotals:
    under_way = device_trace.union_of_spans([copied.spans])
    exposed = device_trace.spans_outside(under_way, computing_at(waits_for(route, uses), uses))
    known = copied.size_bytes != device_trace.UNKNOWN_BYTES
    sizes = np.where(known, copied.size_bytes, 0)
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
        time_ns=device_trace.spans_length(under_way),
        exposed_ns=device_trace.spans_length(exposed),
        per_step=RoutePerStep(
            count=float(np.median(count)),
            size_bytes=float(np.median(size_bytes)),
            time_ns=_per_step(under_way, cuts),
            exposed_ns=_per_step(exposed, cuts),
        )
        if len(cuts)
        else None,
    )


def _in_steps(disjoint: device_trace.Spans, cuts: Ints) -> Ints:
    return np.diff(device_trace.spans_length_before(disjoint, cuts))


def _per_step(disjoint: device_trace.Spans, cuts: Ints) -> int:
    return int(median(_in_steps(disjoint, cuts).tolist()))


# It takes several times a file's size in memory.
_LARGEST_BYTES = 200_000_000
_LIMIT_S = 60.0
_NS_PER_MS = 1_000_000
_COLUMNS = {
    "stepTimeMs": "step_ns",
    "deviceComputeTimeMs": "compute_ns",
    "deviceToDeviceTimeMs": "device_to_device_ns",
    "deviceCollectivesTimeMs": "collectives_ns",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class XprofOverview:
    """What XProf's overview shows of the same profile: means over its steps."""

    step_ns: Ns
    compute_ns: Ns
    device_to_device_ns: Ns
    collectives_ns: Ns


def xprof_overview(files: Sequence[Path]) -> XprofOverview | None:
    """Ask XProf; None if it has no answer, or the files are too large to ask."""
    if sum(file.stat().st_size for file in files) > _LARGEST_BYTES:
        return None
    with scratch_folder() as folder:
        for file in files:
            shutil.copyfile(file, folder / file.name)
        try:
            copies = (str(folder / file.name) for file in files)
            said = subprocess.run(
                [sys.executable, "-P", "-m", __name__, *copies],
                capture_output=True,
                timeout=_LIMIT_S,
                preexec_fn=die_with_parent,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
    return None if said.returncode else _parsed(said.stdout)


def _parsed(answer: bytes) -> XprofOverview | None:
    """Return the means over the rows of the table with step times."""
    try:
        tables: list[dict[str, Any]] = json.loads(answer)
        steps = next(t for t in tables if "steptime_ms_average" in (t.get("p") or {}))
        places = {column["id"]: i for i, column in enumerate(steps["cols"])}
        rows = [[cell["v"] for cell in row["c"]] for row in steps["rows"]]
        means = {
            field: round(_NS_PER_MS * sum(row[places[column]] for row in rows) / len(rows))
            for column, field in _COLUMNS.items()
        }
    except (ValueError, LookupError, TypeError, StopIteration, ZeroDivisionError):
        return None
    return XprofOverview(**means)


def _main(paths: list[str]) -> None:
    from xprof.convert import raw_to_tool_data  # type: ignore[import-untyped]

    answer, _ = raw_to_tool_data.xspace_to_tool_data(paths, "overview_page", {})
    sys.stdout.buffer.write(answer if isinstance(answer, bytes) else answer.encode())


if __name__ == "__main__":
    _main(sys.argv[1:])
