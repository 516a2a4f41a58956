"""Rewrites that make a traced graph flat and free to be placed, without changing what it computes.

Function calls are inlined by TensorFlow's own function optimizer; loops and conditionals stay
single ops. Orders that bind devices together for nothing are loosened: what constants wait for,
outputs that wait for updates, gradients that meet in one op only to be passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.grappler import tf_optimizer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

# XLA would ignore devices inside a call, and the others keep a call from being inlined. Colocation
# names ops as they were before they were inlined and renamed; a placement keeps state together.
_UNWANTED = ("_XlaMustCompile", "_noinline", "_XlaHasReferenceVars", "api_implements", "_class")


def inline(graph_def: Any, keep: Iterable[str], tag: str) -> Any:
    """Return the graph with all calls inlined; ``keep`` names ops that must survive.

    What is inlined inherits the attribute ``tag`` of its call.
    """
    tags = {node.name: node.attr[tag] for node in graph_def.node if tag in node.attr}
    graph_def = convert_to_constants.disable_lower_using_switch_merge(graph_def)
    for holder in _attribute_holders(graph_def):
        for attribute in _UNWANTED:
            holder.attr.pop(attribute, None)
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(sorted(keep))
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.optimizers.append("function")
    flat = tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False)
    for node in flat.node:
        node.attr.pop("_class", None)  # Inlining writes new wishes for colocation.
        call = node.name
        while tags and tag not in node.attr and call:
            call = call.rpartition("/")[0]
            if call in tags:
                node.attr[tag].CopyFrom(tags[call])
    return flat


def rename(graph_def: Any, names: Mapping[str, str]) -> None:
    """Rename ops; handles of state are shared under their new name."""
    for node in graph_def.node:
        node.name = names.get(node.name, node.name)
        if "shared_name" in node.attr and node.op in ("VarHandleOp", "HashTableV2"):
            node.attr["shared_name"].s = node.name.encode()
        for i, reference in enumerate(node.input):
            mark, name, port = parts(reference)
            if name in names:
                node.input[i] = f"{mark}{names[name]}{port}"


def lift_control_inputs_of_constants(graph_def: Any) -> None:
    """Hand what a constant waits for to its readers, so that constants can stand anywhere."""
    constants = {node.name: node for node in graph_def.node if node.op == "Const"}

    def waits(name: str) -> set[str]:
        """Return what a constant waits for that is not a constant itself."""
        before = [parts(reference)[1] for reference in constants[name].input]
        return set().union(*(waits(b) if b in constants else {f"^{b}"} for b in before))

    lifted = {name: waits(name) for name, node in constants.items() if node.input}
    for node in graph_def.node:
        if node.op == "Const":
            continue
        added = {wait for r in node.input for wait in lifted.get(parts(r)[1], ())}
        kept = [r for r in node.input if not (r.startswith("^") and parts(r)[1] in constants)]
        _set_inputs(node, [*kept, *sorted(added.difference(kept))])
    for node in constants.values():
        del node.input[:]


def drop_barriers(graph_def: Any, outputs: Collection[str], targets: Collection[str]) -> None:
    """Let outputs go without waiting for updates that run anyway.

    A tf.function makes its outputs wait for all its side effects, through one NoOp on one device:
    a signal from every update on every other device. Runners wait for all targets themselves.
    """
    nodes = {node.name: node for node in graph_def.node}
    for name in outputs:
        _set_inputs(nodes[name], [r for r in nodes[name].input if not r.startswith("^")])
    _remove_unread(graph_def, "NoOp", {*outputs, *targets})
    idle = {node.name for node in graph_def.node if node.op == "NoOp" and not node.input}
    for node in graph_def.node:
        _set_inputs(node, [r for r in node.input if not (r.startswith("^") and r[1:] in idle)])
    _remove_unread(graph_def, "NoOp", {*outputs, *targets})


def bypass_identities(
    graph_def: Any, outputs: Collection[str], targets: Sequence[str]
) -> tuple[str, ...]:
    """Let readers of an op that only passes tensors on read what it was given.

    That is IdentityN: Keras sends all dense gradients of a step through one (a sum over replicas,
    of which there is one), so on two devices every gradient would cross to it and back. And the
    Identity ops that inlining leaves at the borders of a function. Outputs stay. Returns the
    targets; a call among them is replaced by the side effects that it waited for.
    """
    bypassed = {
        node.name: node
        for node in graph_def.node
        if node.name not in outputs
        and (node.op == "IdentityN" or (node.op == "Identity" and node.name.startswith("Func/")))
    }

    def source(reference: str) -> tuple[str, set[str]]:
        """Return the tensor behind a reference, and the ops to wait for on the way to it."""
        mark, name, port = parts(reference)
        if mark or name not in bypassed:
            return reference, set()
        given = bypassed[name].input
        found, waits = source(given[int(port.removeprefix(":") or 0)])
        return found, waits.union(*(stays(r) for r in given if r.startswith("^")))

    def stays(reference: str) -> set[str]:
        """Return the ops that stay and that an op which goes has waited for, or the op itself."""
        name = parts(reference)[1]
        if name not in bypassed:
            return {name}
        return set().union(*map(stays, bypassed[name].input))

    for node in graph_def.node:
        data, waits = [], set()
        for reference in node.input:
            if reference.startswith("^"):
                waits |= stays(reference)
            else:
                found, on_the_way = source(reference)
                data.append(found)
                waits |= on_the_way
        needless = {parts(reference)[1] for reference in data}
        _set_inputs(node, [*data, *(f"^{name}" for name in sorted(waits - needless))])
    kept: list[str] = []
    for target in targets:
        signals = [r for r in bypassed[target].input if r[0] == "^"] if target in bypassed else []
        effects = set().union(*map(stays, signals)) if target in bypassed else {target}
        kept += sorted(effects)
    _remove(graph_def, bypassed)
    return tuple(dict.fromkeys(kept))


def prune(graph_def: Any, ends: Iterable[str]) -> None:
    """Remove the ops that no end needs, as TensorFlow does before it runs a graph."""
    nodes = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [parts(reference)[1] for reference in nodes[name].input]
    _remove(graph_def, nodes.keys() - needed)


def parts(reference: str) -> tuple[str, str, str]:
    """Split ``^name`` or ``name:port`` into mark, name and port, empty where there is none."""
    mark = "^" if reference.startswith("^") else ""
    name, colon, port = reference.removeprefix("^").partition(":")
    return mark, name, colon + port


def _remove_unread(graph_def: Any, kind: str, keep: set[str]) -> None:
    read = {parts(reference)[1] for node in graph_def.node for reference in node.input}
    unread = {node.name for node in graph_def.node if node.op == kind} - read - keep
    _remove(graph_def, unread)


def _remove(graph_def: Any, names: Collection[str]) -> None:
    for i in reversed(range(len(graph_def.node))):
        if graph_def.node[i].name in names:
            del graph_def.node[i]


def _attribute_holders(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield function
        yield from function.node_def


def _set_inputs(node: Any, inputs: list[str]) -> None:
    del node.input[:]
    node.input.extend(inputs)
