"""The boxes and arrows of a layer picture: the layer view, few enough to read.

Left out: the backward pass, and layers without forward ops.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.graph_summary import read_variables
from placement_advisor.graph.layer_view import LayerView, depth_for, layer_view, total_bytes
from placement_advisor.graph.membership import membership
from placement_advisor.graph.op import BRANCH_KINDS, LOOP_KINDS
from placement_advisor.graph.partial_sums import Total
from placement_advisor.report.pictures.layer_merge import merge_to
from placement_advisor.report.pictures.layer_parts import Parts, layer_parts
from placement_advisor.units import format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

# More boxes than this do not fit a screen at a size that can be read.
MAX_BOXES = 60
# Fewer say little. Then the next depth is drawn, with chains of layers as one box.
_FEW_BOXES = 8
# A shorter common beginning of names says nothing.
_MIN_COMMON = 4
# Shares below take a digit more; below the second, that would be rounded to 0.0.
_SMALL_SHARE = 0.1
_TINY_SHARE = 0.0005


class Group(StrEnum):
    """What a layer mainly does, by the kinds of its forward ops."""

    CONTROL_FLOW = "loop or branch"
    CONVOLUTION = "convolution"
    MATRIX = "matrix product"
    LOOKUP = "lookup"
    OTHER = "other"


# Parts of the names of kinds; a layer belongs to the first group of which it has a kind.
_MARKS = {
    Group.CONVOLUTION: ("Conv",),
    Group.MATRIX: ("MatMul", "Einsum"),
    Group.LOOKUP: ("Gather", "Lookup", "SparseSegment"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A layer, or several.

    ``group_shares`` are the parts that devices, or groups of layers, have in the box.
    """

    name: str
    texts: tuple[str, ...]
    group_shares: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """The forward tensors from one box to another; None where the size of any is unknown."""

    source: int
    target: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBoxes:
    """All that a picture shows; ``groups`` are in the order of the legend."""

    title: str
    note: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    groups: tuple[str, ...]


