"""Tensors that a profile blames, joined with the op graph of the step: their layers and sizes.

A profile names an edge by the op that makes its tensor, ``edge_42_`` or nothing before it, and not
by its output; the size is known where that op has one output.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.profile.recorded.recorded_names import plain

if TYPE_CHECKING:
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.profile.totals import ProfileTotals, TensorTotals

_EDGE = re.compile(r"^(?:edge|memtype)_\d+_")


def with_graph(profile: ProfileTotals, graph: OpGraph) -> ProfileTotals:
    """Return the profile with what the graph knows of its tensors."""
    tensors = tuple(_joined(tensor, graph) for tensor in profile.tensors)
    known = sum(tensor.op is not None for tensor in tensors)
    note = f"{known} of {len(tensors)} tensors are in the graph"
    return replace(profile, tensors=tensors, notes=(*profile.notes, note))


def _joined(tensor: TensorTotals, graph: OpGraph) -> TensorTotals:
    names = (tensor.tensor, _EDGE.sub("", tensor.tensor), plain(_EDGE.sub("", tensor.tensor)))
    name = next((name for name in names if name in graph), None)
    if name is None:
        return tensor
    op = graph.op(name)
    sizes = op.output_bytes
    return replace(
        tensor, op=name, layer=op.layer, tensor_bytes=sizes[0] if len(sizes) == 1 else None
    )
