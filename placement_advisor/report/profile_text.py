"""A read profile as text, and as Markdown for an issue or a pull request: tables, what to know."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.profile.device_trace import Cause, DeviceUse
from placement_advisor.report.analysis.figures import ACTIVITY_HEADINGS, activity_rows
from placement_advisor.report.document import (
    NOTHING,
    Bullets,
    Section,
    Table,
    as_markdown,
    as_text,
    escape,
    one_line,
)
from placement_advisor.units import counted, format_bandwidth, format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from placement_advisor.profile.device_trace import Wait
    from placement_advisor.profile.totals import (
        ByHost,
        DeviceTotals,
        ProfileTotals,
        ReadProfile,
        RouteTotals,
        TensorTotals,
    )
    from placement_advisor.report.document import Part

TOP_TENSORS = 10
TOP_WAITS = 6
# Names of kernels are whole C++ signatures.
_NAME_CHARS = 100


def render_profile(read: ReadProfile) -> str:
    """Return the text."""
    head = Section("", [f"{read.totals.path}: {_headline(read)}", read.which or ""])
    return as_text([head, *_tables(read.totals).values(), Section("", _remarks(read))])


def profile_as_markdown(read: ReadProfile) -> str:
    """Return the page."""
    which = [] if read.which is None else [f"{read.which}."]
    parts: list[Part] = [f"{_headline(read)}.", *which]
    parts += [Section(title, [table]) for title, table in _tables(read.totals).items()]
    parts.append(Section("To know", [Bullets(_remarks(read))]))
    return f"# {escape(read.totals.path)}\n\n{as_markdown(parts)}"


def _tables(profile: ProfileTotals) -> dict[str, Table]:
    """Return the tables by their titles."""
    per_step = {"Per step": _devices(profile, per_step=True)} if profile.step_ns else {}
    return {
        **per_step,
        "In all": _devices(profile, per_step=False),
        "Copies": _routes(profile),
        "By way of the host": _by_host(profile),
        "Tensors": _tensors(profile),
        "Waiting": _waits(profile),
        "Activities": _activities(profile),
    }


def _headline(read: ReadProfile) -> str:
    """Return what was read, in a line."""
    profile = read.totals
    working = [d for d in profile.devices if any(a.time_ns for a in d.total.values())]
    devices = f"{read.form}; {len(working)} of {len(profile.devices)} devices did something"
    if profile.span_ns is None:
        return devices
    span = f"{format_ns(profile.span_ns)} in all"
    if not profile.step_ns:
        return f"{devices}; {span}; the profile shows no steps"
    steps = counted(len(profile.step_ns), "step")
    first = ", the first one left out" if profile.warm_up_steps else ""
    step = format_ns(median(profile.step_ns))
    return f"{devices}; {steps} of {step} (by {profile.steps_from}{first}); {span}"


def _devices(profile: ProfileTotals, *, per_step: bool) -> Table:
    """Return what the time of each device went to; exposed parts in brackets."""
    uses = [use for use in DeviceUse if any(d.total[use].time_ns for d in profile.devices)]
    rows, idle = [], []
    for device in profile.devices:
        if any(amount.time_ns for amount in device.total.values()):
            rows.append(_device_row(device, uses, per_step=per_step))
        else:
            idle.append(device.device)
    if idle:
        rows.append([", ".join(idle), *[NOTHING] * (len(uses) + 1)])
    title = f"{'per step' if per_step else 'in all'} (exposed)"
    return Table([title, *uses, "idle"], rows)


def _device_row(device: DeviceTotals, uses: list[DeviceUse], *, per_step: bool) -> list[str]:
    amounts = device.per_step if per_step and device.per_step is not None else device.total
    idle_ns = device.idle_per_step_ns if per_step else device.idle_ns
    cells = []
    for use in uses:
        amount = amounts[use]
        is_known = use is not DeviceUse.COMPUTE and amount.exposed_ns is not None
        exposed = f" ({format_ns(amount.exposed_ns)})" if is_known else ""
        cells.append(f"{format_ns(amount.time_ns)}{exposed}" if amount.time_ns else NOTHING)
    return [device.device, *cells, format_ns(idle_ns)]


def _routes(profile: ProfileTotals) -> Table:
    """Return the copies on each route, in total."""
    columns = ("count", "bytes", "under way", "exposed", "achieved")
    return Table(("copies", *columns), [_route_row(route) for route in profile.routes])


def _route_row(route: RouteTotals) -> list[str]:
    kind = route.route.kind.removeprefix("[").removesuffix("]")
    return [
        f"{route.route.source} → {route.route.target}, {kind}",
        f"{route.count:,}",
        _bytes(route),
        format_ns(route.time_ns),
        f"{format_ns(route.exposed_ns)}, {_part(route.exposed_ns, route.time_ns)}",
        NOTHING if route.bytes_per_s is None else format_bandwidth(route.bytes_per_s),
    ]


def _by_host(profile: ProfileTotals) -> Table:
    """Return the copies between GPUs that went by way of the host, in total."""
    rows = [
        [f"{each.source} → {each.target}", f"{each.count:,}", _bytes(each)]
        for each in profile.by_host
    ]
    return Table(("by way of the host, among these copies", "count", "bytes"), rows)


def _tensors(profile: ProfileTotals) -> Table:
    """Return the tensors whose copies devices waited longest for, in total."""
    longest = profile.tensors[:TOP_TENSORS]
    has_ops = any(each.op is not None for each in longest)
    columns = ("from → to", "copies", "bytes", "exposed", "under way")
    rows = [
        [
            _cut(each.tensor),
            f"{each.route.source} → {each.route.target}",
            f"{each.count:,}",
            _bytes(each),
            format_ns(each.exposed_ns),
            format_ns(each.time_ns),
            *([_cut(each.layer or NOTHING), format_bytes(each.tensor_bytes)] if has_ops else []),
        ]
        for each in longest
    ]
    of_op = ("layer", "one of it") if has_ops else ()
    return Table(("tensor", *columns, *of_op), rows)


def _activities(profile: ProfileTotals) -> Table:
    """Return what took longest, as nvprof printed it, and every kind of copy below that."""
    rows = [[*row.cells[:-1], _cut(row.cells[-1])] for row in activity_rows(profile.activities)]
    return Table(ACTIVITY_HEADINGS, rows, names=(-1,))


def _waits(profile: ProfileTotals) -> Table:
    """Return what devices waited for longest in the steps that count, starting ops summed up."""
    rows = []
    steps_ns = sum(profile.step_ns)
    for device in dict.fromkeys(wait.device for wait in profile.waits):
        mine = [wait for wait in profile.waits if wait.device == device]
        starting_ns = sum(wait.time_ns for wait in mine if wait.cause is Cause.START)
        causes = [(_cause(w), w.time_ns) for w in mine if w.cause is not Cause.START]
        causes.append(("ops to start", starting_ns))
        longest = sorted(causes, key=lambda cause: -cause[1])[:TOP_WAITS]
        rows += [
            [device, cause, format_ns(time_ns), _part(time_ns, steps_ns)]
            for cause, time_ns in longest
            if time_ns
        ]
    return Table(("waiting", "for", "time", "of its steps"), rows)


def _cause(wait: Wait) -> str:
    what = _cut(wait.what)
    match wait.cause:
        case Cause.COPY:
            return f"{what}, copied from {wait.where}"
        case Cause.SENDING:
            return f"{what}, copied to {wait.where}"
        case Cause.OP:
            return f"{what}, an op of {wait.where or 'all'}"
        case Cause.CLIENT:
            return "the client"
        case _:
            return "no cause that the profile shows"


def _remarks(read: ReadProfile) -> list[str]:
    """Return what a reader should know about the figures."""
    profile = read.totals
    found = [_load(profile)]
    found.append(f"{format_share(profile.unclassified_share)} of device time is unclassified")
    if profile.waits:
        shares = ", ".join(f"{d} {s * 100:.1f} %" for d, s in profile.explained_shares.items())
        found.append(f"time in steps that has a named cause: {shares}")
    if read.xprof is not None:
        found.append(
            f"XProf's overview of the same profile: a step of {format_ns(read.xprof.step_ns)}, "
            f"device compute {format_ns(read.xprof.compute_ns)}, device to device "
            f"{format_ns(read.xprof.device_to_device_ns)}, collectives "
            f"{format_ns(read.xprof.collectives_ns)}"
        )
        copied = [use for use in (DeviceUse.PEER, DeviceUse.WITHIN) if _has(profile, use)]
        if copied and not read.xprof.device_to_device_ns:
            found.append(f"XProf counts {' and '.join(copied)} copies as device compute")
    return [*found, *profile.notes]


def _load(profile: ProfileTotals) -> str:
    """Return which devices compute, and how unevenly."""
    load_ns = {d.device: d.total[DeviceUse.COMPUTE].time_ns for d in profile.devices}
    computing = {device: time_ns for device, time_ns in load_ns.items() if time_ns}
    if not computing:
        return "no device computes"
    where = ", ".join(computing)
    if len(computing) < len(load_ns):
        where += f"; nothing on the other {len(load_ns) - len(computing)} of {len(load_ns)} devices"
    ratio = max(computing.values()) / min(computing.values())
    uneven = ""
    if len(computing) > 1:
        uneven = f", the busiest for {ratio:.2f} times as long as the least"
    return f"compute is on {where}{uneven}"


def _has(profile: ProfileTotals, use: DeviceUse) -> bool:
    return any(device.total[use].time_ns for device in profile.devices)


def _bytes(copied: RouteTotals | ByHost | TensorTotals) -> str:
    if copied.of_unknown_size == copied.count:
        return "?"
    unknown = f" + {copied.of_unknown_size} of unknown size" if copied.of_unknown_size else ""
    return f"{format_bytes(copied.size_bytes)}{unknown}"


def _part(part_ns: int, whole_ns: int) -> str:
    return format_share(part_ns / whole_ns if whole_ns else None)


def _cut(text: str) -> str:
    name = one_line(text)
    return name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
