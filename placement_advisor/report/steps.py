"""One step is described here as text: traced or profiled.

Texts have one fact a line with names last, so that no name is cut. A sum in which parts are
missing says so; what is not known is "unknown".
"""

from __future__ import annotations

from itertools import chain
from math import floor
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor import units
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.profile.device_trace import Cause, DeviceUse, Wait
from placement_advisor.report import document
from placement_advisor.report.statements import ACTIVITY_HEADINGS, activity_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from placement_advisor.graph.graph_summary import ControlFlow, GraphSummary, LargeTensor
    from placement_advisor.graph.op import Total
    from placement_advisor.graph.slow_patterns import HostKind
    from placement_advisor.profile import totals
    from placement_advisor.tf.answers import Traced


# As many as are read at a glance; JSON has more.
_ROWS = 5
_NAMES = 3
_UNKNOWN = "unknown"
# Would be rounded to 0.0 %, which is something else.
_TINY_SHARE = 0.0005


def render_trace(traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str) -> str:
    """Return the text, headed by what was traced and where its graph is."""
    mode = "training step" if traced.mode == "train" else "inference"
    facts = [("chosen", traced.chosen)]
    if left_out := traced.left_out.told():
        facts.append(("left out", "; ".join(left_out)))
    head = f"{model_path}: {traced.name}, {mode}, batch {traced.batch_size or _UNKNOWN}"
    return _text(summary, head, *facts, _graph(summary, graph_file))


def render_graph(summary: GraphSummary, *, graph_file: str) -> str:
    """Return the text, headed by the file that the graph is in."""
    return _text(summary, "", _graph(summary, graph_file))


def _graph(summary: GraphSummary, graph_file: str) -> tuple[str, str]:
    return "graph", f"{graph_file}, fingerprint {summary.graph_fingerprint}"


def _text(summary: GraphSummary, head: str, *facts: tuple[str, str]) -> str:
    first = document.Section("", [head, document.Facts([*facts, *_facts(summary)])])
    return document.as_text([first, *_tables(summary)])


def _facts(summary: GraphSummary) -> Iterator[tuple[str, str]]:
    roles = ", ".join(f"{count} {role.value}" for role, count in summary.ops_by_role.items())
    yield "ops", f"{summary.ops}: {roles}" if roles else "none"
    yield (
        "layers",
        f"{summary.layers}; {_floor_share(summary.ops_with_layer_share)} of the ops that compute "
        "belong to one",
    )
    edges = summary.edge_bytes
    yield (
        "edges",
        f"{edges.parts} with a tensor, bytes known for {_floor_share(edges.known_share)}; "
        f"{_count(summary.control_edges, 'only orders its ends', 'only order their ends')}",
    )
    parameters = f"{_sized(summary.parameter_bytes, 'variable')} read by the forward pass"
    if summary.state_bytes.parts:
        parameters += (
            f"; {_sized(summary.state_bytes, 'other')} (optimizer slots, metrics, counters)"
        )
    yield "parameters", parameters
    yield (
        "constants",
        f"{summary.constant_bytes.parts}, {total_text(summary.constant_bytes, units.format_bytes)}",
    )
    # A loop can hold whole training steps.
    where = " outside loops" if any(op.is_loop for op in summary.control_flow) else ""
    nothing = f"in all, there is no backward pass{where}"
    kept = "kept for the backward pass" if summary.trains else nothing
    yield "activations", f"{_sized(summary.activation_bytes, 'forward tensor')} {kept}"
    flops = f"{total_text(summary.flops, units.format_flops)} per step; known for "
    flops += f"{_floor_share(summary.flops.known_share)} of the ops that compute"
    if summary.flops_known_bytes_share is not None:
        flops += f", which access {_floor_share(summary.flops_known_bytes_share)} of the bytes"
    yield "flops", flops
    yield (
        "bytes",
        f"{total_text(summary.bytes_accessed, units.format_bytes)} accessed per step; known for "
        f"{_floor_share(summary.bytes_accessed.known_share)} of the ops that compute",
    )


