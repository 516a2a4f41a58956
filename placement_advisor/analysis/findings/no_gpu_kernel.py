"""PA102: an op is pinned to a GPU, but has no GPU kernel for its types.

TensorFlow runs it on the CPU without a word (soft placement), or refuses the step.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.candidates.references import kind_of_device
from placement_advisor.graph.op import KERNEL_FREE_ROLES
from placement_advisor.graph.op_patterns import host_kinds
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA102"
NAME = "no-gpu-kernel"
_GPU = "GPU"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding for each kind of op that is pinned so."""
    pinned: defaultdict[str, list[str]] = defaultdict(list)
    for op in evidence.graph.ops:
        asked = evidence.requested_device_of.get(op.name)
        if asked is None or kind_of_device(asked) != _GPU or op.role in KERNEL_FREE_ROLES:
            continue
        if _GPU not in op.device_kinds:
            pinned[op.kind].append(op.name)
    crossing = {found.kind: found.crossing for found in host_kinds(evidence.graph)}
    findings = []
    for kind, ops in pinned.items():
        device = evidence.requested_device_of[ops[0]]
        size = format_bytes(crossing[kind].known)
        findings.append(
            Finding(
                code=CODE,
                name=NAME,
                finding=f"{kind} ({len(ops)} of them) pinned to {device}, which has no kernel for "
                f"it: TensorFlow runs it on the CPU, and at least {size} per step cross between "
                "it and ops on the GPU",
                action="leave these ops out of the tf.device scope, best in the input pipeline; "
                "tf.config.set_soft_device_placement(False) makes such ops an error",
                where=evidence.where(ops[0], device=device),
            )
        )
    return tuple(findings)
