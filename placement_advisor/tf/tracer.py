"""Workload -> flat graph (a `Bundle`) and op graph.

The step is traced at the static shapes of its example batch, function calls are inlined by
TensorFlow's own function optimizer, and what the step captured is made part of the graph:
variables become VarHandleOps (so that every shape follows), lookup tables HashTableV2s, other
captured tensors constants. Loops and conditionals stay single ops. No other graph optimizer runs:
what is traced is what is placed, run and measured.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.framework import convert_to_constants, ops
from tensorflow.python.grappler import tf_optimizer

from placement_advisor.errors import ModelError
from placement_advisor.tf import oprows
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.bundle import Bundle
from placement_advisor.tf.loader import Workload, describe, load

SEED = 20_201
_LAYER_ATTRIBUTE = oprows.LAYER_ATTRIBUTE


_workload: Workload | None = None


def load_workload(path: str, name: str | None, mode: str | None, batch_size: int | None) -> None:
    """Run the user's file and keep its workload in this process.

    Raises:
        ModelError: the file fails or holds nothing that can be analysed.
    """
    global _workload
    seed_everything()
    _workload = load(path, name=name, mode=mode, batch_size=batch_size)


def trace_workload(path: str, folder: str) -> Traced:
    """Trace the loaded workload, write its bundle into ``folder`` and return its op graph.

    Raises:
        ModelError: the step cannot be traced, or holds state that cannot be moved.
    """
    workload = loaded_workload()
    try:
        function = traced_function(workload)
    except Exception as error:
        raise ModelError(
            f"{path}: {workload.name} cannot be traced: {describe(error, Path(path))}"
        ) from None
    bundle = _bundle(function, workload)
    bundle.save(Path(folder))
    return Traced(
        graph=oprows.op_graph(bundle),
        name=workload.name,
        mode=workload.mode,
        chosen=workload.chosen,
        batch_size=workload.batch_size,
        tensorflow_version=tf.__version__,
    )


def loaded_workload() -> Workload:
    """Return the workload of this process."""
    assert _workload is not None, "load_workload comes first"
    return _workload


def seed_everything() -> None:
    """Pin every source of randomness that a step can draw from."""
    random.seed(SEED)
    np.random.seed(SEED)
    tf.random.set_seed(SEED)


def traced_function(workload: Workload) -> Any:
    """Trace the workload's step at the shapes of its first batch."""
    names = iter(workload.input_names)
    spec = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype, name=_identifier(next(names))),
        workload.batches[0],
    )

    def step(batch: Any) -> Any:
        if workload.model is None:
            return workload.step(batch)
        from keras.src.backend.common.name_scope import current_path

        def layer(_: Any) -> Any:
            path = current_path()
            return attr_value_pb2.AttrValue(s=path.encode()) if path else None

        with ops.get_default_graph()._attr_scope({_LAYER_ATTRIBUTE: layer}):
            return workload.step(batch)

    # A tf.function step of the user's own has its control flow converted like theirs would be.
    return tf.function(step, autograph=workload.model is None).get_concrete_function(spec)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_./-" else "_" for c in name) or "input"


def _bundle(function: Any, workload: Workload) -> Bundle:
    graph_def = function.graph.as_graph_def()
    captured = {inner.op.name: outer for outer, inner in function.graph.captures}
    input_names = [t.op.name for t in function.inputs if t.op.name not in captured]
    outputs = [t.name for t in function.outputs if t is not None]
    targets = [op.name for op in function.graph.control_outputs]
    variables: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for node in graph_def.node:
        if node.name in captured:
            _bind(node, captured[node.name], function.graph, variables, tables)
    for tensor in function.inputs:
        if tensor.op.name in input_names:
            _node(graph_def, tensor.op.name).attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
    keep = [*input_names, *captured, *(t.split(":")[0] for t in outputs), *targets]
    graph_def = _inline(graph_def, keep)
    _keep_shapes_of_lookups(graph_def, function.graph)
    names = _state_names(function, captured, workload, {n.name for n in graph_def.node})
    _rename(graph_def, names)
    _lift_control_inputs_of_constants(graph_def)
    _drop_barriers(graph_def, {t.split(":")[0] for t in outputs}, set(targets))
    return Bundle(
        graph_def=graph_def,
        inputs=tuple(input_names),
        outputs=tuple(outputs),
        targets=tuple(targets),
        variables={names.get(name, name): value for name, value in variables.items()},
        tables={names.get(name, name): value for name, value in tables.items()},
        batches=tuple(
            tuple(tensor.numpy() for tensor in tf.nest.flatten(batch)) for batch in workload.batches
        ),
    )