def layer_boxes(
    graph: OpGraph, title: str, *, depth: int | None = None, placement: Placement | None = None
) -> LayerBoxes:
    """Return what to draw of a graph: layers to a depth of their paths, `MAX_BOXES` at most.

    Without a depth, the largest that shows no more boxes than that. Boxes belong to devices if
    there is a placement, else to what their layers do.

    Raises:
        AdvisorError: there is nothing to draw.
    """
    chosen = _readable_depth(graph) if depth is None else depth
    view = layer_view(graph, chosen)
    parts = layer_parts(graph, view)
    if not parts.parts:
        raise AdvisorError(f"{title}: nothing to draw: the graph has no forward ops")
    groups = merge_to(
        len(parts.parts), [ends for ends in parts.edges if ends[0] < ends[1]], MAX_BOXES
    )
    box_of = {part: box for box, group in enumerate(groups) for part in group}
    arrows: dict[tuple[int, int], list[int | None]] = {}
    for (source, target), size_bytes in parts.edges.items():
        if box_of[source] != box_of[target]:
            arrows.setdefault((box_of[source], box_of[target]), []).append(size_bytes)
    facts = _facts(graph, view, parts, placement)
    legend = sorted(set(placement.device_of.values())) if placement else list(map(str, Group))
    used = {group for fact in facts for group in fact.groups}
    step_flops = sum(op.flops or 0 for op in graph.ops)
    return LayerBoxes(
        title=f"{title}, placed as in {placement.label}" if placement else title,
        note=_note(parts, len(groups), _collapsed(graph, view, chosen)),
        boxes=tuple(
            _box([facts[i] for i in group], step_flops, names_groups=placement is not None)
            for group in groups
        ),
        arrows=tuple(
            Arrow(source=source, target=target, size_bytes=total_bytes(sizes))
            for (source, target), sizes in sorted(arrows.items())
        ),
        groups=tuple(group for group in legend if group in used),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """What a box says of a part; ``groups`` weighs its colours.

    The first part of a layer has all of its layer's parameters and flops: of the backward pass
    nobody knows which part it serves.
    """

    name: str
    parameter_bytes: int
    flops: Total
    groups: Mapping[str, int]


def _readable_depth(graph: OpGraph) -> int | None:
    depth = depth_for(graph, MAX_BOXES)
    if depth is None or len(layer_view(graph, depth).forward_layers()) >= _FEW_BOXES:
        return depth
    return depth + 1


def _facts(
    graph: OpGraph, view: LayerView, parts: Parts, placement: Placement | None
) -> list[_Fact]:
    drawn = {part.layer for part in parts.parts}
    parameter_bytes: Counter[str] = Counter()
    for op in read_variables(graph):
        readers = view.membership.readers.get(op.variable or "", ())
        first = next((layer for layer in readers if layer in drawn), None)
        if first is not None:
            parameter_bytes[first] += op.parameter_bytes
    flops = {layer.name: layer.flops for layer in view.layers}
    facts = []
    for part in parts.parts:
        is_first = part.number == 1
        its_flops = flops[part.layer] if is_first else Total.of([])
        if placement is None:
            group = _group({graph.op(name).kind for name in part.ops})
            groups = {str(group): 1 + its_flops.known}
        else:
            groups = dict(Counter(placement.device_of[name] for name in part.ops))
        facts.append(
            _Fact(
                name=part.layer if is_first else f"{part.layer} #{part.number}",
                parameter_bytes=parameter_bytes[part.layer] if is_first else 0,
                flops=its_flops,
                groups=groups,
            )
        )
    return facts


def _group(kinds: Iterable[str]) -> Group:
    given = set(kinds)
    if given & (LOOP_KINDS | BRANCH_KINDS):
        return Group.CONTROL_FLOW
    for group, marks in _MARKS.items():
        if any(mark in kind for kind in given for mark in marks):
            return group
    return Group.OTHER


def _box(facts: Sequence[_Fact], step_flops: int, *, names_groups: bool) -> Box:
    groups: Counter[str] = Counter()
    for fact in facts:
        groups.update(fact.groups)
    parameter_bytes = sum(fact.parameter_bytes for fact in facts)
    texts = [f"{len(facts)} layers"] if len(facts) > 1 else []
    if parameter_bytes:
        texts.append(format_bytes(parameter_bytes))
    texts.append(_flops_text(facts, step_flops))
    lines = [" · ".join(texts)]
    if names_groups:
        lines.append(_shares_text(groups))
    return Box(
        name=facts[0].name if len(facts) == 1 else _common_name([fact.name for fact in facts]),
        texts=tuple(lines),
        group_shares={group: count / groups.total() for group, count in sorted(groups.items())},
    )


def _flops_text(facts: Sequence[_Fact], step_flops: int) -> str:
    known = [fact.flops.amount for fact in facts if fact.flops.amount is not None]
    if not known or not step_flops:
        return "flops unknown"
    share = sum(known) / step_flops
    if not any(fact.flops.parts for fact in facts):
        return "counted in its first part"
    if 0 < share < _TINY_SHARE:
        return "< 0.1 % of flops"
    if 0 < share < _SMALL_SHARE:
        return f"{share * 100:.1f} % of flops"
    return f"{format_share(share)} of flops"


def _shares_text(groups: Counter[str]) -> str:
    """Return where most ops are, and what share of them if not all."""
    device, count = min(groups.items(), key=lambda item: (-item[1], item[0]))
    return device if len(groups) == 1 else f"{device} {format_share(count / groups.total())}"


def _common_name(names: Sequence[str]) -> str:
    """Return how all names begin, or the first and the last of them."""
    low, high = min(names), max(names)
    length = next(
        (i for i, pair in enumerate(zip(low, high, strict=False)) if len(set(pair)) > 1), 0
    )
    if length >= _MIN_COMMON:
        return f"{low[:length]}*"
    return f"{names[0]} to {names[-1]}"


def _collapsed(graph: OpGraph, view: LayerView, depth: int | None) -> int | None:
    """Return the depth if it hides any layer."""
    if depth is None:
        return None
    layers = set(membership(graph).layer_of.values())
    return depth if layers != set(view.membership.layer_of.values()) else None


def _note(parts: Parts, boxes: int, depth: int | None) -> str:
    note = "Boxes: parameters, share of the step's flops. Arrows: forward tensors."
    if depth is not None:
        note += f" Layers to depth {depth} of their paths."
    if boxes < len(parts.parts):
        note += f" {len(parts.parts)} layers in {boxes} boxes: neighbours share one."
    if any(part.number > 1 for part in parts.parts):
        note += " Layer #2: the same layer after what it wraps."
    return note