def _tables(summary: GraphSummary) -> Iterator[document.Part]:
    tensors = [
        (units.format_bytes(t.size_bytes), _tensor(t)) for t in summary.largest_tensors[:_ROWS]
    ]
    yield document.Section("largest tensors", [document.Table(("", ""), tensors, names=(-1,))])
    kinds = [
        (
            str(kind.ops),
            total_text(kind.flops, units.format_flops),
            _share(kind.flops_share),
            total_text(kind.bytes_accessed, units.format_bytes),
            _share(kind.bytes_accessed_share),
            kind.kind,
        )
        for kind in summary.kinds[:_ROWS]
    ]
    columns = ("ops", "flops", "share", "bytes", "share", "kind")
    title = "heaviest kinds, by share of the flops or of the bytes accessed"
    yield document.Section(title, [document.Table(columns, kinds, names=(-1,))])
    yield document.Section("", _structure(summary))
    host = [(str(kind.ops), _host_kind(kind)) for kind in summary.host_only[:_ROWS]]
    ops = sum(kind.ops for kind in summary.host_only)
    more = _more(len(summary.host_only), _ROWS)
    listed: list[document.Part] = (
        [document.Table(("", ""), host, names=(-1,)), *more] if host else []
    )
    yield _listed("ops without a GPU kernel", f"{ops}; they run on the host", listed)
    flows = summary.control_flow
    shown = [*map(_control_flow, flows[:_ROWS]), *_more(len(flows), _ROWS)]
    yield _listed("control flow", str(len(flows)), shown)


def _listed(what: str, told: str, parts: Sequence[document.Part]) -> document.Part:
    """Return what was found in a section, or that nothing was in a line."""
    return document.Section(f"{what}: {told}", parts) if parts else f"{what}: none"


def _structure(summary: GraphSummary) -> Iterator[document.Part]:
    """Yield what was found, that of most layers first."""
    yield _first(
        "towers",
        [
            (f"{len(join.towers)} towers meet in {join.layer}", join.towers)
            for join in summary.joins
        ],
    )
    yield _first(
        "parallel branches",
        [
            (
                f"{_count(len(region.branches), 'branch', 'branches')}"
                f"{' and a direct way' if region.direct else ''}"
                f" from {region.fork} to {region.join}",
                region.branches,
            )
            for region in summary.parallel_branches
        ],
    )
    repeats = [repeat.blocks for repeat in summary.repeated_blocks]
    yield _first("repeated blocks", [(f"{len(r)} alike blocks in a row", r) for r in repeats])


