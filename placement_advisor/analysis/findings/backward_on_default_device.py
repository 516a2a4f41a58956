"""PA101: the forward pass is split, and the backward pass stays on the default device.

`tf.GradientTape` gives no device to the ops of the backward pass, whatever the forward pass asked
for, so every activation is sent back. A device is found if forward ops that have a gradient ask for
it and no op of their layers' backward pass does.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.evidence import MIN_SAVING_SHARE, YOUR_SPLIT
from placement_advisor.candidates import towers, towers_forward_only
from placement_advisor.candidates.as_written import (
    as_written,
    default_device,
    kind_of_device,
    layer_devices,
)
from placement_advisor.graph.membership import membership
from placement_advisor.graph.op_graph import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op_graph import OpGraph

CODE = "PA101"
NAME = "backward-on-default-device"
CURE = (
    "compute gradients with tf.gradients(loss, variables) inside the tf.function, which puts them "
    "beside their forward ops, or use placement_advisor.place(step, placement)"
)


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what the user's scopes leave behind, and what splitting by hand would."""
    return (*_in_your_scopes(evidence), *_in_the_candidate(evidence))


def left_behind(graph: OpGraph, requested_device_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the backward ops of layers whose forward ops ask for a device, by that device.

    Only of devices that none of these ops asks for.
    """
    default = default_device(requested_device_of)
    device_of_layer = layer_devices(graph, requested_device_of)
    backward: defaultdict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        device = device_of_layer.get(op.layer or "")
        # An embedding on the host is looked up there, and its gradient is small.
        if (
            op.role is Role.BACKWARD
            and device is not None
            and kind_of_device(device) == kind_of_device(default)
        ):
            backward[device].append(op.name)
    return {
        device: ops
        for device, ops in backward.items()
        if device != default and all(requested_device_of.get(op) != device for op in ops)
    }


def _in_your_scopes(evidence: Evidence) -> tuple[Finding, ...]:
    asked = evidence.requested_device_of
    left = left_behind(evidence.graph, asked)
    if not left:
        return ()
    default = default_device(asked)
    device_of_layer = layer_devices(evidence.graph, asked)
    layer_of = membership(evidence.graph).layer_of
    first = next(
        op for op, device in asked.items() if device in left and layer_of.get(op) in device_of_layer
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding=f"your tf.device scopes put forward ops on {', '.join(sorted(left))}, but "
            f"{sum(map(len, left.values()))} ops of their backward pass have no device and run "
            f"on {default}: every activation is sent back",
            action=CURE,
            where=evidence.where(first, device=asked[first]),
            saving_ns=_saving_if_it_followed(evidence),
        ),
    )


def _saving_if_it_followed(evidence: Evidence) -> int | None:
    """Return what gradients beside their forward ops save; None if that cannot be simulated."""
    own = next((split for split in evidence.splits if split.name == YOUR_SPLIT), None)
    cured = as_written(
        evidence.graph, evidence.requested_device_of, evidence.cluster, backward_follows=True
    )
    if own is None or cured is None:
        return None
    return max(0, evidence.saving_ns(own, cured))


def _in_the_candidate(evidence: Evidence) -> tuple[Finding, ...]:
    """Compare the split that a tape makes of towers with the one whose gradients follow."""
    of_family = {c.family: c for c in evidence.candidates if c.predicted and c.placement}
    by_hand = of_family.get(towers_forward_only.FAMILY)
    following = of_family.get(towers.FAMILY)
    if not (by_hand and following and by_hand.predicted and following.predicted):
        return ()
    step_ns = by_hand.predicted.step_ns
    saving_ns = step_ns - following.predicted.step_ns
    if saving_ns < MIN_SAVING_SHARE * step_ns:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            finding="split by hand with tf.device and tf.GradientTape, this model's backward pass "
            f"would stay on {evidence.cluster.devices[0].name}",
            action=CURE,
            where={"candidate": by_hand.name},
            saving_ns=saving_ns,
            is_hypothetical=evidence.is_hypothetical(by_hand.name),
        ),
    )
