"""Traced function -> flat step: one graph without calls, free to be placed, its state found.

A graph that is flat as traced (most Keras models' are) is read as it is; else its calls are
inlined by TensorFlow and the result is read. No other graph optimizer runs: what is traced is
what is placed, run and measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.trace import captures, inlining, loop_values, rewrites
from placement_advisor.tf.trace.bundle import Bundle
from placement_advisor.tf.trace.nodes import Node, needed
from placement_advisor.tf.trace.op_layers import LAYER_ATTRIBUTE
from placement_advisor.tf.trace.read_graph import read
from placement_advisor.tf.trace.v1_loops import Loop, folded, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from placement_advisor.graph.op_work.signature import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatStep:
    """A step as nodes that can be placed, and what is needed to run it.

    ``nodes`` are all of them, ``ops`` those with each v1 loop as one, producers first; ``loops``
    says what these stand for, ``loop_bodies`` and ``trips`` what they do and how often.
    ``outputs`` are tensors, ``targets`` ops that must run. ``state`` goes by the names that its
    owner gives it. ``functions`` are the bodies of loops and conditionals, ``traced`` what they
    were traced as. ``summaries`` says how many ops that write summaries were left out.
    """

    ops: list[Node]
    nodes: list[Node]
    loops: dict[str, Loop]
    loop_bodies: dict[str, list[Node]]
    trips: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    state: captures.State
    functions: Mapping[str, Any]
    traced: Mapping[str, Any]
    summaries: int
    _names: Mapping[str, str]
    _source: Callable[[], Any]

    def bundle(self, batches: tuple[tuple[Any, ...], ...]) -> Bundle:
        """Return the step with the values of its state, ready to be run by anyone."""
        return Bundle(
            graph_def=self.graph_def(),
            inputs=self.inputs,
            outputs=self.outputs,
            targets=self.targets,
            variables={name: held.value() for name, held in self.state.variables.items()},
            tables={name: held.content() for name, held in self.state.tables.items()},
            loops=self.loops,
            batches=batches,
        )

    def python_call(self) -> tuple[str, str] | None:
        """Return kind and name of the first op that calls Python, those within loops last.

        None if there is none.
        """
        ops = [(node.kind, node.name) for node in self.nodes]
        for function in self.functions.values():
            ops += [(node.op, node.name) for node in function.node_def]
        return next((op for op in ops if op[0] in PYTHON_CALLS), None)

    def graph_def(self) -> Any:
        """Return the nodes as a GraphDef."""
        given = self._source()
        written = tf.compat.v1.GraphDef(versions=given.versions, library=given.library)
        nodes = {node.name: node for node in self.nodes}
        for proto in given.node:
            name = self._names.get(proto.name, proto.name)
            node = nodes.get(name)
            if node is None:
                continue
            added = written.node.add()
            added.CopyFrom(proto)
            added.name = name
            added.attr.pop("_class", None)
            if name != proto.name and "shared_name" in added.attr:
                added.attr["shared_name"].s = name.encode()
            if node.kind.startswith("LookupTableFind"):
                # The shape follows from Python's table object, not from the graph alone.
                _write_shape(added, node.outputs[0])
            del added.input[:]
            added.input.extend(f"{p.name}:{port}" if port else p.name for p, port in node.inputs)
            added.input.extend(f"^{before.name}" for before in node.controls)
        return written


def flatten(function: Any, labels: Mapping[int, str]) -> FlatStep:
    """Return the flat step of a concrete function; ``labels`` names variables by their handle.

    Raises:
        ModelError: the step holds something that cannot be placed.
    """
    graph = function.graph
    captured = {inner.op.name: outer for outer, inner in graph.captures}
    inputs = {t.op.name: t.shape for t in function.inputs if t.op.name not in captured}
    outputs = tuple(t.name for t in function.outputs if t is not None)
    returned = {name.split(":")[0] for name in outputs}

    @cache
    def traced_graph_def() -> Any:
        graph_def = inlining.strip(graph.as_graph_def())
        for node in graph_def.node:
            if node.name in inputs:
                node.attr["shape"].shape.CopyFrom(inputs[node.name].as_proto())
        return graph_def

    operations = graph.get_operations()
    nodes = read(operations)
    summaries = rewrites.summaries(nodes)
    targets = tuple(op.name for op in graph.control_outputs if op.name not in summaries)
    captured = {name: outer for name, outer in captured.items() if name not in summaries}
    state = captures.find_state(captured, labels, traced_graph_def)
    has_functions = bool(graph._functions)
    functions = (
        {f.signature.name: f for f in traced_graph_def().library.function} if has_functions else {}
    )

    @cache
    def flat_graph_def() -> Any:
        graph_def = traced_graph_def()
        state.write(graph_def)
        return graph_def

    graph_def: Callable[[], Any] = flat_graph_def
    has_calls = inlining.has_calls({node.kind for node in nodes}, functions)
    if has_calls or loop_values.takes_handles(nodes, state.variables):
        flat = flat_graph_def()
        if has_calls:
            keep = {*inputs, *captured, *returned, *targets}
            flat = inlining.inline(flat, keep, tag=LAYER_ATTRIBUTE)
        flat = loop_values.give_values(flat, state.variables, tag=LAYER_ATTRIBUTE)
        functions = {f.signature.name: f for f in flat.library.function}
        nodes = _read_imported(flat, {node.name: node.outputs for node in nodes})
        graph_def = lambda: flat  # noqa: E731 - the same as a def, shorter
    state.apply(nodes)

    names = captures.state_names(labels, captured, {node.name for node in nodes})
    for node in nodes:
        node.name = names.get(node.name, node.name)
    nodes, targets = _rewritten(rewrites.without(nodes, summaries), inputs, returned, targets)
    step = folded(nodes)
    return FlatStep(
        ops=step.nodes,
        nodes=nodes,
        loops=step.loops,
        loop_bodies=step.bodies,
        trips=step.trips,
        inputs=tuple(inputs),
        outputs=outputs,
        targets=targets,
        state=state.renamed(names).only({node.name for node in nodes}),
        functions=functions,
        traced=graph._functions,
        summaries=len(summaries),
        _names=names,
        _source=graph_def,
    )


def _rewritten(
    nodes: list[Node], inputs: Collection[str], returned: Collection[str], targets: Sequence[str]
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes that the step needs, free to be placed, and the targets among them.

    Raises:
        ModelError: the step returns nothing and changes nothing.
    """
    rewrites.lift_control_inputs_of_constants(nodes, frames(nodes))
    nodes = rewrites.drop_barriers(nodes, returned, set(targets))
    nodes, targets = rewrites.bypass_identities(nodes, returned, targets)
    # Reads are among the targets; whoever needs one has it as an input.
    acting = {node.name for node in nodes if node.kind != "ReadVariableOp"}
    targets = tuple(target for target in targets if target in acting)
    if not {*returned, *targets}:
        raise ModelError("the step returns nothing and changes nothing")
    ends = {*returned, *targets, *inputs}
    nodes = needed(nodes, ends)
    read = rewrites.drop_unread_reads(nodes, returned)
    return (read if len(read) == len(nodes) else needed(read, ends)), targets


def _read_imported(graph_def: Any, traced: Mapping[str, tuple[TensorSpec, ...]]) -> list[Node]:
    """Return the nodes of a graph that was inlined; what shapes the trace knew are kept."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    nodes = read(graph.get_operations())
    for node in nodes:
        known = traced.get(node.name, ())
        if len(known) == len(node.outputs):
            node.outputs = tuple(
                before if now.shape is None else now
                for now, before in zip(node.outputs, known, strict=True)
            )
    return nodes


def _write_shape(proto: Any, spec: TensorSpec) -> None:
    if spec.shape is not None and "_output_shapes" not in proto.attr:
        shape = tf.TensorShape(spec.shape).as_proto()
        proto.attr["_output_shapes"].list.shape.add().CopyFrom(shape)
