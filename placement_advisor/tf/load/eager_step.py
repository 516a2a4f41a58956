"""One turn of a loop that runs op by op -> a step: its ops, made again in a graph.

They have the layers, devices and lines that they had, and those of a gradient are named after the
forward ops that they serve. What came out of iterators, and what else is as long as that, is the
batch. Control flow of Python is as it was in that turn, and so are sizes: such a step takes no
other batch.

Left out: ops of input pipelines.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter, defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction
from tensorflow.python.framework import op_def_library, op_def_registry, ops

from placement_advisor.errors import ModelError
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.load.eager_ops import SCOPES
from placement_advisor.tf.load.run_model_file import seen_from_here

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from placement_advisor.tf.answers import SourceLine
    from placement_advisor.tf.load.eager_ops import Loop, Op

_HINT = "put the step into a function with @tf.function: then that is what is analysed"
_PIPELINE = ("Iterator", "Dataset", "Optional", "DestroyResource", "DeleteMultiDevice")
_CALL = "PartitionedCall"  # What a called function is called in a graph.
# So few integers are sizes, axes or slices, and no batch.
_MOST_SIZES = 8


class Replay:
    """Ops of a turn, to be made again in a graph: called with the tensors of the batch, flat.

    ``origin`` has what ran op by op, by the names of the ops that were made of it last.
    """

    def __init__(self, loop: Loop) -> None:
        """Tell the batch among what the ops read.

        Raises:
            ModelError: they call what no graph can hold.
        """
        recorded, self._where = loop.step, loop.where
        self.origin: dict[str, Op] = {}
        self._ops = [op for op in recorded if not any(part in op.kind for part in _PIPELINE)]
        self._variables = {
            variable.handle._id: variable
            for variable in _all_of(tf.Variable)
            if getattr(variable, "handle", None) is not None and hasattr(variable.handle, "_id")
        }
        self._functions = {tf.compat.as_str(each.name): each for each in _all_of(AtomicFunction)}
        for op in self._ops:
            self._check(op)
        made = {tensor for op in self._ops for tensor in op.outputs}
        drawn = {t._id: t for op in recorded for t in op.results}
        outside: dict[int, Any] = {}
        for op in self._ops:
            for number, given in zip(op.inputs, op.given, strict=True):
                if number not in made and number not in outside:
                    outside[number] = drawn.get(number, given)
        self._outside = {number: self._found(given) for number, given in outside.items()}
        # An array is another tensor for each op that it is handed to.
        parts: dict[Any, list[int]] = defaultdict(list)
        for number in self._told(drawn, loop.old):
            value = tf.io.serialize_tensor(self._outside[number]).numpy()
            parts[number if number in drawn else value].append(number)
        self._batch = list(parts.values())
        self.batch = tuple(self._outside[first] for first, *_ in self._batch)
        sizes = [int(tensor.shape[0]) for tensor in self.batch if tensor.shape.rank]
        self.size = sizes[0] if sizes else None
        read = {number for op in self._ops for number in op.inputs}
        self._unread = [i for op in self._ops for i in op.outputs if i not in read]

    def __call__(self, batch: Sequence[Any]) -> Any:
        """Make the ops, and return what the loop looks at: numbers that no op reads.

        Raises:
            ModelError: the batch has other shapes, or an op cannot be made in a graph.
        """
        for tensor, was in zip(batch, self.batch, strict=True):
            if tensor.shape != was.shape:
                raise ModelError(
                    f"its loop runs op by op, and takes no batch but that of {self.size}; "
                    "as a @tf.function it would"
                )
        graph = ops.get_default_graph()
        tensors = dict(self._outside)
        for numbers, tensor in zip(self._batch, batch, strict=True):
            tensors |= dict.fromkeys(numbers, tensor)
        before = global_state.get_global_attribute(SCOPES)
        self.origin.clear()
        try:
            for op, name in zip(self._ops, _names(self._ops), strict=True):
                global_state.set_global_attribute(SCOPES, list(op.scopes))
                inputs = [self._input(graph, number, tensors[number], name) for number in op.inputs]
                with tf.device(op.device):
                    outputs = self._made(graph, op, inputs, name)
                tensors.update(zip(op.outputs, outputs, strict=True))
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise self._refusal(f"{_words(op)}: {error}") from error
        finally:
            global_state.set_global_attribute(SCOPES, before)
        unread = [tensors[number] for number in self._unread]
        numbers = [each for each in unread if each.dtype.is_floating and each.shape.rank == 0]
        return numbers or tf.constant(0.0)

    def _input(self, graph: Any, number: int, tensor: Any, name: str) -> Any:
        if number in self._variables:
            graph.watch_variable(self._variables[number])  # It has its name by that.
        elif hasattr(tensor, "numpy") and tensor.dtype not in (tf.resource, tf.variant):
            return graph.capture(tensor, name=f"{name}/Const")
        return tensor

    def _made(self, graph: Any, op: Op, inputs: list[Any], name: str) -> Any:
        function = self._functions.get(op.kind)
        if function is not None:
            scope = name.rpartition("/")[0]
            with ops.name_scope(f"{scope}/") if scope else nullcontext():
                return function.call_flat(*inputs) or ()
        kinds = {attr.name: attr.type for attr in op_def_registry.get(op.kind).attr}
        attrs = {
            key: op_def_library.value_to_attr_value(value, kinds[key], key)
            for key, value in zip(op.attrs[::2], op.attrs[1::2], strict=True)
            if key in kinds and (value is not None or kinds[key] == "shape")
        }
        made = graph._create_op_internal(op.kind, inputs, name=name, attrs=attrs)
        self.origin[made.name] = op
        return made.outputs

    def _check(self, op: Op) -> None:
        if op.kind in self._functions:
            return
        definition = op_def_registry.get(op.kind)
        if definition is None:
            raise self._refusal(f"{_words(op)}: that function is gone")
        if op.kind in PYTHON_CALLS:
            raise self._refusal(f"{_words(op)} calls Python")
        if any(attr.type == "func" for attr in definition.attr):
            raise self._refusal(f"{_words(op)} calls a function")

    def _found(self, given: Any) -> Any:
        tensor = given() if isinstance(given, weakref.ref) else given
        if tensor is None:
            raise self._refusal("a turn reads a large tensor that the one before has made")
        return tensor

    def _refusal(self, why: str) -> ModelError:
        at = "" if self._where is None else f" at {_shown(self._where)}"
        return ModelError(
            f"the loop{at} runs op by op, and is no step that can be traced: {why}", hint=_HINT
        )

    def _told(self, drawn: Container[int], old: int) -> list[int]:
        """Return what is the batch of what came from outside."""
        arrays = {
            number: tensor
            for number, tensor in self._outside.items()
            if tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.rank
        }
        sure = [number for number in arrays if number in drawn]
        likely = [number for number, tensor in arrays.items() if not _may_be_sizes(tensor)]
        if sure or any(number > old for number in likely):
            likely = [number for number in likely if number > old]
        first = next(iter(sure or likely), None)
        if first is None:
            return []
        size = arrays[first].shape[0]
        return [
            number
            for number in arrays
            if number in sure or (number in likely and arrays[number].shape[0] == size)
        ]


def _names(recorded: Sequence[Op]) -> list[str]:
    """Return names as ops have them in a graph: each call of a layer has a scope of its own."""
    scopes: dict[int, str] = {}
    count: Counter[str] = Counter()
    names: dict[Op, str] = {}

    def unique(name: str) -> str:
        count[name] += 1
        return name if count[name] == 1 else f"{name}_{count[name] - 1}"

    def scope_of(op: Op) -> str:
        if op.serves is not None:
            return f"gradient_tape/{names.get(op.serves, op.serves.kind)}"
        scope, plain = "", "/".join(each.name for each in op.scopes)
        for each in op.scopes:
            if id(each) not in scopes:
                scopes[id(each)] = unique(f"{scope}{each.name}")
            scope = f"{scopes[id(each)]}/"
        found = op.scope
        if found.startswith(plain):  # There is no other scope around.
            found = (scope + found.removeprefix(plain).lstrip("/")).rstrip("/")
        return f"gradient_tape/{found}".rstrip("/") if op.is_gradient else found

    for op in recorded:
        kind = op.kind if op_def_registry.get(op.kind) is not None else _CALL
        names[op] = unique(f"{scope_of(op)}/{kind}".lstrip("/"))
    return list(names.values())


def _words(op: Op) -> str:
    return f"{op.kind} at {_shown(op.frames[-1])}" if op.frames else op.kind


def _shown(line: SourceLine) -> str:
    return f"{seen_from_here(line.file)}:{line.line}"


def _may_be_sizes(tensor: Any) -> bool:
    return bool(
        tensor.shape.rank == 1
        and tensor.dtype in (tf.int32, tf.int64)
        and tensor.shape[0] <= _MOST_SIZES
    )


def _all_of(kind: Any) -> Iterator[Any]:
    return (each for each in gc.get_objects() if issubclass(type(each), kind))
