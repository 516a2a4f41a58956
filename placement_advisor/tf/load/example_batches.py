"""Finds or makes the batches that a step is traced and run on.

They come from the model file, or are made from specs: valid ids and classes where the traced
graph tells which values an input may take, else numbers from a fixed seed. Unknown sizes are
replaced by known ones, and what was assumed is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor
from tensorflow.python.framework import function_def_to_graph, tensor_util

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import BRANCH_KINDS
from placement_advisor.tf.load.model_source import ModelSource, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# What Keras' fit() takes if nothing is said.
DEFAULT_BATCH_SIZE = 32
# An unknown size behind the batch is mostly the length of a sequence; also a workable image.
DEFAULT_LENGTH = 128


def spec_of(value: Any) -> Any:
    """Return the spec of a tensor; a spec is its own."""
    if isinstance(value, tf.TypeSpec):
        return value
    return tf.TensorSpec(value.shape, value.dtype)


def _check_spec(source: ModelSource, spec: Any) -> None:
    name = getattr(spec, "name", None) or "an input"
    if not isinstance(spec, tf.TensorSpec):
        raise ModelError(
            f"{source.file}: {name} is declared as a {type(spec).__name__}",
            hint="declare dense tensors (tf.TensorSpec)",
        )
    if spec.shape.rank is None:
        raise ModelError(
            f"{source.file}: {name} has an unknown number of dimensions",
            hint="give example `inputs`, or workload() with inputs, in a Python file",
        )


# Enough different batches to see state change from step to step, few enough to keep in memory.
EXAMPLE_BATCHES = 4
DATASETS = (tf.data.Dataset, keras.utils.PyDataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Batches of equal shapes, and their specs. Without batches, some are made up from the specs.

    ``origin`` says in words where the batches come from, ``dataset`` is the `tf.data.Dataset` that
    they come from, as the user wrote it, if it is one. ``takes_batch_size``: batches of another
    size than they have can be asked for.
    """

    specs: Any
    batches: tuple[Any, ...]
    origin: str
    dataset: Any | None = None
    takes_batch_size: bool = True

    def changed(self, change: Callable[[Any], Any]) -> Examples:
        """Return the same examples with the structure of each batch changed."""
        return replace(
            self,
            specs=change(self.specs),
            batches=tuple(change(batch) for batch in self.batches),
        )


def are_in(namespace: dict[str, Any]) -> bool:
    """Say whether a file has examples under the names that are looked for."""
    inputs = namespace.get("inputs")
    # `inputs = keras.Input(...)` is part of a model.
    symbolic = any(isinstance(value, KerasTensor) for value in tf.nest.flatten(inputs))
    given = inputs is not None and not symbolic
    return given or isinstance(namespace.get("dataset"), DATASETS)


def found_in(source: ModelSource, namespace: dict[str, Any]) -> Examples | None:
    """Return the examples in a file's ``dataset`` or ``inputs``, None if it has neither.

    Raises:
        ModelError: they cannot be used.
    """
    if not are_in(namespace):
        return None
    if isinstance(namespace.get("dataset"), DATASETS):
        return from_dataset(source, namespace["dataset"], "`dataset`")
    return from_values(source, namespace["inputs"], "`inputs`")


def from_dataset(source: ModelSource, dataset: Any, label: str) -> Examples:
    """Take the first batches of a dataset, batched anew if a size is asked for.

    Raises:
        ModelError: it fails, or holds no batch.
    """
    path, batch_size = source.file, source.batch_size
    is_python = not isinstance(dataset, tf.data.Dataset)
    if batch_size is not None and is_python:
        raise ModelError(
            f"{path}: --batch-size needs a tf.data.Dataset; the batches of {label} have the size "
            "that they have"
        )
    own, origin = None if is_python else dataset, f"batches from {label}"
    samples = None if batch_size is None else dataset.unbatch()
    if samples is not None:
        dataset = samples.batch(batch_size, drop_remainder=True)
    try:
        batches = tuple(_take(source, dataset))
        if samples is not None and not batches:
            # Fewer than a batch has. What a step takes hardly depends on their values.
            repeated = samples.repeat().batch(batch_size, drop_remainder=True)
            batches = tuple(_take(source, repeated))
            origin += ", its samples several times"
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{path}: {label} fails: {describe(error, path)}") from None
    if not batches:
        raise ModelError(f"{path}: {label} is empty")
    return Examples(
        specs=tf.nest.map_structure(spec_of, batches[0]),
        batches=batches,
        origin=origin,
        dataset=own,
        takes_batch_size=not is_python,
    )


