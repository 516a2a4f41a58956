"""PA101 to PA105: ops and variables that run elsewhere than the `tf.device` scopes suggest.

PA101: `tf.GradientTape` gives no device to the ops of the backward pass, unless gradients are
taken in a `tf.device` scope: then all of them ask for its device. PA102: an op without a GPU
kernel is pinned to a GPU; TensorFlow runs it on the CPU (soft placement), or refuses the step.
PA103: a device reads a variable of another device in every step. PA104: TensorFlow moves ops, as
seen in executed graphs; ops of one variable to the variable; and a product with its bias on
another device, which Grappler's remapper fuses. PA105: a scope around layers of a functional
model, which Keras forgets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Finding
from placement_advisor.analysis.findings.evidence import (
    YOUR_SPLIT,
    SplitFinding,
    SplitMove,
    layer_ops,
    with_variables,
)
from placement_advisor.candidates import towers
from placement_advisor.candidates.references import default_device, kind_of_device, layer_devices
from placement_advisor.graph.layer_view import membership
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.op import KERNEL_FREE_ROLES, Op, Role
from placement_advisor.graph.op_work.movement import VARIABLE_READ_KINDS
from placement_advisor.graph.slow_patterns import host_kinds
from placement_advisor.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.findings.evidence import Evidence, Split
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.schedule import Transfer


BACKWARD_ACTION = (
    "compute gradients with tf.gradients(loss, variables) inside the tf.function, which places "
    "them with their forward ops, or use placement_advisor.place(step, placement)"
)
_LEAVE_BACKWARD = (
    "leave the backward pass where it is: moving it to its forward ops is not sure to make the "
    "step shorter (simulated)"
)


def find_backward_on_default_device(evidence: Evidence) -> Iterator[Finding | SplitFinding]:
    """Return what the user's scopes leave behind, and what splitting by hand would."""
    yield from _in_your_scopes(evidence)
    yield from _in_the_candidate(evidence)


def backward_ops_left_behind(
    graph: OpGraph, requested_device_of: Mapping[str, str]
) -> dict[str, list[str]]:
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


def _in_your_scopes(evidence: Evidence) -> Iterator[Finding | SplitFinding]:
    asked = evidence.traced.requested_device_of
    left = backward_ops_left_behind(evidence.graph, asked)
    if not left:
        return
    ops = [op for each in left.values() for op in each]
    finding = (
        f"your tf.device scopes put forward ops on {', '.join(sorted(left))}, but "
        f"{'; '.join(_causes_of_backward(evidence, ops))}: every activation is sent back"
    )
    where = _where_of_backward(evidence, left, ops)
    own = next((split for split in evidence.splits if split.name == YOUR_SPLIT), None)
    if own is None:
        yield Finding(finding=finding, action=BACKWARD_ACTION, where=where)
        return
    yield SplitFinding(
        split=own,
        finding=finding,
        moves=(SplitMove(BACKWARD_ACTION, where, gradients=tuple(ops)),),
        otherwise=_LEAVE_BACKWARD,
        where=where,
    )


def _causes_of_backward(evidence: Evidence, ops: Sequence[str]) -> Iterator[str]:
    """Say for each device how many of the ops run on it, and why."""
    asked = evidence.traced.requested_device_of
    count = Counter(asked.get(op) for op in ops)
    several = "ops of their backward pass"
    for device, number in sorted(count.items(), key=lambda each: (-each[1], each[0] or "")):
        if device is None:
            yield f"{number} {several} have no device and run on {default_device(asked)}"
            continue
        scopes = (evidence.traced.scope_of.get(op) for op in ops if asked.get(op) == device)
        lines = dict.fromkeys(f"{scope[0]}:{scope[1]}" for scope in scopes if scope is not None)
        around = f", by your tf.device scope around the gradients ({', '.join(lines)})"
        yield f"{number} {several} ask for {device}{around if lines else ''}"


def _where_of_backward(
    evidence: Evidence, left: Mapping[str, Sequence[str]], ops: Sequence[str]
) -> dict[str, str | int]:
    """Return the scope around the gradients where that is the cause, else what lost them."""
    asked = evidence.traced.requested_device_of
    scoped = next((op for op in ops if op in evidence.traced.scope_of), None)
    if scoped is not None:
        where = evidence.where(scoped, device=asked[scoped])
        where["file"], where["line"] = evidence.traced.scope_of[scoped]
        return where
    device_of_layer = layer_devices(evidence.graph, asked)
    layer_of = membership(evidence.graph).layer_of
    first = next(
        op for op, device in asked.items() if device in left and layer_of.get(op) in device_of_layer
    )
    return evidence.where(first, device=asked[first])


