"""PA305: a GPU with units for halves computes its products in float32.

Model: one device, simulated with the forward and backward pass in halves
(`cost/gpu/mixed_precision`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.cost.gpu.mixed_precision import (
    casts_ns,
    computes_in_float32,
    policy_for,
    with_policy,
)
from placement_advisor.tf.answers import MIXED_PRECISION
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from placement_advisor.analysis.findings.evidence import Evidence

CODE = "PA305"
NAME = "plain-float32"


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return a finding if one device would gain by mixed precision."""
    assumed = evidence.assumed
    is_mixed = MIXED_PRECISION in evidence.left_out.settings
    if assumed is None or is_mixed or not computes_in_float32(evidence.graph):
        return ()
    policy = policy_for(assumed.gpu)
    if policy is None:
        return ()
    mixed_ns = assumed.step_ns(with_policy(evidence.graph, policy))
    mixed_ns += casts_ns(evidence.graph, assumed.device, assumed.gpu)
    saving = assumed.saving(mixed_ns)
    if saving is None:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"products are in float32: one {assumed.device.gpu} would take "
            f"{format_ns(mixed_ns)} for a step in place of {format_ns(assumed.now_ns)} with "
            f"forward and backward pass in {policy.value}, by times that are assumed",
            action=f"try keras.mixed_precision.set_global_policy('mixed_{policy.value}') on one "
            "device before splitting, and compare the loss",
            where={},
            saving=saving,
        ),
    )
