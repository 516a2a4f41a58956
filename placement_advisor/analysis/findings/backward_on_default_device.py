"""PA101: the forward pass is split, and the backward pass stays on another device.

`tf.GradientTape` gives no device to the ops of the backward pass, whatever the forward pass asked
for, unless gradients are taken in a `tf.device` scope: then all of them ask for its device. Either
way every activation is sent back. A device is found if forward ops that have a gradient ask for it
and no op of their layers' backward pass does; which of both causes it is, each op's request tells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.evidence import YOUR_SPLIT, Split
from placement_advisor.analysis.findings.moves import InSplit, Move
from placement_advisor.candidates import towers
from placement_advisor.candidates.references import default_device, kind_of_device, layer_devices
from placement_advisor.graph.layer_view import membership
from placement_advisor.graph.op import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.findings.evidence import Evidence
    from placement_advisor.graph.op_graph import OpGraph

CODE = "PA101"
NAME = "backward-on-default-device"
CURE = (
    "compute gradients with tf.gradients(loss, variables) inside the tf.function, which puts them "
    "beside their forward ops, or use placement_advisor.place(step, placement)"
)
_LEAVE = (
    "leave the backward pass where it is: beside its forward ops it does not surely make the step "
    "shorter (simulated)"
)


def find(evidence: Evidence) -> tuple[Finding | InSplit, ...]:
    """Return what the user's scopes leave behind, and what splitting by hand would."""
    return (*_in_your_scopes(evidence), *_in_the_candidate(evidence))


def left_behind(graph: OpGraph, requested_device_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the backward ops of layers whose forward ops ask for a device, by that device.

    Only of devices that none of these ops asks for. Ops that take a variable are not among them:
    they run where it stands.
    """
    default = default_device(requested_device_of)
    device_of_layer = layer_devices(graph, requested_device_of)
    backward: defaultdict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        device = device_of_layer.get(op.layer or "")
        # An embedding on the host is looked up there, and its gradient is small.
        if (
            op.role is Role.BACKWARD
            and op.variable is None
            and device is not None
            and kind_of_device(device) == kind_of_device(default)
        ):
            backward[device].append(op.name)
    return {
        device: ops
        for device, ops in backward.items()
        if device != default and all(requested_device_of.get(op) != device for op in ops)
    }


def _in_your_scopes(evidence: Evidence) -> tuple[Finding | InSplit, ...]:
    asked = evidence.requested_device_of
    left = left_behind(evidence.graph, asked)
    if not left:
        return ()
    ops = [op for each in left.values() for op in each]
    finding = (
        f"your tf.device scopes put forward ops on {', '.join(sorted(left))}, but "
        f"{'; '.join(_causes(evidence, ops))}: every activation is sent back"
    )
    where = _where(evidence, left, ops)
    own = next((split for split in evidence.splits if split.name == YOUR_SPLIT), None)
    if own is None:
        return (Finding(code=CODE, name=NAME, finding=finding, action=CURE, where=where),)
    return (
        InSplit(
            code=CODE,
            name=NAME,
            split=own,
            finding=finding,
            moves=(Move(CURE, where, gradients=tuple(ops)),),
            otherwise=_LEAVE,
            where=where,
        ),
    )


def _causes(evidence: Evidence, ops: Sequence[str]) -> Iterator[str]:
    """Say for each device how many of the ops run on it, and why."""
    asked = evidence.requested_device_of
    count = Counter(asked.get(op) for op in ops)
    several = "ops of their backward pass"
    for device, number in sorted(count.items(), key=lambda each: (-each[1], each[0] or "")):
        if device is None:
            yield f"{number} {several} have no device and run on {default_device(asked)}"
            continue
        scopes = (evidence.scope_of.get(op) for op in ops if asked.get(op) == device)
        lines = dict.fromkeys(f"{scope[0]}:{scope[1]}" for scope in scopes if scope is not None)
        around = f", by your tf.device scope around the gradients ({', '.join(lines)})"
        yield f"{number} {several} ask for {device}{around if lines else ''}"


def _where(
    evidence: Evidence, left: Mapping[str, Sequence[str]], ops: Sequence[str]
) -> dict[str, str | int]:
    """Return the scope around the gradients where that is the cause, else what lost them."""
    asked = evidence.requested_device_of
    scoped = next((op for op in ops if op in evidence.scope_of), None)
    if scoped is not None:
        where = evidence.where(scoped, device=asked[scoped])
        where["file"], where["line"] = evidence.scope_of[scoped]
        return where
    device_of_layer = layer_devices(evidence.graph, asked)
    layer_of = membership(evidence.graph).layer_of
    first = next(
        op for op, device in asked.items() if device in left and layer_of.get(op) in device_of_layer
    )
    return evidence.where(first, device=asked[first])


def _in_the_candidate(evidence: Evidence) -> tuple[InSplit, ...]:
    """Compare the split that a tape makes of towers with the one whose gradients follow."""
    of_family = {c.family: c for c in evidence.candidates if c.predicted and c.placement}
    by_hand = of_family.get(towers.TOWERS_FORWARD_ONLY)
    following = of_family.get(towers.TOWERS)
    if not (by_hand and following and by_hand.predicted):
        return ()
    if by_hand.placement is None or following.placement is None:
        return ()
    before, where = by_hand.placement.device_of, {"candidate": by_hand.name}
    elsewhere = {
        op: device for op, device in following.placement.device_of.items() if before[op] != device
    }
    return (
        InSplit(
            code=CODE,
            name=NAME,
            split=Split(
                by_hand.name,
                by_hand.placement,
                by_hand.predicted,
                evidence.is_hypothetical(by_hand.name),
            ),
            finding="split by hand with tf.device and tf.GradientTape, this model's backward pass "
            f"would stay on {evidence.cluster.devices[0].name}",
            moves=(Move(CURE, where, elsewhere),),
            where=where,
        ),
    )