def _in_the_candidate(evidence: Evidence) -> Iterator[SplitFinding]:
    """Compare the split that a tape makes of towers with the one whose gradients follow."""
    by_hand = evidence.of_family(towers.TOWERS_FORWARD_ONLY)
    following = evidence.of_family(towers.TOWERS)
    if by_hand is None or following is None:
        return
    before, where = by_hand.placement.device_of, {"candidate": by_hand.name}
    elsewhere = {
        op: device for op, device in following.placement.device_of.items() if before[op] != device
    }
    yield SplitFinding(
        split=by_hand,
        finding="split by hand with tf.device and tf.GradientTape, this model's backward pass "
        f"would stay on {evidence.cluster.devices[0].name}",
        moves=(SplitMove(BACKWARD_ACTION, where, elsewhere),),
        where=where,
    )


_GPU = "GPU"


def find_no_gpu_kernel(evidence: Evidence) -> Iterator[Finding]:
    """Return a finding for each kind of op that is pinned so."""
    pinned: defaultdict[str, list[str]] = defaultdict(list)
    for op in evidence.graph.ops:
        asked = evidence.traced.requested_device_of.get(op.name)
        if asked is None or kind_of_device(asked) != _GPU or op.role in KERNEL_FREE_ROLES:
            continue
        if _GPU not in op.device_kinds:
            pinned[op.kind].append(op.name)
    crossing = {found.kind: found.crossing_bytes for found in host_kinds(evidence.graph)}
    for kind, ops in pinned.items():
        device = evidence.traced.requested_device_of[ops[0]]
        size = format_bytes(crossing[kind].known)
        yield Finding(
            finding=f"{device} has no kernel for {kind} ({counted(len(ops), 'op')} in your "
            f"tf.device scope): the CPU runs it instead. At least {size} per step cross "
            "to and from the GPU",
            action=f"leave {kind} out of the tf.device scope, best in the input pipeline; "
            "tf.config.set_soft_device_placement(False) makes such ops an error",
            where=evidence.where(ops[0], device=device),
        )


# Each is simulated several times; what a reader will look at are the largest.
MAX_VARIABLES = 3


def find_variable_read_across(evidence: Evidence) -> Iterator[SplitFinding]:
    """Return the largest variables that are read across, by split.

    Of several that one move brings together, as kernel and bias of a layer, the move is told once.
    """
    for split in evidence.splits:
        for copy in _largest_reads(evidence, split):
            yield _variable_found(evidence, split, copy)


def _largest_reads(evidence: Evidence, split: Split) -> list[Transfer]:
    reads = [
        copy
        for copy in split.schedule.transfers
        if copy.size_bytes and evidence.graph.op(copy.producer).kind in VARIABLE_READ_KINDS
    ]
    return sorted(reads, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))[:MAX_VARIABLES]


def _variable_found(evidence: Evidence, split: Split, copy: Transfer) -> SplitFinding:
    """Return what was found, and how to bring the variable and its readers together."""
    graph, device_of = evidence.graph, split.placement.device_of
    variable = graph.op(copy.producer).variable
    readers = [
        graph.op(edge.consumer)
        for edge in graph.outputs_of(copy.producer)
        if device_of.get(edge.consumer) == copy.target
    ]
    layers = dict.fromkeys(reader.layer for reader in readers if reader.layer is not None)
    ways = [
        (f"variable {variable}", [copy.producer], copy.target),
        *((f"layer {layer}", layer_ops(graph, layer), copy.source) for layer in layers),
    ]
    where = evidence.where(copy.producer, tensor=copy.tensor, device=copy.target)
    return SplitFinding(
        split=split,
        finding=f"{split.name}: variable {variable} ({format_bytes(copy.size_bytes)}) is "
        f"on {copy.source} and is read on {copy.target} every step",
        moves=tuple(
            SplitMove(f"put {what} on {device}", where, with_variables(graph, ops, device))
            for what, ops, device in ways
        ),
        where=where,
    )