def _first(what: str, found: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> document.Part:
    """Return what has most layers, and how many there are beyond."""
    largest = sorted(found, key=lambda each: -sum(map(len, each[1])))[:_NAMES]
    lines = [f"{text}: {_runs(groups)}" for text, groups in largest]
    return _listed(what, str(len(found)), [*lines, *_more(len(found), _NAMES)])


def _runs(groups: Sequence[Sequence[str]]) -> str:
    """Return each group by its first and last layer, and how many layers it has."""
    runs = [
        f"{group[0]} (1 layer)"
        if len(group) == 1
        else f"{group[0]} to {group[-1]} ({len(group)} layers)"
        for group in groups
    ]
    return first_names(runs, _NAMES)


def _count(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _tensor(tensor: LargeTensor) -> str:
    layer = f", layer {tensor.layer}" if tensor.layer is not None else ""
    return f"{tensor.op}:{tensor.port} ({tensor.kind}, {tensor.role.value}{layer})"


def _host_kind(kind: HostKind) -> str:
    text = kind.kind
    if kind.layers:
        text += f" in {first_names(kind.layers, _NAMES)}"
    if kind.bound_ops:
        bound = _count(kind.bound_ops, "more op stays", "more ops stay")
        text += f"; {bound} with a variable or table that they share"
    if kind.crossing_bytes.parts:
        text += (
            f"; {total_text(kind.crossing_bytes, units.format_bytes)} to and from ops that have one"
        )
    return text


def _control_flow(op: ControlFlow) -> str:
    text = f"{op.kind} {op.op}"
    text += f", layer {op.layer}" if op.layer is not None else f", {op.role.value}"
    if op.is_loop:
        trips = f"trips {_UNKNOWN}" if op.trips is None else _count(op.trips, "trip", "trips")
        text += f", {trips}"
    else:
        text += ", one branch runs"
    text += f", {_part(op.flops_share, 'flops')}, {_part(op.bytes_accessed_share, 'bytes')}"
    return text


def _more(count: int, shown: int) -> list[str]:
    return [f"and {count - shown} more"] if count > shown else []


def _sized(total: Total, noun: str) -> str:
    """Return a count and a size: ``3 variables, 1.25 MB``."""
    plural = "" if total.parts == 1 or noun == "other" else "s"
    if not total.parts:
        return f"no {noun}s"
    return f"{total.parts} {noun}{plural}, {total_text(total, units.format_bytes)}"


def total_text(total: Total, form: Callable[[int], str]) -> str:
    """Return a sum, at least which it is where parts are missing."""
    if total.amount is None:
        return _UNKNOWN
    return f"at least {form(total.amount)}" if total.unknown else form(total.amount)


def _share(share: float | None) -> str:
    if share is None:
        return _UNKNOWN
    return "< 0.1 %" if 0 < share < _TINY_SHARE else f"{share * 100:.1f} %"


def _part(share: float | None, what: str) -> str:
    return f"{what} {_UNKNOWN}" if share is None else f"{_share(share)} of {what}"


def _floor_share(share: float) -> str:
    """Return a share that is 100 % only if nothing is missing."""
    return f"{floor(share * 1000) / 10:g} %"


_OF_TENSORS = (
    "exposed: what receives it computes nothing meanwhile. Copies that are exposed at once share "
    "the time."
)
_OF_WAITS = (
    "waiting: a gap between ops counts for the tensors that arrive in it, one after another. Time "
    "until a tensor is sent counts for the op that makes it, the rest for its copy."
)
TOP_TENSORS = 10
TOP_WAITS = 6
# Names of kernels are whole C++ signatures.
_NAME_CHARS = 100


def render_profile(read: totals.ReadProfile) -> str:
    """Return the text."""
    head = document.Section("", [f"{read.totals.path}: {_headline(read)}", read.which or ""])
    return document.as_text(
        [head, *chain(*_profile_tables(read.totals).values()), document.Section("", _remarks(read))]
    )


def profile_as_markdown(read: totals.ReadProfile) -> str:
    """Return the page."""
    which = [] if read.which is None else [f"{read.which}."]
    parts: list[document.Part] = [f"{_headline(read)}.", *which]
    parts += [
        document.Section(title, tables) for title, tables in _profile_tables(read.totals).items()
    ]
    parts.append(document.Section("To know", [document.Bullets(_remarks(read))]))
    return f"# {document.escape(read.totals.path)}\n\n{document.as_markdown(parts)}"


def _profile_tables(profile: totals.ProfileTotals) -> dict[str, list[document.Part]]:
    """Return the tables by their titles, and below two of them what they count."""
    return {
        **({"Per step": [_device_table(profile, per_step=True)]} if profile.step_ns else {}),
        "In all": [_device_table(profile, per_step=False)],
        "Copies": [_routes(profile)],
        "By way of the host": [_by_host(profile)],
        "Tensors": [_tensors(profile), _OF_TENSORS if profile.tensors else ""],
        "Waiting": [_waits(profile), _OF_WAITS if profile.waits else ""],
        "Activities": [_activities(profile)],
    }


def _headline(read: totals.ReadProfile) -> str:
    """Return what was read, in a line."""
    profile = read.totals
    working = [d for d in profile.devices if any(a.time_ns for a in d.total.values())]
    devices = f"{read.form}; {len(working)} of {len(profile.devices)} devices did something"
    if profile.span_ns is None:
        return devices
    span = f"{units.format_ns(profile.span_ns)} in all"
    if not profile.step_ns:
        return f"{devices}; {span}; the profile shows no steps"
    steps = units.counted(len(profile.step_ns), "step")
    first = ", the first one left out" if profile.warm_up_steps else ""
    step = units.format_ns(median(profile.step_ns))
    return f"{devices}; {steps} of {step} (by {profile.steps_from}{first}); {span}"


def _device_table(profile: totals.ProfileTotals, *, per_step: bool) -> document.Table:
    """Return what the time of each device went to; exposed parts in brackets."""
    uses = [use for use in DeviceUse if any(d.total[use].time_ns for d in profile.devices)]
    rows, idle = [], []
    for device in profile.devices:
        if any(amount.time_ns for amount in device.total.values()):
            rows.append(_device_row(device, uses, per_step=per_step))
        else:
            idle.append(device.device)
    if idle:
        rows.append([", ".join(idle), *[document.NOTHING] * (len(uses) + 1)])
    title = f"{'per step' if per_step else 'in all'} (exposed)"
    return document.Table([title, *uses, "idle"], rows)


def _device_row(device: totals.DeviceTotals, uses: list[DeviceUse], *, per_step: bool) -> list[str]:
    amounts = device.per_step if per_step and device.per_step is not None else device.total
    idle_ns = device.idle_per_step_ns if per_step else device.idle_ns
    cells = []
    for use in uses:
        amount = amounts[use]
        is_known = use is not DeviceUse.COMPUTE and amount.exposed_ns is not None
        exposed = f" ({units.format_ns(amount.exposed_ns)})" if is_known else ""
        cells.append(
            f"{units.format_ns(amount.time_ns)}{exposed}" if amount.time_ns else document.NOTHING
        )
    return [device.device, *cells, units.format_ns(idle_ns)]


def _routes(profile: totals.ProfileTotals) -> document.Table:
    """Return the copies on each route, in total."""
    columns = ("count", "bytes", "under way", "exposed", "achieved")
    return document.Table(("copies", *columns), [_route_row(route) for route in profile.routes])


def _route_row(route: totals.RouteTotals) -> list[str]:
    kind = route.route.kind.removeprefix("[").removesuffix("]")
    return [
        f"{route.route.source} → {route.route.target}, {kind}",
        f"{route.count:,}",
        _bytes(route),
        units.format_ns(route.time_ns),
        f"{units.format_ns(route.exposed_ns)}, {_share_text(route.exposed_ns, route.time_ns)}",
        document.NOTHING
        if route.bytes_per_s is None
        else units.format_bandwidth(route.bytes_per_s),
    ]


def _by_host(profile: totals.ProfileTotals) -> document.Table:
    """Return the copies between GPUs that went by way of the host, in total."""
    rows = [
        [f"{each.source} → {each.target}", f"{each.count:,}", _bytes(each)]
        for each in profile.by_host
    ]
    return document.Table(("by way of the host, among these copies", "count", "bytes"), rows)


def _tensors(profile: totals.ProfileTotals) -> document.Table:
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
            units.format_ns(each.exposed_ns),
            units.format_ns(each.time_ns),
            *(
                [_cut(each.layer or document.NOTHING), units.format_bytes(each.tensor_bytes)]
                if has_ops
                else []
            ),
        ]
        for each in longest
    ]
    of_op = ("layer", "one of it") if has_ops else ()
    return document.Table(("tensor", *columns, *of_op), rows)


