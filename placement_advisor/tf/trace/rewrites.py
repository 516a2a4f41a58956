"""Rewrites that make a flat graph free to be placed, without changing what it computes.

Orders that bind devices together for nothing are loosened: what constants wait for, outputs that
wait for updates, gradients that meet in one op only to be passed on. Each takes nodes, may change
their inputs, and returns the nodes that stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    from placement_advisor.tf.trace.nodes import Node

_SUMMARY_KINDS = frozenset(
    {
        "WriteSummary",
        "WriteScalarSummary",
        "WriteHistogramSummary",
        "WriteImageSummary",
        "WriteAudioSummary",
        "WriteGraphSummary",
        "WriteRawProtoSummary",
        "FlushSummaryWriter",
    }
)


def summaries(nodes: Iterable[Node]) -> set[str]:
    """Return the ops that write summaries for TensorBoard, and what only they read.

    They change no result, and their writer lives in the process that has made it.
    """
    nodes = list(nodes)
    writing = {node.name for node in nodes if node.kind in _SUMMARY_KINDS}
    if not writing:
        return set()
    read_by: dict[str, set[str]] = {}
    for node in nodes:
        for producer, _ in node.inputs:
            read_by.setdefault(producer.name, set()).add(node.name)
    for node in reversed(nodes):
        if node.name in read_by and read_by[node.name] <= writing:
            writing.add(node.name)
    return writing


def without(nodes: Iterable[Node], names: Collection[str]) -> list[Node]:
    """Return the nodes but for those named; nothing waits for these any more."""
    nodes = [node for node in nodes if node.name not in names]
    for node in nodes:
        if names and any(before.name in names for before in node.controls):
            node.controls = [before for before in node.controls if before.name not in names]
    return nodes


def lift_control_inputs_of_constants(nodes: Iterable[Node], fixed: Container[int] = ()) -> None:
    """Hand what a constant waits for to its readers, so that constants can stand anywhere.

    The nodes in ``fixed``, by their `id`, keep what they have: a constant in a v1 loop is in the
    loop by what it waits for.
    """
    lifted: dict[int, list[Node]] = {}

    def waits(constant: Node) -> list[Node]:
        """Return what a constant waits for that is not a constant itself."""
        if id(constant) not in lifted:
            found = [
                wait
                for before in constant.controls
                for wait in (waits(before) if before.kind == "Const" else [before])
            ]
            lifted[id(constant)] = _distinct(found)
        return lifted[id(constant)]

    nodes = [node for node in nodes if id(node) not in fixed]
    for node in nodes:
        if node.kind == "Const":
            continue
        read = [p for p, _ in node.inputs if p.kind == "Const" and p.controls]
        read += [before for before in node.controls if before.kind == "Const"]
        if read:
            added = [wait for constant in read for wait in waits(constant)]
            kept = [before for before in node.controls if before.kind != "Const"]
            node.controls = _distinct([*kept, *added])
    for node in nodes:
        if node.kind == "Const":
            node.controls = []


def drop_barriers(
    nodes: Iterable[Node], outputs: Collection[str], targets: Collection[str]
) -> list[Node]:
    """Let outputs go without waiting for updates that run anyway.

    A tf.function makes its outputs wait for all its side effects, through one NoOp on one device:
    a signal from every update on every other device. Runners wait for all targets themselves.
    """
    keep = {*outputs, *targets}
    nodes = list(nodes)
    for node in nodes:
        if node.name in outputs:
            node.controls = []
    nodes = _without_unread_barriers(nodes, keep)
    for node in nodes:
        if node.controls and any(_is_idle(before) for before in node.controls):
            node.controls = [before for before in node.controls if not _is_idle(before)]
    return _without_unread_barriers(nodes, keep)


def bypass_identities(
    nodes: Iterable[Node], outputs: Collection[str], targets: Sequence[str]
) -> tuple[list[Node], tuple[str, ...]]:
    """Let readers of an op that only passes tensors on read what it was given.

    That is IdentityN: Keras sends all dense gradients of a step through one (a sum over replicas,
    of which there is one), so on two devices every gradient would cross to it and back. And the
    Identity ops that inlining leaves at the borders of a function. Outputs stay. Returns the nodes
    that stay, and the targets; a call among them is replaced by the side effects that it waited
    for.
    """
    nodes = list(nodes)
    bypassed = {
        id(node)
        for node in nodes
        if (node.kind == "IdentityN" or _is_border(node)) and node.name not in outputs
    }
    if not bypassed:
        return nodes, tuple(targets)

    def source(producer: Node, port: int) -> tuple[Node, int, list[Node]]:
        """Return the tensor behind a tensor, and the ops to wait for on the way to it."""
        waits: list[Node] = []
        while id(producer) in bypassed:
            waits += [wait for before in producer.controls for wait in stays(before)]
            producer, port = producer.inputs[port]
        return producer, port, waits

    def stays(node: Node) -> list[Node]:
        """Return the ops that stay and that an op which goes has waited for, or the op itself."""
        if id(node) not in bypassed:
            return [node]
        return [wait for before in node.before() for wait in stays(before)]

    for node in nodes:
        if bypassed.isdisjoint([id(before) for before in node.before()]):
            continue
        found = [source(producer, port) for producer, port in node.inputs]
        waits = [wait for before in node.controls for wait in stays(before)]
        waits += [wait for _, _, on_the_way in found for wait in on_the_way]
        node.inputs = [(producer, port) for producer, port, _ in found]
        needless = {id(producer) for producer, _ in node.inputs}
        node.controls = _distinct([wait for wait in waits if id(wait) not in needless])
    by_name = {node.name: node for node in nodes}
    kept: list[str] = []
    for target in targets:
        node = by_name[target]
        effects = [w for before in node.controls for w in stays(before)]
        kept += sorted({e.name for e in effects}) if id(node) in bypassed else [target]
    return [node for node in nodes if id(node) not in bypassed], tuple(dict.fromkeys(kept))


def drop_unread_reads(nodes: Iterable[Node], outputs: Collection[str]) -> list[Node]:
    """Leave out reads of variables whose value nobody takes; what they waited for is kept.

    A tf.function keeps them, and lets later updates wait for them.
    """
    nodes = list(nodes)
    taken = {id(producer) for node in nodes for producer, _ in node.inputs}
    unread = {
        id(node)
        for node in nodes
        if node.kind == "ReadVariableOp" and id(node) not in taken and node.name not in outputs
    }

    def stays(node: Node) -> list[Node]:
        if id(node) not in unread:
            return [node]
        return [wait for before in node.controls for wait in stays(before)]

    for node in nodes:
        if node.controls and any(id(before) in unread for before in node.controls):
            node.controls = _distinct([wait for before in node.controls for wait in stays(before)])
    return [node for node in nodes if id(node) not in unread]


def _without_unread_barriers(nodes: list[Node], keep: Collection[str]) -> list[Node]:
    if not any(node.kind == "NoOp" for node in nodes):
        return nodes
    read = {id(before) for node in nodes for before in node.controls}
    return [n for n in nodes if n.kind != "NoOp" or id(n) in read or n.name in keep]


def _is_border(node: Node) -> bool:
    return node.kind == "Identity" and node.name.startswith("Func/")


def _is_idle(node: Node) -> bool:
    return node.kind == "NoOp" and not node.controls


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes without repetition, by name: the order in a graph is an accident."""
    return sorted({id(node): node for node in nodes}.values(), key=lambda node: node.name)
