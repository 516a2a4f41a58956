"""PA306: a GPU writes down and launches what XLA would compute in passing.

Model: one device, simulated with elementwise ops as one with the op that alone reads them
(`graph/elementwise_trees`). A program that XLA compiles has that already: then what is found is not
what it would save, but what a split has to beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.op import COMPUTING_ROLES
from placement_advisor.graph.op_patterns import with_trees_as_one
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op_graph import OpGraph

CODE = "PA306"
NAME = "unfused-elementwise"
_NAMED = 3


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if one device would gain by fusing elementwise ops."""
    assumed = evidence.assumed
    if assumed is None or evidence.calls_python:
        return ()
    fused = with_trees_as_one(evidence.graph)
    fused_ns = assumed.step_ns(fused)
    saving = assumed.saving(fused_ns)
    if saving is None:
        return ()
    fewer = len(evidence.graph) - len(fused)
    takes = (
        f"one {assumed.device.gpu} would then take {format_ns(fused_ns)} for a step in place of "
        f"{format_ns(assumed.now_ns)}, by times that are assumed"
    )
    compare = (
        "XLA ignores devices within a step, so a split by ops gives it up: compare splits with "
        "what one device takes then"
    )
    finding = f"{fewer} elementwise ops could be one with the op that reads them: {takes}"
    action = (
        "compile the step on one device with jit_compile=True, which Keras' fit does by itself on "
        f"GPUs{_outside(evidence.graph)}; {compare}"
    )
    if evidence.left_out.has_xla:
        finding = (
            f"your program has XLA make {fewer} elementwise ops one with the op that reads them, "
            f"which is left out of all steps here: {takes}"
        )
        action, saving = compare, None
    return (Finding(code=CODE, name=NAME, finding=finding, action=action, where={}, saving=saving),)


def _outside(graph: OpGraph) -> str:
    """Say which kinds no GPU computes, and so no XLA either."""
    kinds = {
        op.kind for op in graph.ops if op.role in COMPUTING_ROLES and "GPU" not in op.device_kinds
    }
    if not kinds:
        return ""
    return f" (not with {first_names(sorted(kinds), _NAMED)} in it, which no GPU computes)"
