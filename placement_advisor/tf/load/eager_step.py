"""Records one turn of a loop that runs op by op, and makes its ops again in a graph as a step."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections import Counter, defaultdict, deque
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop, context
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction
from tensorflow.python.framework import op_callbacks, op_def_library, op_def_registry, ops

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import UPDATE_KINDS
from placement_advisor.tf.answers import PYTHON_CALLS, SourceLine
from placement_advisor.tf.load.model_source import shown_line

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from types import FrameType


# What Keras calls the layers that are being called.
SCOPES = "name_scope_stack"
_SOURCES = ("IteratorGetNext", "OptionalGetValue")
# Without an update behind so many gradients of a line, they train nothing.
_MOST_WITHOUT_UPDATE = 40
# Where two turns have more, nobody waits for a graph of one.
_MOST_OPS = 200_000
# What one turn leaves for the next is kept up to this size; more may be gone by then.
_KEPT_ELEMENTS = 1 << 14


class _Frame(NamedTuple):
    filename: str
    lineno: int


@dataclass(slots=True, eq=False, kw_only=True)
class Op:
    """An op that has run; tensors are told apart by TensorFlow's number of them.

    ``given`` are its inputs, as they were or as references to them, ``results`` what came out of an
    iterator. ``scopes`` are Keras' own within ``scope``. ``frames`` are the user's lines, outermost
    first. A gradient's op ``serves`` a forward op, if it is known.
    """

    kind: str
    inputs: tuple[int, ...]
    given: tuple[Any, ...]
    attrs: tuple[Any, ...]
    outputs: tuple[int, ...]
    results: tuple[Any, ...]
    scope: str
    scopes: tuple[Any, ...]
    device: str | None
    frames: tuple[SourceLine, ...]
    is_gradient: bool
    serves: Op | None

    # What a `tf.Operation` says of where it was made.
    @property
    def traceback(self) -> Op:
        """The op itself, which knows its lines."""
        return self

    def get_user_frames(self) -> list[Any]:
        """Return the user's lines, outermost first."""
        return [_Frame(*line) for line in self.frames]


@dataclass(slots=True)
class EagerLoop:
    """A loop that asks a tape for gradients, known by the user's lines that lead there.

    ``marks`` are where its last turns began among the ops of the recording, ``began_s`` when the
    last one did, ``turn_s`` is what the one before took. ``step`` are the ops of one turn, empty
    until the loop has turned twice; tensors with numbers up to ``old`` were there before.
    """

    lines: tuple[SourceLine, ...]
    tape: weakref.ref[Any] | None = None
    marks: deque[int] = field(default_factory=lambda: deque(maxlen=3))
    began_s: float = 0.0
    turn_s: float = 0.0
    without_update: int = 0
    step: list[Op] = field(default_factory=list)
    old: int = 0

    @property
    def where(self) -> SourceLine | None:
        """The innermost of its lines."""
        return self.lines[-1] if self.lines else None