def from_values(
    source: ModelSource, values: Any, label: str, *, given: int | None = None
) -> Examples:
    """Take one batch of tensors, or of specs whose unknown sizes are filled in.

    Raises:
        ModelError: it is neither, or has a size of its own other than the one asked for.
    """
    path, flat = source.file, tf.nest.flatten(values)
    if any(isinstance(value, tf.TypeSpec) for value in flat):
        if not all(isinstance(value, tf.TypeSpec) for value in flat):
            raise ModelError(
                f"{path}: {label} mixes specs with values", hint="give all as specs, or none"
            )
        return made_up(source, values, f"the specs in {label}", given=given)
    _check_dense(source, values)
    try:
        batch = tf.nest.map_structure(tf.convert_to_tensor, values)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path}: {label} is not made of tensors: {error}") from None
    specs = tf.nest.map_structure(spec_of, batch)
    if source.batch_size is not None:
        raise ModelError(f"{path}: --batch-size needs a `dataset`; {label} has a fixed size")
    return Examples(
        specs=specs, batches=(batch,), origin=f"one batch from {label}", takes_batch_size=False
    )


def made_up(source: ModelSource, specs: Any, label: str, *, given: int | None = None) -> Examples:
    """Return examples whose batches are yet to be made up from specs.

    An unknown batch becomes what the user asked for, else ``given``, else Keras' default; what was
    assumed is part of the origin.

    Raises:
        ModelError: there is a tensor whose sizes cannot be assumed, or a fixed batch that is not
            the one asked for.
    """
    batch_size, flat = source.batch_size, tf.nest.flatten(specs)
    for spec in flat:
        _check_spec(source, spec)
    leading = [spec.shape[0] for spec in flat if spec.shape.rank]
    is_open = None in leading
    if batch_size is not None and leading and not is_open and batch_size not in leading:
        raise ModelError(
            f"{source.file}: the inputs have a fixed batch of {leading[0]}, not {batch_size}",
            hint="leave --batch-size out, or leave the batch open in the model",
        )
    batch = batch_size or given or DEFAULT_BATCH_SIZE
    origin = [f"batches made up for {label}"]
    if is_open and batch_size is None and given is None:
        origin.append(f"batch {batch} assumed")
    if any(None in spec.shape[1:] for spec in flat if spec.shape.rank):
        origin.append(f"unknown sizes taken as {DEFAULT_LENGTH}")

    def fill(spec: Any) -> Any:
        shape = [DEFAULT_LENGTH if size is None else size for size in spec.shape]
        if shape and spec.shape[0] is None:
            shape[0] = batch
        return tf.TensorSpec(shape, spec.dtype, spec.name)

    return Examples(
        specs=tf.nest.map_structure(fill, specs),
        batches=(),
        origin=", ".join(origin),
        takes_batch_size=is_open,
    )


def _check_dense(source: ModelSource, batch: Any) -> None:
    for tensor in tf.nest.flatten(batch):
        if isinstance(tensor, tf.RaggedTensor | tf.SparseTensor):
            raise ModelError(
                f"{source.file}: the example batches hold a {type(tensor).__name__}",
                hint="hand it over as dense tensors (to_tensor, tf.sparse.to_dense)",
            )


def _take(source: ModelSource, dataset: Any) -> Iterator[Any]:
    shapes = None
    for batch in _first(dataset):
        _check_dense(source, batch)
        found = [tensor.shape.as_list() for tensor in tf.nest.flatten(batch)]
        shapes = shapes or found
        if found == shapes:  # One graph is traced; batches of another shape would need another.
            yield batch


def _first(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, tf.data.Dataset):
        yield from dataset.take(EXAMPLE_BATCHES)
    else:
        for i in range(min(EXAMPLE_BATCHES, dataset.num_batches or EXAMPLE_BATCHES)):
            yield tf.nest.map_structure(tf.convert_to_tensor, dataset[i])


