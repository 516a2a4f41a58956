"""What a traced step holds, as text: one fact a line, names last, so that none is cut.

A sum in which parts are missing says so; what is not known at all is "unknown".
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import first_names
from placement_advisor.report.document import Facts, Section, Table, as_text
from placement_advisor.units import format_bytes, format_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from placement_advisor.graph.graph_summary import ControlFlow, GraphSummary, LargeTensor
    from placement_advisor.graph.op import Total
    from placement_advisor.graph.op_patterns import HostKind
    from placement_advisor.report.document import Part
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


def render_summary(summary: GraphSummary) -> str:
    """Return the text, without a heading."""
    return _text(summary, "")


def _graph(summary: GraphSummary, graph_file: str) -> tuple[str, str]:
    return "graph", f"{graph_file}, fingerprint {summary.fingerprint}"


def _text(summary: GraphSummary, head: str, *facts: tuple[str, str]) -> str:
    first = Section("", [head, Facts([*facts, *_facts(summary)])])
    return as_text([first, *_tables(summary)])


def _facts(summary: GraphSummary) -> Iterator[tuple[str, str]]:
    roles = ", ".join(f"{count} {role.value}" for role, count in summary.ops_by_role.items())
    yield "ops", f"{summary.ops}: {roles}" if roles else "none"
    yield (
        "layers",
        f"{summary.layers}; {_floor_share(summary.ops_with_layer_share)} of the ops that compute "
        "belong to one",
    )
    edges = summary.data_edges
    yield (
        "edges",
        f"{edges.parts} with a tensor, bytes known for {_floor_share(edges.known_share)}; "
        f"{_count(summary.control_edges, 'only orders its ends', 'only order their ends')}",
    )
    parameters = f"{_sized(summary.parameters, 'variable')} read by the forward pass"
    if summary.state.parts:
        parameters += f"; {_sized(summary.state, 'other')} (optimizer slots, metrics, counters)"
    yield "parameters", parameters
    yield "constants", f"{summary.constants.parts}, {total_text(summary.constants, format_bytes)}"
    # A loop can hold whole training steps.
    where = " outside loops" if any(op.is_loop for op in summary.control_flow) else ""
    nothing = f"in all, there is no backward pass{where}"
    kept = "kept for the backward pass" if summary.trains else nothing
    yield "activations", f"{_sized(summary.activations, 'forward tensor')} {kept}"
    flops = f"{total_text(summary.flops, format_flops)} per step; known for "
    flops += f"{_floor_share(summary.flops.known_share)} of the ops that compute"
    if summary.flops_known_bytes_share is not None:
        flops += f", which access {_floor_share(summary.flops_known_bytes_share)} of the bytes"
    yield "flops", flops
    yield (
        "bytes",
        f"{total_text(summary.bytes_accessed, format_bytes)} accessed per step; known for "
        f"{_floor_share(summary.bytes_accessed.known_share)} of the ops that compute",
    )


def _tables(summary: GraphSummary) -> Iterator[Part]:
    tensors = [(format_bytes(t.size_bytes), _tensor(t)) for t in summary.largest_tensors[:_ROWS]]
    yield Section("largest tensors", [Table(("", ""), tensors, names=(-1,))])
    kinds = [
        (
            str(kind.ops),
            total_text(kind.flops, format_flops),
            _share(kind.flops_share),
            total_text(kind.bytes_accessed, format_bytes),
            _share(kind.bytes_share),
            kind.kind,
        )
        for kind in summary.kinds[:_ROWS]
    ]
    columns = ("ops", "flops", "share", "bytes", "share", "kind")
    title = "heaviest kinds, by share of the flops or of the bytes accessed"
    yield Section(title, [Table(columns, kinds, names=(-1,))])
    yield Section("", _structure(summary))
    host = [(str(kind.ops), _host_kind(kind)) for kind in summary.host_only[:_ROWS]]
    ops = sum(kind.ops for kind in summary.host_only)
    more = _more(len(summary.host_only), _ROWS)
    listed: list[Part] = [Table(("", ""), host, names=(-1,)), *more] if host else []
    yield _listed("ops without a GPU kernel", f"{ops}; they run on the host", listed)
    flows = summary.control_flow
    shown = [*map(_control_flow, flows[:_ROWS]), *_more(len(flows), _ROWS)]
    yield _listed("control flow", str(len(flows)), shown)


def _listed(what: str, told: str, parts: Sequence[Part]) -> Part:
    """Return what was found in a section, or that nothing was in a line."""
    return Section(f"{what}: {told}", parts) if parts else f"{what}: none"


def _structure(summary: GraphSummary) -> Iterator[Part]:
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
            for region in summary.branches
        ],
    )
    repeats = [repeat.blocks for repeat in summary.repeats]
    yield _first("repeated blocks", [(f"{len(r)} alike blocks in a row", r) for r in repeats])


def _first(what: str, found: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> Part:
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
    if kind.crossing.parts:
        text += f"; {total_text(kind.crossing, format_bytes)} to and from ops that have one"
    return text


def _control_flow(op: ControlFlow) -> str:
    text = f"{op.kind} {op.op}"
    text += f", layer {op.layer}" if op.layer is not None else f", {op.role.value}"
    if op.is_loop:
        trips = f"trips {_UNKNOWN}" if op.trips is None else _count(op.trips, "trip", "trips")
        text += f", {trips}"
    else:
        text += ", one branch runs"
    text += f", {_part(op.flops_share, 'flops')}, {_part(op.bytes_share, 'bytes')}"
    return text


def _more(count: int, shown: int) -> list[str]:
    return [f"and {count - shown} more"] if count > shown else []


def _sized(total: Total, noun: str) -> str:
    """Return a count and a size: ``3 variables, 1.25 MB``."""
    plural = "" if total.parts == 1 or noun == "other" else "s"
    if not total.parts:
        return f"no {noun}s"
    return f"{total.parts} {noun}{plural}, {total_text(total, format_bytes)}"


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
