"""Changes steps so that their results can be compared, and measures how far two tensors differ.

Draws become constant, small sums are shown, and lookups are rounded alike.
"""

from __future__ import annotations

import importlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from placement_advisor.candidates.batch_split.split_graph import replica_copy
from placement_advisor.graph.op_work import elementwise
from placement_advisor.measurement.verification import EXACT_KINDS, farthest, largest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from placement_advisor.tf.trace.bundle import Bundle


# Of the run from rounded values that candidates are compared with.
ROUNDING_SEED = 20_202
# Below this a tensor counts as zero: relative differences of rounding noise mean nothing.
_NEGLIGIBLE = 1e-6


def rounded(values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return values with the last digit of every float moved up or down at random."""
    random = np.random.default_rng(seed)

    def moved(array: Any) -> Any:
        if array.dtype.kind != "f":
            return array
        digit = np.finfo(array.dtype).eps
        factors = np.array([1 - digit, 1 + digit], array.dtype)
        return array * factors[random.integers(2, size=array.shape)]

    return {name: moved(np.asarray(value)) for name, value in values.items()}


def relative_difference(ours: Any, theirs: Any, negligible: float = _NEGLIGIBLE) -> float:
    """Return the largest difference of two arrays, relative to the second one's largest value.

    That value counts as ``negligible`` at least.
    Integers, truth values and texts are equal (0) or not (infinite). NaN equals NaN, and an
    infinite value itself; either is infinitely far from anything else.
    """
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    if ours.dtype.kind in EXACT_KINDS:
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    apart = farthest(ours, theirs)
    return apart / max(largest(theirs), negligible) if apart else 0.0


_UNIFORM, _NORMAL = 0.97, 0.5
_PLAIN = "gen_random_ops"
_STATELESS, _STATELESS_V2 = "gen_stateless_random_ops", "gen_stateless_random_ops_v2"
# Ops that draw: the module and function of TensorFlow's Python that make one, and the constant.
_DRAWN = {
    "RandomUniform": (_PLAIN, "random_uniform", _UNIFORM),
    "RandomStandardNormal": (_PLAIN, "random_standard_normal", _NORMAL),
    "TruncatedNormal": (_PLAIN, "truncated_normal", _NORMAL),
    "StatelessRandomUniform": (_STATELESS, "stateless_random_uniform", _UNIFORM),
    "StatelessRandomUniformV2": (_STATELESS_V2, "stateless_random_uniform_v2", _UNIFORM),
    "StatelessRandomNormal": (_STATELESS, "stateless_random_normal", _NORMAL),
    "StatelessRandomNormalV2": (_STATELESS_V2, "stateless_random_normal_v2", _NORMAL),
    "StatelessTruncatedNormal": (_STATELESS, "stateless_truncated_normal", _NORMAL),
    "StatelessTruncatedNormalV2": (_STATELESS_V2, "stateless_truncated_normal_v2", _NORMAL),
}


# Ops that look rows up, and the attribute that has their type.
_LOOKUPS = {
    "Gather": "Tparams",
    "GatherNd": "Tparams",
    "GatherV2": "Tparams",
    "ResourceGather": "dtype",
    "ResourceGatherNd": "dtype",
}


@dataclass(frozen=True, slots=True)
class Cancelling:
    """An input of an op that makes rounding noise of it; ``tensor`` is what it reads there."""

    op: str
    place: int
    tensor: str


def with_constant_draws(bundle: Bundle) -> Bundle:
    """Return a step whose ops draw a constant."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(bundle.graph_def)
    functions = ((function.node_def, ":output:0") for function in graph_def.library.function)
    for nodes, port in ((graph_def.node, ""), *functions):
        for node in list(nodes):
            if node.op in _DRAWN:
                _fill(node, nodes.add(), port)
    return replace(bundle, graph_def=graph_def)


@contextmanager
def tracing_constant_draws() -> Iterator[None]:
    """Let what is traced within draw constants: the same as `with_constant_draws` makes of it."""

    def drawing(number: float) -> Callable[..., Any]:
        def draw(shape: Any, *others: Any, **named: Any) -> Any:
            types = [each for each in (*others, *named.values()) if isinstance(each, tf.DType)]
            return tf.fill(shape, tf.cast(number, types[0] if types else tf.float32))

        return draw

    with ExitStack() as patches:
        for module, function, number in _DRAWN.values():
            owner = importlib.import_module(f"tensorflow.python.ops.{module}")
            patches.callback(setattr, owner, function, getattr(owner, function))
            setattr(owner, function, drawing(number))
        yield


def goes_on_drawing(bundle: Bundle) -> bool:
    """Say whether ops of a step draw what no constant is known for."""
    functions = (function.node_def for function in bundle.graph_def.library.function)
    nodes = chain(bundle.graph_def.node, *functions)
    return any(node.op in elementwise.RANDOM_FORMULAS and node.op not in _DRAWN for node in nodes)


def without_cancelling(bundle: Bundle, found: Sequence[Cancelling]) -> Bundle:
    """Return a step in which those inputs lack their negative elements, in every replica."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(bundle.graph_def)
    nodes = {node.name: node for node in graph_def.node}
    for each in found:
        for name in copies(each.op, nodes):
            node = nodes[name]
            relu = graph_def.node.add(name=shown_name(name, each.place), op="Relu")
            relu.input.append(node.input[each.place])
            relu.attr["T"].type = node.attr["T"].type
            node.input[each.place] = relu.name
    return replace(bundle, graph_def=graph_def)


def with_rounded_lookups(bundle: Bundle, seed: int) -> tuple[Bundle, dict[str, str]]:
    """Return a step in which rows that are looked up differ from one another in the last digit.

    And, for each op that was added, the op that has to be on the same device.
    """
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(bundle.graph_def)
    rounded: dict[str, str] = {}
    beside: dict[str, str] = {}
    for node in list(graph_def.node):
        dtype = tf.as_dtype(node.attr[_LOOKUPS[node.op]].type) if node.op in _LOOKUPS else None
        if dtype is None or not dtype.is_floating:
            continue
        added = tf.Graph()
        with added.as_default():
            rows = tf.compat.v1.placeholder(dtype, name="rows")
            digits = tf.random.stateless_normal(tf.shape(rows), (seed, len(rounded)), dtype=dtype)
            tf.multiply(
                rows, 1 + dtype.as_numpy_dtype(np.finfo(np.float32).eps) * digits, "rounded"
            )
        prefix = f"{node.name}/rounding/"
        for each in added.as_graph_def().node:
            if each.name == "rows":
                continue
            each.name = prefix + each.name
            each.input[:] = [node.name if name == "rows" else prefix + name for name in each.input]
            graph_def.node.append(each)
            beside[each.name] = node.name
        rounded[node.name] = f"{prefix}rounded"
    for node in graph_def.node:
        if node.name not in beside:
            node.input[:] = [rounded.get(name.removesuffix(":0"), name) for name in node.input]
    return replace(bundle, graph_def=graph_def), beside


def copies(op: str, known: Collection[str]) -> list[str]:
    """Return an op of the unsplit step, or its copies in replicas."""
    if op in known:
        return [op]
    found: list[str] = []
    while (name := replica_copy(op, len(found))) in known:
        found.append(name)
    return found


def shown_name(op: str, place: int) -> str:
    """Return the name of what drops an input's negative elements."""
    return f"{op}/shown_{place}"


def _fill(node: Any, value: Any, port: str) -> None:
    dtype, (*_, number) = node.attr["dtype"].type, _DRAWN[node.op]
    shape_type = node.attr["Tshape"] if "Tshape" in node.attr else node.attr["T"]
    index_type = shape_type.type or tf.int32.as_datatype_enum
    value.name, value.op = f"{node.name}/drawn", "Const"
    value.attr["dtype"].type = dtype
    proto = tf.make_tensor_proto(number, dtype=tf.as_dtype(dtype))
    value.attr["value"].tensor.CopyFrom(proto)
    waits = [reference for reference in node.input if reference.startswith("^")]
    shape = node.input[0]
    del node.input[:]
    node.input.extend([shape, f"{value.name}{port}", *waits])
    node.op = "Fill"
    node.attr.clear()
    node.attr["T"].type = dtype
    node.attr["index_type"].type = index_type