# Which inputs of an op come out of it as they went in (perhaps in another shape or type).
_KEEPS: dict[str, tuple[int, ...]] = {
    "BroadcastTo": (0,),
    "Cast": (0,),
    "EnsureShape": (0,),
    "Enter": (0,),
    "Exit": (0,),
    "ExpandDims": (0,),
    "Gather": (0,),
    "GatherNd": (0,),
    "GatherV2": (0,),
    "Identity": (0,),
    "MirrorPad": (0,),
    "NextIteration": (0,),
    "Pad": (0,),
    "PadV2": (0, 2),
    "PreventGradient": (0,),
    "RaggedTensorToTensor": (1,),
    "Reshape": (0,),
    "ReverseV2": (0,),
    "Select": (1, 2),
    "SelectV2": (1, 2),
    "Slice": (0,),
    "Snapshot": (0,),
    "Split": (1,),
    "SplitV": (0,),
    "Squeeze": (0,),
    "StopGradient": (0,),
    "StridedSlice": (0,),
    "Switch": (0,),
    "TensorArrayGatherV3": (2,),
    "TensorArrayReadV3": (2,),
    "TensorArrayScatterV3": (2, 3),
    "TensorArrayWriteV3": (2, 3),
    "TensorListFromTensor": (0,),
    "TensorListGetItem": (0,),
    "TensorListSetItem": (0, 2),
    "TensorListStack": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Unique": (0,),
    "UniqueV2": (0,),
    "Unpack": (0,),
}
_KEEPS_ALL = frozenset({"ConcatV2", "IdentityN", "Merge", "Pack"})
# Only the first output of these holds the values.
_FIRST_OUTPUT = frozenset({"Unique", "UniqueV2", "Merge"})
# Their second input is below a size of the first: one behind the batch dimensions, the last, those
# of all axes that it points into.
_INDEX_OF_FIRST = frozenset(
    {
        "Gather",
        "ResourceGather",
        "ResourceScatterAdd",
        "ResourceScatterSub",
        "ResourceScatterUpdate",
        "SparseSegmentMean",
        "SparseSegmentSqrtN",
        "SparseSegmentSum",
    }
)
_CLASS_OF_FIRST = frozenset({"SparseSoftmaxCrossEntropyWithLogits", "InTopKV2"})
_POINTS_INTO_FIRST = frozenset({"GatherNd", "ResourceGatherNd", "TensorScatterUpdate"})
# Op kind -> which input is below the value of the next one.
_BELOW_NEXT = {
    "Bincount": 0,
    "DenseBincount": 0,
    "OneHot": 0,
    "UnsortedSegmentMax": 1,
    "UnsortedSegmentMin": 1,
    "UnsortedSegmentProd": 1,
    "UnsortedSegmentSum": 1,
}
_LOOKUP = "LookupTableFindV2"
_SAME_VALUE = frozenset({"Identity", "Enter", "Switch", "Cast", "StopGradient"})


@dataclass(slots=True)
class Domain:
    """What an input must be: an integer below ``below``, one of ``members``. None: anything."""

    below: int | None = None
    members: np.ndarray[Any, Any] | None = None


def input_domains(function: Any) -> list[Domain]:
    """Return the domain of each argument of a concrete function, in order."""
    captured = {id(inner): outer for outer, inner in function.graph.captures}
    graph = _Graph(function.graph, captured=captured)
    given = (tensor for tensor in function.inputs if id(tensor) not in captured)
    return [_domain(tensor, graph) for tensor in given]