class Recording:
    """What runs op by op in one thread; nothing before a gradient is asked for."""

    def __init__(self, is_users: Callable[[str], bool]) -> None:
        """Record nothing yet; ``is_users`` tells files of the program from installed ones."""
        self._ops: list[Op] = []
        self._is_users = is_users
        self._loops: dict[tuple[SourceLine, ...], EagerLoop] = {}
        self._futile: set[tuple[SourceLine, ...]] = set()
        self._trained: set[int] = set()
        self._thread: int | None = None
        self._last_update = -1
        self._made: dict[int, Op] = {}
        self._readers: dict[int, list[Op]] = defaultdict(list)
        self._gradient_of: dict[int, set[int]] = defaultdict(set)
        self._depth = 0  # Of calls for a gradient.
        self._serves: Op | None = None

    def turned(self, tape: Any, sources: Any) -> EagerLoop | None:
        """Note that a tape is asked for gradients; return the loop around if that has turned."""
        lines = self._frames()
        handles = [_handle(each) for each in tf.nest.flatten(sources)]
        trained = {each._id for each in handles if each is not None}
        if not trained or lines in self._futile or self._thread not in (None, get_ident()):
            return None
        if len(self._ops) >= _MOST_OPS:
            self._give_up(*self._loops)
        self._trained |= trained
        if self._thread is None:
            self._begin()
        now_s = time.monotonic()
        loop = self._loops.get(lines)
        if loop is None:
            loop = self._loops[lines] = EagerLoop(lines)
        elif loop.tape is not None and loop.tape() is tape:
            return None
        elif self._last_update < loop.marks[-1]:
            loop.without_update += 1
            if loop.without_update > _MOST_WITHOUT_UPDATE:
                self._give_up(lines)
            return None
        loop.tape = weakref.ref(tape)
        loop.marks.append(len(self._ops))
        loop.turn_s, loop.began_s, loop.without_update = now_s - loop.began_s, now_s, 0
        if len(loop.marks) == loop.marks.maxlen:
            first, second, third = loop.marks
            begin, end = self._begin_of_body(first, second), self._begin_of_body(second, third)
            if not loop.step or end - begin <= len(loop.step):
                loop.step = self._ops[begin:end]
                loop.old = max((i for op in self._ops[:begin] for i in op.outputs), default=0)
        self._forget()
        return loop if len(loop.marks) > 1 else None

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        """Take ops for those of a gradient."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def end(self) -> None:
        """Record no more."""
        if self._thread is None:
            return
        pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)
        if self._thread == get_ident():
            op_callbacks.remove_op_callback(self._note)
        self._thread = None
        self._clear()

    def _give_up(self, *loops: tuple[SourceLine, ...]) -> None:
        self._futile.update(loops)
        for lines in loops:
            del self._loops[lines]
        if not self._loops:
            self.end()

    def _begin(self) -> None:
        self._thread, self._last_update = get_ident(), -1
        op_callbacks.add_op_callback(self._note)
        pywrap_tfe.TFE_Py_RegisterGradientFunction(self._differentiate)

    def _note(
        self,
        kind: Any,
        inputs: Sequence[Any],
        attrs: tuple[Any, ...],
        outputs: Any,
        name: str | None = None,
        graph: Any = None,
    ) -> None:
        if graph is not None or self._thread != get_ident() or len(self._ops) >= _MOST_OPS:
            return
        tensors = [each for each in inputs if hasattr(each, "_id")]
        results = [each for each in outputs or () if hasattr(each, "_id")]
        kind = tf.compat.as_str(kind)
        op = Op(
            kind=kind,
            inputs=tuple(each._id for each in tensors),
            given=tuple(_kept(each) if each._id in self._made else each for each in tensors),
            attrs=attrs,
            outputs=tuple(each._id for each in results),
            results=tuple(results) if kind.startswith(_SOURCES) else (),
            scope=ops.get_name_scope(),
            scopes=tuple(global_state.get_global_attribute(SCOPES) or ()),
            device=context.context().device_name or None,
            frames=self._frames(),
            is_gradient=self._depth > 0,
            serves=self._serves,
        )
        if kind == "AddN":  # Gradients that add up.
            served: set[int] = set().union(*(self._gradient_of.get(i, ()) for i in op.inputs))
            self._gradient_of[op.outputs[0]] |= served
        self._keep(op)

    def _keep(self, op: Op) -> None:
        if self._updates(op):
            self._last_update = len(self._ops)
        self._ops.append(op)
        self._made.update(dict.fromkeys(op.outputs, op))
        for each in op.inputs:
            self._readers[each].append(op)

    def _updates(self, op: Op) -> bool:
        return op.kind.startswith(UPDATE_KINDS) and not self._trained.isdisjoint(op.inputs[:1])

    def _begin_of_body(self, first: int, stop: int) -> int:
        """Return where, behind the last update, the line comes that stands first of all."""
        begin = max(
            (i + 1 for i in range(first, stop) if self._updates(self._ops[i])), default=first
        )
        lines = {
            i: tuple(line.line for line in self._ops[i].frames)
            for i in range(begin, stop)
            if self._ops[i].frames
        }
        return min(lines, key=lambda i: (lines[i], i), default=stop)

    def _forget(self) -> None:
        """Forget what lies before all loops, and what gradients have served."""
        first = min(loop.marks[0] for loop in self._loops.values())
        kept = self._ops[first:]
        for loop in self._loops.values():
            loop.marks = deque((mark - first for mark in loop.marks), loop.marks.maxlen)
        last_update = self._last_update - first
        self._clear()
        for op in kept:
            self._keep(op)
        self._last_update = last_update

    def _clear(self) -> None:
        self._ops = []
        for index in (self._made, self._readers, self._gradient_of):
            index.clear()

    def _frames(self) -> tuple[SourceLine, ...]:
        found = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._is_users(frame.f_code.co_filename):
                found.append(SourceLine(frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return tuple(reversed(found))

    def _differentiate(
        self,
        kind: str,
        attrs: Any,
        count: int,
        inputs: Any,
        outputs: Any,
        gradients: Any,
        *rest: Any,
    ) -> Any:
        """Compute a gradient as TensorFlow does, knowing which op it is of."""
        original = backprop._gradient_function
        if self._thread != get_ident() or not tf.executing_eagerly():
            return original(kind, attrs, count, inputs, outputs, gradients, *rest)
        before, self._serves = self._serves, self._forward(kind, inputs, outputs, gradients)
        try:
            found = original(kind, attrs, count, inputs, outputs, gradients, *rest)
            if self._serves is not None:
                flat = found if isinstance(found, list | tuple) else [found]
                for tensor, gradient in zip(self._serves.inputs, flat, strict=False):
                    for part in tf.nest.flatten(gradient, expand_composites=True):
                        if hasattr(part, "_id"):
                            self._gradient_of[part._id].add(tensor)
            return found
        finally:
            self._serves = before

    def _forward(self, kind: str, inputs: Any, outputs: Any, gradients: Any) -> Op | None:
        """Return the op that a gradient is of; TensorFlow hands over only what that needs."""
        ids = [each._id for each in outputs or () if hasattr(each, "_id")]
        for gradient in gradients or ():
            ids += self._gradient_of.get(getattr(gradient, "_id", -1), ())
        makers = [self._made[i] for i in ids if i in self._made]
        read = [each._id for each in inputs or () if hasattr(each, "_id")]
        makers += self._readers.get(read[0], ()) if read else ()
        return next((op for op in makers if op.kind == kind and {*read} <= {*op.inputs}), None)


def _kept(tensor: Any) -> Any:
    """Return what is kept of a tensor that an op has made: itself if it is small."""
    return tensor if tensor._num_elements() <= _KEPT_ELEMENTS else weakref.ref(tensor)


def _handle(source: Any) -> Any | None:
    """Return the handle of a variable of TensorFlow or Keras, None of anything else."""
    if isinstance(getattr(source, "value", None), tf.Variable):
        source = source.value
    handle = getattr(source, "handle", None) if isinstance(source, tf.Variable) else None
    return handle if hasattr(handle, "_id") else None


_HINT = "put the step into a function with @tf.function: then that is what is analysed"
_PIPELINE = ("Iterator", "Dataset", "Optional", "DestroyResource", "DeleteMultiDevice")
_CALL = "PartitionedCall"  # What a called function is called in a graph.
# So few integers are sizes, axes or slices, and no batch.
_MOST_SIZES = 8


class Replay:
    """Ops of a turn, to be made again in a graph: called with the tensors of the batch, flat.

    ``origin`` has what ran op by op, by the names of the ops that were made of it last.
    """

    def __init__(self, loop: EagerLoop) -> None:
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
            if _handle(variable) is not None
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
        at = "" if self._where is None else f" at {shown_line(self._where)}"
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
    return f"{op.kind} at {shown_line(op.frames[-1])}" if op.frames else op.kind


def _may_be_sizes(tensor: Any) -> bool:
    return bool(
        tensor.shape.rank == 1
        and tensor.dtype in (tf.int32, tf.int64)
        and tensor.shape[0] <= _MOST_SIZES
    )


def _all_of(kind: Any) -> Iterator[Any]:
    return (each for each in gc.get_objects() if issubclass(type(each), kind))
