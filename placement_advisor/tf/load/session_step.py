"""Turns what a TF1 session was asked to run into a step on its variables, fed by its inputs.

Graphs with TF1's control flow are imported whole, since a `tf.function` cannot hold them inline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import UPDATE_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


_V1_CONTROL_FLOW = frozenset({"Enter", "RefEnter", "Switch", "RefSwitch", "Merge", "RefMerge"})


def has_v1_control_flow(graph: Any) -> bool:
    """Say whether a graph has loops or conditionals made of TF1's ops, outside its functions."""
    return any(op.type in _V1_CONTROL_FLOW for op in graph.get_operations())


def tracer_of(function: Any) -> Callable[[Any], Any]:
    """Return what traces a concrete function at other specs, its graph imported as it is."""
    graph = function.graph
    graph_def = graph.as_graph_def()

    def call(*given: Any) -> Any:
        inner = ops.get_default_graph()
        captured = [inner.capture(outer) for outer in function.captured_inputs]
        feeds = {
            placeholder.name: value
            for placeholder, value in zip(function.inputs, [*given, *captured], strict=True)
        }
        wanted = [tensor.name for tensor in function.outputs]
        outputs = tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=wanted, name=""
        )
        return tf.nest.pack_sequence_as(function.structured_outputs, outputs)

    return lambda specs: tf.compat.v1.wrap_function(call, tf.nest.flatten(specs))


_SOURCES = ("IteratorGetNext", "QueueDequeue", "ReaderRead")
_UPDATES = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")
_ASSIGNMENTS = ("Assign", "ResourceScatter", "Scatter")
# Fetches that may hold others another time, or be made anew for each run.
_CHANGING = (list, tuple, dict, str)
_READS = frozenset({"ReadVariableOp", "ResourceGather", "VariableV2", "Variable"})


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one run of a session computes: ops and tensors, and what comes in from outside.

    ``inputs`` are what is fed, then what is ``drawn`` from iterators and queues. One that
    ``prepares`` gives variables their first values.
    """

    graph: Any
    wanted: tuple[Any, ...]
    fed: tuple[Any, ...]
    drawn: tuple[Any, ...]
    trains: bool
    prepares: bool

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The tensors that come in from outside."""
        return (*self.fed, *self.drawn)

    def batch(self, feeds: Mapping[Any, Any], drawn: Sequence[Any]) -> tuple[Any, ...]:
        """Return the tensors of a run, as ``inputs``."""
        given = {self.graph.as_graph_element(key).name: value for key, value in feeds.items()}
        given |= {tensor.name: value for tensor, value in zip(self.drawn, drawn, strict=True)}
        return tuple(
            tf.constant(np.asarray(given[each.name], each.dtype.as_numpy_dtype), each.dtype)
            for each in self.inputs
        )