@dataclass(slots=True)
class _Graph:
    """A graph, the call that runs it (None for the outermost), and the graphs that it calls."""

    graph: Any
    captured: dict[int, Any] = field(default_factory=dict)
    call: Any = None
    caller: _Graph | None = None
    arguments: dict[int, Any] = field(default_factory=dict)
    called: dict[tuple[str, str], _Graph] = field(default_factory=dict)
    library: dict[str, Any] = field(default_factory=dict)

    def bodies(self, op: Any) -> Iterator[_Graph]:
        """Yield the graphs of the functions that an op calls."""
        names = {v.func.name: None for v in op.node_def.attr.values() if v.func.name}
        for value in op.node_def.attr.values():
            names |= {function.name: None for function in value.list.func}
        for name in names:
            if (op.name, name) not in self.called:
                self.called[op.name, name] = self._body(op, name)
            yield self.called[op.name, name]

    def _body(self, op: Any, name: str) -> _Graph:
        with self.graph.as_default():
            body = function_def_to_graph.function_def_to_graph(self._library()[name])
        given = op.inputs[1:] if op.type in BRANCH_KINDS else op.inputs
        arguments = {id(inner): outer for inner, outer in zip(body.inputs, given, strict=False)}
        return _Graph(body, call=op, caller=self, arguments=arguments)

    def _library(self) -> dict[str, Any]:
        """Return the functions of the outermost graph: it has those of all others."""
        if self.caller is not None:
            return self.caller._library()
        if not self.library:
            functions = self.graph.as_graph_def().library.function
            self.library.update((function.signature.name, function) for function in functions)
        return self.library

    def source(self, tensor: Any) -> tuple[Any, _Graph]:
        """Follow a tensor back to where it comes from, through calls."""
        if id(tensor) in self.arguments and self.caller is not None:
            return self.caller.source(self.arguments[id(tensor)])
        if tensor.op.type in _SAME_VALUE:
            return self.source(tensor.op.inputs[0])
        return tensor, self

    def shape(self, tensor: Any) -> tuple[int | None, ...]:
        """Return the shape of a tensor, or of the variable behind a handle; () if unknown."""
        tensor, graph = self.source(tensor)
        if tensor.op.type == "ReadVariableOp":
            return graph.shape(tensor.op.inputs[0])
        if tensor.dtype != tf.resource:
            return tuple(tensor.shape) if tensor.shape.rank is not None else ()
        handle = getattr(graph.captured.get(id(tensor), tensor), "_handle_data", None)
        if handle is None or not handle.is_set or len(handle.shape_and_type) != 1:
            return ()
        shape = tf.TensorShape(handle.shape_and_type[0].shape)
        return tuple(shape) if shape.rank is not None else ()

    def value(self, tensor: Any) -> int | None:
        """Return the value of an integer that is a constant, else None."""
        value = tensor_util.constant_value(self.source(tensor)[0])
        return None if value is None or np.size(value) != 1 else int(value)


def _domain(tensor: Any, graph: _Graph) -> Domain:
    """Return what an input must be, by all that reads it, and what becomes of it there."""
    domain = Domain()
    # Python makes a tensor anew for each look; ids count only while it lives.
    seen: dict[tuple[int, int], Any] = {}
    ahead = [(tensor, graph)]
    while ahead:
        tensor, graph = ahead.pop()
        if (id(tensor), id(graph)) in seen:
            continue
        seen[id(tensor), id(graph)] = tensor
        ahead += _leaves(tensor, graph)
        for op in tensor.consumers():
            for place, read in enumerate(op.inputs):
                if read is not tensor:
                    continue
                bounds = (domain.below, *_bounds(op, place, graph))
                domain.below = min(filter(None, bounds), default=None)
                if op.type == _LOOKUP and place == 1:
                    table, home = graph.source(op.inputs[0])
                    domain.members = _keys(op, home.captured.get(id(table)))
                ahead += _passed_on(op, place, graph)
    return domain


def _leaves(tensor: Any, graph: _Graph) -> Iterator[tuple[Any, _Graph]]:
    """Yield what a tensor is called outside, if its function returns it."""
    if graph.caller is None:
        return
    outputs = graph.call.outputs
    for place, returned in enumerate(graph.graph.outputs):
        if returned is tensor and place < len(outputs) and outputs[place].dtype == tensor.dtype:
            yield outputs[place], graph.caller
            if "While" in graph.call.type:
                yield graph.graph.inputs[place], graph


def _passed_on(op: Any, place: int, graph: _Graph) -> Iterator[tuple[Any, _Graph]]:
    if op.type in _KEEPS_ALL or place in _KEEPS.get(op.type, ()):
        outputs = op.outputs[:1] if op.type in _FIRST_OUTPUT else op.outputs
        yield from ((output, graph) for output in outputs)
    place -= op.type in BRANCH_KINDS
    for body in graph.bodies(op):
        if 0 <= place < len(body.graph.inputs):
            yield body.graph.inputs[place], body


