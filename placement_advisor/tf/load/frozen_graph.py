"""TF1 frozen graph -> step: placeholders are the inputs, the outputs are asked for or the leaves.

Devices written into the graph are dropped: where ops run is what the advisor is to find out.
"""

from __future__ import annotations

import difflib
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from placement_advisor.errors import ModelError
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.loaded_step import LoadedStep, leading_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VARIABLES = frozenset(
    {"Variable", "VariableV2", "VarHandleOp", "TemporaryVariable", "AutoReloadVariable"}
)
# A leaf of these kinds computes nothing that anyone asks for.
_NO_RESULTS = frozenset(
    {"Placeholder", "PlaceholderWithDefault", "Const", "NoOp", "Assert", "Exit"}
)
# Enough to choose from; a graph that lost its outputs can have hundreds of leaves.
_LISTED = 12


def load_frozen_graph(
    path: Path,
    *,
    name: str | None,
    mode: str | None,
    batch_size: int | None,
    outputs: tuple[str, ...],
) -> LoadedStep:
    """Return the step that computes the outputs of a frozen graph.

    Raises:
        ModelError: it cannot be read, still holds variables, or its outputs are not clear.
    """
    if name is not None:
        raise ModelError(f"{path}: :{name} names nothing in a graph", hint=f"use --outputs {name}")
    if mode == "train":
        raise ModelError(f"{path}: a frozen graph cannot be trained", hint="leave --mode out")
    graph_def = _read(path)
    has_devices = any(node.device for node in _nodes(graph_def))
    for node in _nodes(graph_def):
        node.device = ""
    graph = _imported(path, graph_def)
    wanted = _outputs(path, graph, outputs)
    inputs = _inputs(graph, wanted)
    specs = {
        op.name: tf.TensorSpec(op.outputs[0].shape, op.outputs[0].dtype, name=op.name)
        for op in inputs
    }
    found = example_batches.made_up(path, specs, "its placeholders", batch_size)

    names = sorted(specs)  # As a dictionary is flattened.

    def compute(*values: Any) -> Any:
        feeds = {f"{name}:0": value for name, value in zip(names, values, strict=True)}
        return tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=wanted, name=""
        )

    def trace(specs: Any) -> Any:
        """Import into a graph of its own: a tf.function cannot hold loops of TF1."""
        return tf.compat.v1.wrap_function(compute, tf.nest.flatten(specs))

    imported = trace(found.specs)

    def step(batch: dict[str, Any]) -> Any:
        return imported(*tf.nest.flatten(batch))

    return LoadedStep(
        name=path.stem,
        mode="infer",
        chosen=f"frozen graph with outputs {', '.join(wanted)}, {found.origin}",
        step=step,
        specs=found.specs,
        batches=(),
        batch_size=leading_size(found.specs),
        takes_batch_size=found.takes_batch_size,
        input_names=tuple(names),
        trace=trace,
        has_devices=has_devices,
    )


def _read(path: Path) -> Any:
    content = path.read_bytes()
    graph_def = tf.compat.v1.GraphDef()
    try:
        graph_def.ParseFromString(content)
        readable = bool(graph_def.node)
    except DecodeError:
        readable = False
    if not readable:
        if _is_saved_model(content):
            raise ModelError(
                f"{path}: a SavedModel's graph, without its variables",
                hint="give the SavedModel's directory",
            )
        raise ModelError(
            f"{path}: not a graph (GraphDef)", hint="give a frozen graph in binary form"
        )
    variable = next((node for node in graph_def.node if node.op in _VARIABLES), None)
    if variable is not None:
        raise ModelError(
            f"{path}: not frozen: it holds variables such as {variable.name!r} ({variable.op})",
            hint="freeze it (variables to constants), or give the SavedModel's directory",
        )
    return graph_def


def _nodes(graph_def: Any) -> Iterator[Any]:
    bodies = (function.node_def for function in graph_def.library.function)
    return chain(graph_def.node, *bodies)


def _is_saved_model(content: bytes) -> bool:
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(content)
    except DecodeError:
        return False
    return any(meta_graph.graph_def.node for meta_graph in saved.meta_graphs)


def _imported(path: Path, graph_def: Any) -> Any:
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except Exception as error:  # Damaged graphs fail in many ways.
        raise ModelError(f"{path}: TensorFlow cannot import it: {error}") from None
    return graph


def _outputs(path: Path, graph: Any, asked: tuple[str, ...]) -> list[str]:
    """Return the names of the tensors that are computed."""
    if asked:
        return [tensor for words in asked for tensor in _tensors(path, graph, words)]
    leaves = [op for op in graph.get_operations() if _is_leaf(op)]
    if len(leaves) == 1:
        return [tensor.name for tensor in leaves[0].outputs]
    listed = first_names([op.name for op in leaves], _LISTED) or "none"
    raise ModelError(
        f"{path}: which outputs? {len(leaves)} ops are read by no other: {listed}",
        hint="name those that you ask the graph for: --outputs a,b",
    )


def _is_leaf(op: Any) -> bool:
    read = any(tensor.consumers() for tensor in op.outputs)
    # Each branch of a conditional of TensorFlow 1 begins with one that only orders its ops.
    pivot = op.type == "Identity" and op.inputs[0].op.type == "Switch"
    return bool(op.outputs) and not read and not pivot and op.type not in _NO_RESULTS


def _tensors(path: Path, graph: Any, words: str) -> list[str]:
    name, _, port = words.partition(":")
    try:
        outputs = graph.get_operation_by_name(name).outputs
        found = [outputs[int(port)]] if port else list(outputs)
    except (KeyError, ValueError, IndexError):
        found = []
    if not found:
        close = difflib.get_close_matches(name, [op.name for op in graph.get_operations()])
        raise ModelError(
            f"{path}: no output is called {words!r}",
            hint=f"close: {', '.join(close)}" if close else "give names of ops, or op:0",
        )
    return [tensor.name for tensor in found]


def _inputs(graph: Any, outputs: list[str]) -> list[Any]:
    """Return the placeholders that the outputs depend on, in the graph's order."""
    ahead = [graph.get_tensor_by_name(name).op for name in outputs]
    seen = set(ahead)
    while ahead:
        op = ahead.pop()
        before = {tensor.op for tensor in op.inputs}.union(op.control_inputs) - seen
        seen |= before
        ahead += before
    return [op for op in graph.get_operations() if op in seen and op.type == "Placeholder"]