class Runs:
    """Tells runs of sessions apart by what they fetch and are fed, whatever its order."""

    def __init__(self) -> None:
        self._fetched: dict[Any, Fetched] = {}
        # By the identity of what was given, which it keeps as long as it lives.
        self._seen: dict[Any, tuple[Any, Fetched, Any]] = {}

    def told(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> tuple[Any, Fetched]:
        """Return what tells a run from others, and what it computes.

        Raises:
            TypeError, ValueError, KeyError: the graph has no such thing.
        """
        graph = session.graph
        # A run takes some hundred microseconds, of which this should be as few as can be.
        given = fetches if type(fetches) in (list, tuple) else (fetches,)
        same = (id(graph), *map(id, given), None, *map(id, feeds))
        known = self._seen.get(same)
        if known is not None:
            return known[:2]
        wanted, fed = list(_flat(fetches)), list(feeds)
        names = (graph.as_graph_element(each).name for each in wanted)
        fed_names = (graph.as_graph_element(each).name for each in fed)
        key = id(graph), tuple(sorted(names)), tuple(sorted(fed_names))
        step = self._fetched.get(key)
        if step is None:
            step = self._fetched[key] = _fetched(graph, wanted, fed)
        if not any(isinstance(each, _CHANGING) for each in (*given, *fed)):
            self._seen[same] = key, step, (*given, *fed)
        return key, step


def _fetched(graph: Any, fetches: Sequence[Any], feeds: Sequence[Any]) -> Fetched:
    """Return what a run computes."""
    wanted = tuple(
        graph.as_graph_element(each, allow_tensor=True, allow_operation=True) for each in fetches
    )
    fed = [graph.as_graph_element(each) for each in feeds]
    before = ancestors((getattr(each, "op", each) for each in wanted), fed)
    sources = [
        tensor
        for op in sorted(before, key=lambda op: op.name)
        if op.type.startswith(_SOURCES)
        for tensor in op.outputs
        if tensor not in fed
    ]
    trains = _trains(before)
    prepares = not trains and any(op.type.startswith(_ASSIGNMENTS) for op in before)
    return Fetched(graph, wanted, tuple(fed), tuple(sources), trains, prepares)


class SessionVariable(NamedTuple):
    """A session's variable, by the names of its handle and of itself, with what it held."""

    handle: str
    name: str
    value: Any
    trainable: bool


def session_variables(run: Callable[[Any], Any], step: Fetched) -> list[SessionVariable]:
    """Return the variables that a step touches; ``run`` runs its session.

    Raises:
        ModelError: some are of the old kind, whose place nobody can choose.
    """
    before = ancestors((getattr(each, "op", each) for each in step.wanted), step.inputs)
    old = next((op.name for op in before if op.type in ("VariableV2", "Variable")), None)
    if old is not None:
        raise ModelError(
            f"variable {old!r} is a reference variable (use_resource=False)",
            hint="leave use_resource=False out",
        )
    known = {
        variable.handle.op.name: variable
        for collection in ("variables", "local_variables")
        for variable in step.graph.get_collection(collection)
    }
    found = [known[op.name] for op in before if op.type == "VarHandleOp" and op.name in known]
    found.sort(key=lambda variable: variable.name)
    values = run(found) if found else []
    return [
        SessionVariable(each.handle.name, each.op.name, value, bool(each.trainable))
        for each, value in zip(found, values, strict=True)
    ]


def runner_of(
    step: Fetched, state: Sequence[SessionVariable]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any] | None]:
    """Return what computes the step of a batch within a graph of TF2.

    And what traces it at specs, where a `tf.function` cannot hold its loops and conditionals.
    """
    wanted = [getattr(each, "op", each).name for each in step.wanted]
    graph_def = tf.compat.v1.graph_util.extract_sub_graph(step.graph.as_graph_def(), wanted)
    variables = {
        each.handle: tf.Variable(each.value, name=each.name, trainable=each.trainable)
        for each in state
    }
    # What is given from outside is no part of the graph.
    given = {tensor.op.name for tensor in step.inputs}.union(each.name for each in state)
    kept = [node for node in graph_def.node if node.name not in given]
    for node in kept:  # Ops that stand with others have their device as well.
        node.attr.pop("_class", None)
    del graph_def.node[:]
    graph_def.node.extend(kept)
    tensors = [each.name for each in step.wanted if isinstance(each, tf.Tensor)]
    operations = [each.name for each in step.wanted if not isinstance(each, tf.Tensor)]

    def compute(batch: Any) -> Any:
        inner = ops.get_default_graph()
        feeds = dict(zip((tensor.name for tensor in step.inputs), batch, strict=True))
        for handle, variable in variables.items():
            inner.watch_variable(variable)  # It has its name by that.
            feeds[handle] = inner.capture(variable.handle)
        found = tf.graph_util.import_graph_def(
            graph_def, input_map=feeds, return_elements=[*tensors, *operations], name=""
        )
        with tf.control_dependencies(found[len(tensors) :]):
            return [tf.identity(tensor) for tensor in found[: len(tensors)]] or tf.constant(0.0)

    def trace(specs: Any) -> Any:
        function = tf.compat.v1.wrap_function(lambda *given: compute(given), tf.nest.flatten(specs))
        effects = (op for op in function.graph.get_operations() if op.op_def.is_stateful)
        function.graph.control_outputs = [op for op in effects if op.type.startswith(UPDATE_KINDS)]
        return function

    return compute, trace if has_v1_control_flow(step.graph) else None


def ancestors(wanted: Iterable[Any], fed: Iterable[Any]) -> set[Any]:
    """Return the ops that these need, themselves included; what is fed needs none."""
    given = {tensor.name for tensor in fed}
    found: set[Any] = set()
    ahead = list(wanted)
    while ahead:
        op = ahead.pop()
        if op in found:
            continue
        found.add(op)
        ahead += [tensor.op for tensor in op.inputs if tensor.name not in given]
        ahead += op.control_inputs
    return found


def _trains(before: set[Any]) -> bool:
    """Say whether ops update variables by what variables hold, which initializers do not."""
    if any(op.type.startswith(_UPDATES) for op in before):
        return True
    return any(
        op.type.startswith(_ASSIGNMENTS)
        and not _READS.isdisjoint(each.type for each in ancestors([op], ()))
        and "global_step" not in op.name
        for op in before
    )


def leaves(fetches: Any) -> Iterator[Any]:
    """Yield what is fetched; those of monitored sessions have hooks for keys."""
    if isinstance(fetches, dict):
        fetches = [*fetches.values()]
    if isinstance(fetches, list | tuple):
        for each in fetches:
            yield from leaves(each)
    elif fetches is not None:
        yield fetches


def _flat(fetches: Any) -> Iterator[Any]:
    for leaf in leaves(fetches):
        if isinstance(leaf, tf.SparseTensor | tf.IndexedSlices):
            parts = tf.nest.flatten(leaf, expand_composites=True)
            yield from (part for part in parts if part is not None)
        else:
            yield leaf