def _bounds(op: Any, place: int, graph: _Graph) -> Iterator[int | None]:
    """Yield what an input of an op is below, None where that is not known."""
    kind = op.type
    if _BELOW_NEXT.get(kind) == place:
        yield graph.value(op.inputs[place + 1])
    if place != 1:
        return
    if kind in _INDEX_OF_FIRST:
        yield _size(graph.shape(op.inputs[0]), _batch_dims(op))
    elif kind in _CLASS_OF_FIRST:
        yield _size(graph.shape(op.inputs[0]), -1)
    elif kind == "GatherV2":
        yield _size(graph.shape(op.inputs[0]), graph.value(op.inputs[2]))
    elif kind in _POINTS_INTO_FIRST:
        depth = graph.shape(op.inputs[1])[-1:]
        yield from graph.shape(op.inputs[0])[: depth[0] if depth else None]


def _size(shape: tuple[int | None, ...], axis: int | None) -> int | None:
    if axis is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis]


def _batch_dims(op: Any) -> int:
    return int(op.node_def.attr["batch_dims"].i) if "batch_dims" in op.node_def.attr else 0


def _keys(op: Any, table: Any) -> np.ndarray[Any, Any] | None:
    """Return the keys of a lookup table, None if there are none to be had."""
    if table is None:
        return None
    kinds = op.node_def.attr
    keys = tf.raw_ops.LookupTableExportV2(
        table_handle=table, Tkeys=kinds["Tin"].type, Tvalues=kinds["Tout"].type
    ).keys.numpy()
    return keys if len(keys) else None


_SEED = 20_203
# 0 and 1 are valid as any id, class, segment or flag of which nothing is known.
_SMALL_INTEGERS = 2
# For scalars that steer a step: a rate, or a probability to keep. Zero could divide.
_SCALAR = 0.5
# Enough words for lookups of different buckets.
_WORDS = np.array([f"word{i}" for i in range(100)], dtype=object)


def make_batches(function: Any, specs: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return different batches that a concrete function takes; ``names`` are those of its inputs.

    Raises:
        ModelError: an input is of a type that has no values.
    """
    random = np.random.default_rng(_SEED)
    domains = input_domains(function)
    flat = tf.nest.flatten(specs)
    for spec, name in zip(flat, names, strict=True):
        if spec.dtype in (tf.resource, tf.variant) or spec.dtype.is_quantized:
            raise ModelError(
                f"input {name!r} has type {spec.dtype.name}, for which no values can be made up",
                hint="give example `inputs` in a Python file",
            )
    return tuple(
        tf.nest.pack_sequence_as(
            specs,
            [
                tf.constant(_values(random, spec, domain), spec.dtype)
                for spec, domain in zip(flat, domains, strict=True)
            ],
        )
        for _ in range(EXAMPLE_BATCHES)
    )


def resampled(batch: Any, batch_size: int) -> Any | None:
    """Return a batch of samples of one, some of them twice, in order; None if there can be none.

    There can be none where samples have numbers that rise from each to the next, which may stand
    for their places: indices of a sparse tensor, ends of ragged rows.
    """

    def is_of_samples(tensor: Any) -> bool:
        return bool(tensor.shape.rank) and tensor.shape[0] == batch_size

    of_samples = [tensor for tensor in tf.nest.flatten(batch) if is_of_samples(tensor)]
    if not of_samples or any(map(_rises, of_samples)):
        return None
    rows = np.sort(np.random.default_rng(_SEED).integers(batch_size, size=batch_size))
    return tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, rows) if is_of_samples(tensor) else tensor, batch
    )


def _rises(tensor: Any) -> bool:
    """Say whether integers rise from row to row, by the first number in which rows differ."""
    if not tensor.dtype.is_integer:
        return False
    rows = np.asarray(tensor).reshape(len(tensor), -1).tolist()
    return all(row < following for row, following in pairwise(rows))


def _values(random: np.random.Generator, spec: Any, domain: Domain) -> Any:
    shape = tuple(spec.shape)
    if domain.members is not None:
        return random.choice(domain.members, shape)
    if spec.dtype == tf.string:
        return random.choice(_WORDS, shape)
    if spec.dtype == tf.bool:  # A single one is a switch, such as `training`.
        return random.random(shape) < _SCALAR if shape else False
    dtype = spec.dtype.as_numpy_dtype
    if domain.below is not None or spec.dtype.is_integer:
        below = domain.below or _SMALL_INTEGERS
        if spec.dtype.is_integer:
            below = min(below, int(spec.dtype.max) + 1)
        return random.integers(below, size=shape).astype(dtype)
    if not shape:
        return np.asarray(_SCALAR, dtype)
    return random.standard_normal(shape).astype(dtype)
