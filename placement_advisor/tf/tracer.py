"""Workload -> flat graph (a `Bundle`) and op graph.

The step is traced at the static shapes of its example batch, what it captured is made part of the
graph, and function calls are inlined; loops and conditionals stay single ops. No other graph
optimizer runs: what is traced is what is placed, run and measured.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops

from placement_advisor.errors import ModelError
from placement_advisor.tf import captures, oprows, rewrites
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.bundle import Bundle
from placement_advisor.tf.loader import Workload, describe, load
from placement_advisor.tf.op_layers import LAYER_ATTRIBUTE

SEED = 20_201

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
    try:
        bundle = _bundle(function, workload)
    except ModelError as error:
        raise ModelError(f"{path}: {workload.name}: {error.message}", hint=error.hint) from None
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
        lambda tensor: tf.TensorSpec(
            tensor.shape, tensor.dtype, name=captures.identifier(next(names))
        ),
        workload.batches[0],
    )

    def step(batch: Any) -> Any:
        from keras.src.backend.common.name_scope import current_path

        def layer(_: Any) -> Any:
            path = current_path()
            return attr_value_pb2.AttrValue(s=path.encode()) if path else None

        with ops.get_default_graph()._attr_scope({LAYER_ATTRIBUTE: layer}):
            return workload.step(batch)

    # A tf.function step of the user's own has its control flow converted like theirs would be.
    return tf.function(step, autograph=workload.model is None).get_concrete_function(spec)


def _bundle(function: Any, workload: Workload) -> Bundle:
    graph_def = function.graph.as_graph_def()
    captured = {inner.op.name: outer for outer, inner in function.graph.captures}
    inputs = tuple(t for t in function.inputs if t.op.name not in captured)
    outputs = tuple(t.name for t in function.outputs if t is not None)
    targets = tuple(op.name for op in function.graph.control_outputs)
    returned = {name.split(":")[0] for name in outputs}
    shapes = {tensor.op.name: tensor.shape.as_proto() for tensor in inputs}
    for node in graph_def.node:
        if node.name in shapes:
            node.attr["shape"].shape.CopyFrom(shapes[node.name])
    state = captures.bind(graph_def, captured)
    keep = {*shapes, *captured, *returned, *targets}
    graph_def = rewrites.inline(graph_def, keep, tag=LAYER_ATTRIBUTE)
    _keep_shapes_of_lookups(graph_def, function.graph)
    names = captures.state_names(
        labels(function.graph, workload.model), captured, {node.name for node in graph_def.node}
    )
    rewrites.rename(graph_def, names)
    rewrites.lift_control_inputs_of_constants(graph_def)
    rewrites.drop_barriers(graph_def, returned, set(targets))
    targets = rewrites.bypass_identities(graph_def, returned, targets)
    if not {*returned, *targets}:
        raise ModelError("the step returns nothing and changes nothing")
    rewrites.prune(graph_def, {*returned, *targets, *shapes})
    state = state.renamed(names).only({node.name for node in graph_def.node})
    return Bundle(
        graph_def=graph_def,
        inputs=tuple(shapes),
        outputs=outputs,
        targets=targets,
        variables=state.variables,
        tables=state.tables,
        batches=tuple(
            tuple(captures.array(tensor) for tensor in tf.nest.flatten(batch))
            for batch in workload.batches
        ),
    )


def _keep_shapes_of_lookups(graph_def: Any, graph: Any) -> None:
    """Write down the shapes that follow from Python's table objects, not from the graph alone."""
    nodes = {node.name: node for node in graph_def.node}
    for op in graph.get_operations():
        if op.type.startswith("LookupTableFind") and op.name in nodes:
            shape = op.outputs[0].shape.as_proto()
            nodes[op.name].attr["_output_shapes"].list.shape.add().CopyFrom(shape)


def labels(graph: Any, model: Any | None) -> dict[int, str]:
    """Return the names that variables have for their owner, by the `id` of their handle."""
    labels: dict[int, str] = {}
    for variable in graph.variables:
        labels[id(variable.handle)] = variable.name.split(":")[0]
    for owner in (model, getattr(model, "optimizer", None)):
        for variable in getattr(owner, "variables", ()):
            handle = getattr(variable.value, "handle", None)
            if handle is not None:
                labels[id(handle)] = variable.path
    return labels