def _activities(profile: totals.ProfileTotals) -> document.Table:
    """Return what took longest, as nvprof printed it, and every kind of copy below that."""
    rows = [[*row.cells[:-1], _cut(row.cells[-1])] for row in activity_rows(profile.activities)]
    return document.Table(ACTIVITY_HEADINGS, rows, names=(-1,))


def _waits(profile: totals.ProfileTotals) -> document.Table:
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
            [device, cause, units.format_ns(time_ns), _share_text(time_ns, steps_ns)]
            for cause, time_ns in longest
            if time_ns
        ]
    return document.Table(("waiting", "for", "time", "of its steps"), rows)


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
            return "the profile shows no cause"


def _remarks(read: totals.ReadProfile) -> list[str]:
    """Return what a reader should know about the figures."""
    profile = read.totals
    found = [_load(profile)]
    found.append(f"{units.format_share(profile.unclassified_share)} of device time is unclassified")
    if profile.waits:
        shares = ", ".join(f"{d} {s * 100:.1f} %" for d, s in profile.explained_shares.items())
        found.append(f"time in steps that has a named cause: {shares}")
    if read.xprof is not None:
        found.append(
            f"XProf's overview of the same profile: a step of "
            f"{units.format_ns(read.xprof.step_ns)}, "
            f"device compute {units.format_ns(read.xprof.compute_ns)}, device to device "
            f"{units.format_ns(read.xprof.device_to_device_ns)}, collectives "
            f"{units.format_ns(read.xprof.collectives_ns)}"
        )
        copied = [use for use in (DeviceUse.PEER, DeviceUse.WITHIN) if _has(profile, use)]
        if copied and not read.xprof.device_to_device_ns:
            found.append(f"XProf counts {' and '.join(copied)} copies as device compute")
    return [*found, *profile.notes]


def _load(profile: totals.ProfileTotals) -> str:
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


def _has(profile: totals.ProfileTotals, use: DeviceUse) -> bool:
    return any(device.total[use].time_ns for device in profile.devices)


def _bytes(copied: totals.RouteTotals | totals.ByHost | totals.TensorTotals) -> str:
    if copied.of_unknown_size == copied.count:
        return "?"
    unknown = f" + {copied.of_unknown_size} of unknown size" if copied.of_unknown_size else ""
    return f"{units.format_bytes(copied.size_bytes)}{unknown}"


def _share_text(part_ns: int, whole_ns: int) -> str:
    return units.format_share(part_ns / whole_ns if whole_ns else None)


def _cut(text: str) -> str:
    name = document.one_line(text)
    return name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