# A line of a report holds no more names.
MAX_MOVED_NAMED = 3
_FUSED_BEFORE_BIAS = frozenset({"MatMul", "Conv2D", "Conv3D", "DepthwiseConv2dNative"})
_BIAS_KIND = "BiasAdd"


def find_moved_by_tensorflow(evidence: Evidence) -> Iterator[Finding]:
    """Return what was seen to move, and what the user's scopes will see moved."""
    yield from _moves_seen(evidence)
    yield from _torn_from_variables(evidence)
    yield from _fused_apart(evidence)


def _moves_seen(evidence: Evidence) -> Iterator[Finding]:
    for candidate in evidence.candidates:
        moved = candidate.measured.moved_ops if candidate.measured else ()
        if moved:
            yield Finding(
                finding=f"{candidate.name}: TensorFlow moved {len(moved)} ops "
                f"({first_names(moved, MAX_MOVED_NAMED)})",
                action="put these ops where TensorFlow runs them, or use ops that have kernels "
                "on that device: until then the measurement is of another placement",
                where={"op": moved[0].partition(": ")[0], "candidate": candidate.name},
                is_hypothetical=evidence.is_hypothetical(candidate.name),
            )


def _torn_from_variables(evidence: Evidence) -> Iterator[Finding]:
    """Find variables whose ops ask for several devices; all run where the variable is."""
    asking: defaultdict[str, dict[str, Op]] = defaultdict(dict)
    for op in evidence.graph.ops:
        device = evidence.traced.requested_device_of.get(op.name)
        if op.variable is not None and device is not None:
            asking[op.variable].setdefault(device, op)
    for variable, by_device in asking.items():
        if len(by_device) > 1:
            asked = " and ".join(sorted(by_device))
            yield Finding(
                finding=f"ops that touch variable {variable} ask for {asked}: TensorFlow runs all "
                "of them where the variable is, without a word",
                action="use the variable in one tf.device scope alone, and create it there",
                where=evidence.where(next(reversed(by_device.values())).name),
            )


def _fused_apart(evidence: Evidence) -> Iterator[Finding]:
    """Find products with one reader, a bias that is to be added on another device."""
    asked, graph = evidence.traced.requested_device_of, evidence.graph
    pairs = []
    for op in graph.ops:
        if op.kind != _BIAS_KIND or op.name not in asked:
            continue
        product = next((e.producer for e in graph.inputs_of(op.name) if not e.is_control), op.name)
        apart = asked.get(product) not in (None, asked[op.name])
        readers = [edge for edge in graph.outputs_of(product) if not edge.is_control]
        if apart and graph.op(product).kind in _FUSED_BEFORE_BIAS and len(readers) == 1:
            pairs.append((product, op.name))
    if not pairs:
        return
    product, bias = pairs[0]
    yield Finding(
        finding=f"{len(pairs)} products have their bias on another device ({product} on "
        f"{asked[product]}, {bias} on {asked[bias]}): Grappler fuses such pairs into one op",
        action="keep a product and its bias in one tf.device scope, or switch the remapper off "
        'with tf.config.optimizer.set_experimental_options({"remapping": False})',
        where=evidence.where(bias, device=asked[bias]),
    )


_MAX_LAYERS_SHOWN = 3


def find_scope_without_effect(evidence: Evidence) -> Iterator[Finding]:
    """Return each such scope."""
    named = {scope.layers[0]: scope.device for scope in evidence.traced.dropped_scopes}
    default = default_device({**evidence.traced.requested_device_of, **named})
    for scope in evidence.traced.dropped_scopes:
        if scope.device == default:
            continue
        layers = ", ".join(scope.layers[:_MAX_LAYERS_SHOWN])
        if len(scope.layers) > _MAX_LAYERS_SHOWN:
            layers += f" and {len(scope.layers) - _MAX_LAYERS_SHOWN} more"
        where: dict[str, str | int] = {"layer": scope.layers[0], "device": scope.device}
        if scope.line is not None:
            where["file"], where["line"] = scope.line
        yield Finding(
            finding=f"your tf.device scope puts {layers} on {scope.device}, but a Keras "
            f"functional model forgets it: their ops have no device and run on {default}",
            action="call them in a layer of your own whose call() opens the scope "
            "(advisor explain PA105 shows one)",
            where=where,
        )