def _bind(
    node: Any, outer: Any, graph: Any, variables: dict[str, Any], tables: dict[str, Any]
) -> None:
    """Turn the placeholder of a captured tensor into an op of its own."""
    device = node.device
    node.attr.clear()
    if outer.dtype != tf.resource:
        node.op = "Const"
        node.attr["dtype"].type = outer.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(outer.numpy()))
        return
    handle = getattr(outer, "_handle_data", None)
    if handle is not None and handle.is_set and len(handle.shape_and_type) == 1:
        held = handle.shape_and_type[0]
        node.op = "VarHandleOp"
        node.attr["dtype"].type = held.dtype
        node.attr["shape"].shape.CopyFrom(held.shape)
        node.attr["shared_name"].s = node.name.encode()
        value = tf.raw_ops.ReadVariableOp(resource=outer, dtype=held.dtype)
        variables[node.name] = value.numpy()
        return
    lookup = next(
        (
            op
            for op in graph.get_operations()
            if op.type.startswith("LookupTableFind") and op.inputs[0].op.name == node.name
        ),
        None,
    )
    if lookup is None:
        reader = next(
            (op for op in graph.get_operations() if any(t.op.name == node.name for t in op.inputs)),
            None,
        )
        used_by = f" (used by {reader.type} {reader.name!r})" if reader is not None else ""
        raise ModelError(
            f"the step holds a resource that cannot be moved to another device: "
            f"{node.name!r}{used_by}",
            hint="variables and lookup tables can be moved; iterators and queues belong "
            "outside the step",
        )
    keys_type, values_type = lookup.get_attr("Tin"), lookup.get_attr("Tout")
    keys, values = tf.raw_ops.LookupTableExportV2(
        table_handle=outer, Tkeys=keys_type, Tvalues=values_type
    )
    node.op = "HashTableV2"
    node.device = device
    node.attr["key_dtype"].type = keys_type.as_datatype_enum
    node.attr["value_dtype"].type = values_type.as_datatype_enum
    node.attr["shared_name"].s = node.name.encode()
    tables[node.name] = (keys.numpy(), values.numpy())


def _inline(graph_def: Any, keep: list[str]) -> Any:
    """Inline function calls; loops and conditionals stay composite."""
    graph_def = convert_to_constants.disable_lower_using_switch_merge(graph_def)
    opaque = ("_XlaMustCompile", "_noinline", "_XlaHasReferenceVars", "api_implements")
    for holder in (*graph_def.node, *graph_def.library.function):
        for attribute in opaque:
            holder.attr.pop(attribute, None)
    for function in graph_def.library.function:
        for node in function.node_def:
            for attribute in opaque:
                node.attr.pop(attribute, None)
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(keep)
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.optimizers.append("function")
    return tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False)


def _keep_shapes_of_lookups(graph_def: Any, graph: Any) -> None:
    """Write down the shapes that follow from Python's table objects, not from the graph alone."""
    nodes = {node.name: node for node in graph_def.node}
    for op in graph.get_operations():
        if op.type.startswith("LookupTableFind") and op.name in nodes:
            shape = op.outputs[0].shape.as_proto()
            nodes[op.name].attr["_output_shapes"].list.shape.add().CopyFrom(shape)


def _state_names(
    function: Any, captured: dict[str, Any], workload: Workload, taken: set[str]
) -> dict[str, str]:
    """Name each variable as its owner does, instead of by the op that happened to read it first."""
    labels: dict[int, str] = {}
    for variable in function.graph.variables:
        labels[id(variable.handle)] = variable.name.split(":")[0]
    if workload.model is not None:
        model, optimizer = workload.model, getattr(workload.model, "optimizer", None)
        for owner in (model, optimizer):
            for variable in getattr(owner, "variables", ()):
                handle = getattr(variable.value, "handle", None)
                if handle is not None:
                    labels[id(handle)] = variable.path
    names: dict[str, str] = {}
    for name, outer in captured.items():
        label = labels.get(id(outer))
        if label is None:
            continue
        unique, n = _identifier(label), 1
        while unique in taken:
            n += 1
            unique = f"{_identifier(label)}_{n}"
        taken.add(unique)
        names[name] = unique
    return names


def _rename(graph_def: Any, names: dict[str, str]) -> None:
    for node in graph_def.node:
        node.name = names.get(node.name, node.name)
        if "shared_name" in node.attr and node.op in ("VarHandleOp", "HashTableV2"):
            node.attr["shared_name"].s = node.name.encode()
        for i, reference in enumerate(node.input):
            mark, name, port = _parts(reference)
            if name in names:
                node.input[i] = f"{mark}{names[name]}{port}"


def _lift_control_inputs_of_constants(graph_def: Any) -> None:
    """Hand what a constant waits for to its readers, so that constants can stand anywhere."""
    waits: dict[str, list[str]] = {}
    for node in graph_def.node:
        if node.op == "Const" and node.input:
            waits[node.name] = list(node.input)
            del node.input[:]
    for node in graph_def.node:
        if node.op == "Const":
            continue
        added = {wait for reference in node.input for wait in waits.get(_parts(reference)[1], ())}
        kept = [r for r in node.input if not (r.startswith("^") and _parts(r)[1] in waits)]
        present = set(kept)
        del node.input[:]
        node.input.extend([*kept, *sorted(added - present)])


def _drop_barriers(graph_def: Any, outputs: set[str], targets: set[str]) -> None:
    """Let outputs go without waiting for updates that run anyway.

    A tf.function makes its outputs wait for all its side effects, through one NoOp on one device:
    a signal from every update on every other device. Runners wait for all targets themselves.
    """
    nodes = {node.name: node for node in graph_def.node}
    for name in outputs:
        kept = [r for r in nodes[name].input if not r.startswith("^")]
        del nodes[name].input[:]
        nodes[name].input.extend(kept)
    read = {_parts(reference)[1] for node in graph_def.node for reference in node.input}
    for node in list(graph_def.node):
        if node.op == "NoOp" and node.name not in read | targets | outputs:
            graph_def.node.remove(node)


def _parts(reference: str) -> tuple[str, str, str]:
    """Split ``^name`` or ``name:port``."""
    mark = "^" if reference.startswith("^") else ""
    name, colon, port = reference.removeprefix("^").partition(":")
    return mark, name, colon + port


def _node(graph_def: Any, name: str) -> Any:
    return next(node for node in graph_def.node if node.name == name)
