"""Tensors that a profile blames, joined with the op graph of the step: their layers and sizes.

A profile names an edge by the op that makes its tensor, ``edge_42_`` or nothing before it, and not
by its output; the size is known where that op has one output. A size that the profile gives stands.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.recorded.recorded_names import plain
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES

if TYPE_CHECKING:
    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.profile.tensor_totals import TensorTotals
    from placement_advisor.profile.timeline.device_trace import Copied, Trace
    from placement_advisor.profile.totals import ProfileTotals

_EDGE = re.compile(r"^(?:edge|memtype)_\d+_")


def with_sizes(trace: Trace, graph: OpGraph) -> Trace:
    """Return the trace with the graph's sizes of tensors whose copies do not give theirs."""
    found = [_size(_made_by(tensor, graph)) for tensor in trace.tensors]
    # Copies that name no tensor look at the last place.
    sizes = np.array([UNKNOWN_BYTES if size is None else size for size in [*found, None]], np.int64)
    copied = {route: _sized(copied, sizes) for route, copied in trace.copied.items()}
    unknown = (int((each.size_bytes == UNKNOWN_BYTES).sum()) for each in trace.copied.values())
    left = (int((each.size_bytes == UNKNOWN_BYTES).sum()) for each in copied.values())
    if not (known := sum(unknown) - sum(left)):
        return trace
    note = f"sizes of {known:,} copies are those of the graph"
    return replace(trace, copied=copied, notes=(*trace.notes, note))


def with_graph(profile: ProfileTotals, graph: OpGraph) -> ProfileTotals:
    """Return the profile with what the graph knows of its tensors."""
    tensors = tuple(_joined(tensor, graph) for tensor in profile.tensors)
    known = sum(tensor.op is not None for tensor in tensors)
    note = f"{known} of {len(tensors)} tensors are in the graph"
    return replace(profile, tensors=tensors, notes=(*profile.notes, note))


def _sized(copied: Copied, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Copied:
    own = copied.size_bytes
    return replace(copied, size_bytes=np.where(own == UNKNOWN_BYTES, sizes[copied.tensor], own))


def _joined(tensor: TensorTotals, graph: OpGraph) -> TensorTotals:
    op = _made_by(tensor.tensor, graph)
    if op is None:
        return tensor
    return replace(tensor, op=op.name, layer=op.layer, tensor_bytes=_size(op))


def _made_by(tensor: str, graph: OpGraph) -> Op | None:
    names = (tensor, _EDGE.sub("", tensor), plain(_EDGE.sub("", tensor)))
    name = next((name for name in names if name in graph), None)
    return None if name is None else graph.op(name)


def _size(op: Op | None) -> int | None:
    """Return the size of the op's only output, None if it has another number, or is none."""
    return op.output_bytes[0] if op is not None and len(op.output_bytes) == 1 else None
