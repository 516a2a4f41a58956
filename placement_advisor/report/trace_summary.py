"""What a traced step holds, as text: one fact a line, names last, so that none is cut.

A sum in which parts are missing says so; what is not known at all is "unknown".
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import first_names
from placement_advisor.report.analysis.tables import one_line
from placement_advisor.units import format_bytes, format_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from placement_advisor.graph.graph_summary import ControlFlow, GraphSummary, LargeTensor
    from placement_advisor.graph.host_ops import HostKind
    from placement_advisor.graph.partial_sums import Total
    from placement_advisor.tf.answers import Traced

# As many as are read at a glance; JSON has more.
_ROWS = 5
_NAMES = 3
_UNKNOWN = "unknown"
_LABEL = 13
# Would be rounded to 0.0 %, which is something else.
_TINY_SHARE = 0.0005


def render_trace(traced: Traced, summary: GraphSummary, *, model_path: str, graph_file: str) -> str:
    """Return the text, headed by what was traced and where its graph is."""
    mode = "training step" if traced.mode == "train" else "inference"
    head = [
        one_line(f"{model_path}: {traced.name}, {mode}, batch {traced.batch_size or _UNKNOWN}"),
        fact("chosen", one_line(traced.chosen)),
    ]
    if left_out := traced.left_out.told():
        head.append(fact("left out", one_line("; ".join(left_out))))
    return "\n".join(head) + "\n" + render_graph(summary, graph_file=graph_file)


def render_graph(summary: GraphSummary, *, graph_file: str) -> str:
    """Return the text, headed by the file that the graph is in."""
    head = fact("graph", f"{one_line(graph_file)}, fingerprint {summary.fingerprint}")
    return f"{head}\n{render_summary(summary)}"


def render_summary(summary: GraphSummary) -> str:
    """Return the text, without a heading."""
    parts = [list(_facts(summary)), *_tables(summary)]
    return "\n\n".join("\n".join(map(str.rstrip, part)) for part in parts if part) + "\n"


def _facts(summary: GraphSummary) -> Iterator[str]:
    roles = ", ".join(f"{count} {role.value}" for role, count in summary.ops_by_role.items())
    yield fact("ops", f"{summary.ops}: {roles}" if roles else "none")
    yield fact(
        "layers",
        f"{summary.layers}; {_floor_share(summary.ops_with_layer_share)} of the ops that compute "
        "belong to one",
    )
    edges = summary.data_edges
    yield fact(
        "edges",
        f"{edges.parts} with a tensor, bytes known for {_floor_share(edges.known_share)}; "
        f"{_count(summary.control_edges, 'only orders its ends', 'only order their ends')}",
    )
    parameters = f"{_sized(summary.parameters, 'variable')} read by the forward pass"
    if summary.state.parts:
        parameters += f"; {_sized(summary.state, 'other')} (optimizer slots, metrics, counters)"
    yield fact("parameters", parameters)
    yield fact("constants", f"{summary.constants.parts}, {_total(summary.constants, format_bytes)}")
    # A loop can hold whole training steps.
    where = " outside loops" if any(op.is_loop for op in summary.control_flow) else ""
    nothing = f"in all, there is no backward pass{where}"
    kept = "kept for the backward pass" if summary.trains else nothing
    yield fact("activations", f"{_sized(summary.activations, 'forward tensor')} {kept}")
    flops = f"{_total(summary.flops, format_flops)} per step; known for "
    flops += f"{_floor_share(summary.flops.known_share)} of the ops that compute"
    if summary.flops_known_bytes_share is not None:
        flops += f", which access {_floor_share(summary.flops_known_bytes_share)} of the bytes"
    yield fact("flops", flops)
    yield fact(
        "bytes",
        f"{_total(summary.bytes_accessed, format_bytes)} accessed per step; known for "
        f"{_floor_share(summary.bytes_accessed.known_share)} of the ops that compute",
    )


def _tables(summary: GraphSummary) -> Iterator[list[str]]:
    tensors = [(format_bytes(t.size_bytes), _tensor(t)) for t in summary.largest_tensors[:_ROWS]]
    if tensors:
        yield ["largest tensors", *aligned(tensors)]
    kinds = [
        (
            str(kind.ops),
            _total(kind.flops, format_flops),
            _share(kind.flops_share),
            _total(kind.bytes_accessed, format_bytes),
            _share(kind.bytes_share),
            one_line(kind.kind),
        )
        for kind in summary.kinds[:_ROWS]
    ]
    if kinds:
        heading = ("ops", "flops", "share", "bytes", "share", "kind")
        yield [
            "heaviest kinds, by share of the flops or of the bytes accessed",
            *aligned([heading, *kinds]),
        ]
    yield [_clean(text) for text in _structure(summary)]
    if summary.host_only:
        ops = sum(kind.ops for kind in summary.host_only)
        yield [
            f"ops without a GPU kernel: {ops}; they run on the host",
            *aligned([(str(k.ops), _host_kind(k)) for k in summary.host_only[:_ROWS]]),
            *_more(len(summary.host_only), _ROWS),
        ]
    else:
        yield ["ops without a GPU kernel: none"]
    if summary.control_flow:
        yield [
            f"control flow: {len(summary.control_flow)}",
            *(f"  {_control_flow(op)}" for op in summary.control_flow[:_ROWS]),
            *_more(len(summary.control_flow), _ROWS),
        ]
    else:
        yield ["control flow: none"]


def _structure(summary: GraphSummary) -> Iterator[str]:
    """Yield what was found, that of most layers first."""
    yield from _first(
        "towers",
        [
            (_size(join.towers), f"{len(join.towers)} towers meet in {join.layer}", join.towers)
            for join in summary.joins
        ],
    )
    yield from _first(
        "parallel branches",
        [
            (
                _size(region.branches),
                f"{_count(len(region.branches), 'branch', 'branches')}"
                f"{' and a direct way' if region.direct else ''}"
                f" from {region.fork} to {region.join}",
                region.branches,
            )
            for region in summary.branches
        ],
    )
    yield from _first(
        "repeated blocks",
        [
            (_size(repeat.blocks), f"{len(repeat.blocks)} alike blocks in a row", repeat.blocks)
            for repeat in summary.repeats
        ],
    )


def _first(what: str, found: Sequence[tuple[int, str, Sequence[Sequence[str]]]]) -> Iterator[str]:
    if not found:
        yield f"{what}: none"
        return
    yield f"{what}: {len(found)}"
    for _, text, groups in sorted(found, key=lambda item: -item[0])[:_NAMES]:
        yield f"  {text}: {_runs(groups)}"
    yield from _more(len(found), _NAMES)


def _size(groups: Sequence[Sequence[str]]) -> int:
    return sum(map(len, groups))


def _runs(groups: Sequence[Sequence[str]]) -> str:
    """Return each group by its first and last layer, and how many layers it has."""
    return names(
        [
            f"{group[0]} (1 layer)"
            if len(group) == 1
            else f"{group[0]} to {group[-1]} ({len(group)} layers)"
            for group in groups
        ]
    )


def _count(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _tensor(tensor: LargeTensor) -> str:
    layer = f", layer {tensor.layer}" if tensor.layer is not None else ""
    return one_line(f"{tensor.op}:{tensor.port} ({tensor.kind}, {tensor.role.value}{layer})")


def _host_kind(kind: HostKind) -> str:
    text = kind.kind
    if kind.layers:
        text += f" in {names(kind.layers)}"
    if kind.bound_ops:
        bound = _count(kind.bound_ops, "more op stays", "more ops stay")
        text += f"; {bound} with a variable or table that they share"
    if kind.crossing.parts:
        text += f"; {_total(kind.crossing, format_bytes)} to and from ops that have one"
    return one_line(text)


def _control_flow(op: ControlFlow) -> str:
    text = f"{op.kind} {op.op}"
    text += f", layer {op.layer}" if op.layer is not None else f", {op.role.value}"
    if op.is_loop:
        trips = f"trips {_UNKNOWN}" if op.trips is None else _count(op.trips, "trip", "trips")
        text += f", {trips}"
    else:
        text += ", one branch runs"
    text += f", {_part(op.flops_share, 'flops')}, {_part(op.bytes_share, 'bytes')}"
    return one_line(text)


def _clean(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return " " * indent + one_line(text)


def names(given: Sequence[str]) -> str:
    """Return the first names, and how many there are beyond them."""
    return first_names(given, _NAMES)


def fact(label: str, text: str) -> str:
    """Return a line that begins with what it tells."""
    return f"{label:<{_LABEL}}{text}"


def _more(count: int, shown: int) -> list[str]:
    return [f"  and {count - shown} more"] if count > shown else []


def _sized(total: Total, noun: str) -> str:
    """Return a count and a size: ``3 variables, 1.25 MB``."""
    plural = "" if total.parts == 1 or noun == "other" else "s"
    if not total.parts:
        return f"no {noun}s"
    return f"{total.parts} {noun}{plural}, {_total(total, format_bytes)}"


def _total(total: Total, form: Callable[[int], str]) -> str:
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


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return rows as lines with all cells but the last aligned to the right."""
    given = list(rows)
    widths = [max(map(len, column)) for column in zip(*given, strict=True)]
    return [
        "  "
        + "  ".join(
            [*(cell.rjust(w) for cell, w in zip(row[:-1], widths[:-1], strict=True)), row[-1]]
        )
        for row in given
    ]
