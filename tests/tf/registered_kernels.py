"""Nodes by hand, and where their ops can run, for children."""

import time

import tensorflow as tf
from graph_defs import placed_nodes
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry

from placement_advisor.tf.trace import device_kinds


def _node(kind, attributes):
    """Attributes are types by name, lists of them, texts as bytes, or numbers."""
    node = tf.compat.v1.NodeDef(name="op", op=kind)
    for name, value in attributes.items():
        match value:
            case str():
                node.attr[name].type = tf.as_dtype(value).as_datatype_enum
            case list():
                node.attr[name].list.type.extend(tf.as_dtype(v).as_datatype_enum for v in value)
            case bytes():
                node.attr[name].s = value
            case int():
                node.attr[name].i = value
    return node


def _answer(found):
    return sorted(found.device_kinds), found.host_outputs


def placement(kind, attributes):
    node = _node(kind, attributes)
    before = node.SerializeToString(deterministic=True)
    found = device_kinds.kernel_placement(node, {"unrelated": frozenset()})
    assert node.SerializeToString(deterministic=True) == before
    return _answer(found)


def in_graph(build):
    """Return where the ops of one of the functions below can run, by kind of op."""
    graph = tf.Graph()
    with graph.as_default():
        globals()[build]()
    graph_def = graph.as_graph_def()
    functions = device_kinds.function_device_kinds(graph_def.library.function)
    return {
        node.op: _answer(device_kinds.kernel_placement(node, functions)) for node in graph_def.node
    }


def _lookup(key):
    table = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
    found = tf.raw_ops.LookupTableFindV2(
        table_handle=table, keys=key, default_value=tf.constant(0, tf.int64)
    )
    found.set_shape([])
    return found


def _start():
    return tf.compat.v1.placeholder(tf.int64, [], name="start")


def plain_loop():
    tf.while_loop(lambda x: x < 9, lambda x: x + 1, [_start()])


def loop_with_lookup():
    tf.while_loop(lambda x: x < 9, _lookup, [_start()])


def loop_with_lookup_in_its_condition():
    tf.while_loop(lambda x: _lookup(x) < 9, lambda x: x + 1, [_start()])


def loop_with_conditional_with_call_of_lookup():
    called = tf.function(_lookup)
    tf.while_loop(
        lambda x: x < 9, lambda x: tf.cond(x > 3, lambda: called(x), lambda: x + 1), [_start()]
    )


def switch_with_lookup():
    x = _start()
    tf.switch_case(tf.cast(x, tf.int32), [lambda: x, lambda: _lookup(x)])


def circle_of_functions():
    """Return the kinds of two functions that call each other, and of one that calls neither."""
    calls = {"ping": ["pong"], "pong": ["ping", "StringLower"], "alone": ["Tanh"]}
    functions = []
    for name, kinds in calls.items():
        function = function_pb2.FunctionDef()
        function.signature.name = name
        for kind in kinds:
            node = function.node_def.add()
            node.name = node.op = kind
            node.attr["T"].type = tf.float32.as_datatype_enum
        functions.append(function)
    found = device_kinds.function_device_kinds(functions)
    return {name: sorted(kinds) for name, kinds in found.items()}


def placed_on_a_gpu(gpu):
    """Return the devices of ops and constants that a placement puts on a GPU, all of them."""
    raw = tf.raw_ops
    graph = tf.Graph()
    with graph.as_default():
        floats, counts = tf.ones([2, 2], name="floats"), tf.ones([2, 2], tf.int32, name="counts")
        raw.MatMul(a=floats, b=floats, name="float_product")
        raw.MatMul(a=counts, b=counts, name="int_product")
        raw.AddV2(x=counts, y=counts, name="int_sum")
        tf.identity(tf.constant(["text"], name="words"), name="same_words")
        for name, dtype in (("weights", tf.float32), ("count", tf.int32)):
            handle = raw.VarHandleOp(dtype=dtype, shape=[2, 2], name=name)
            value = floats if dtype == tf.float32 else counts
            raw.AssignVariableOp(resource=handle, value=value, name=f"{name}_write")
            raw.ReadVariableOp(resource=handle, dtype=dtype, name=f"{name}_read")
    wanted = {op.name: gpu for op in graph.get_operations()}
    return {node.name: node.device for node in placed_nodes(graph.as_graph_def(), wanted)}


_ARGUMENTS = {
    "MatMul": ("a", "b"),
    "Maximum": ("x", "y"),
    "Tanh": ("x",),
    "ClipByValue": ("t", "clip_value_min", "clip_value_max"),
}


def told_and_done_on_this_cpu(types):
    """Run ops of all types that are theirs; return where the answer and TensorFlow differ."""
    different = []
    for kind in _ARGUMENTS:
        (allowed,) = (
            attribute.allowed_values.list.type
            for attribute in op_def_registry.get(kind).attr
            if attribute.name == "T"
        )
        for type_name in types:
            if tf.as_dtype(type_name).as_datatype_enum not in allowed:
                continue
            told = "CPU" in placement(kind, {"T": type_name})[0]
            x = tf.zeros([2, 2], type_name)
            try:
                getattr(tf.raw_ops, kind)(**dict.fromkeys(_ARGUMENTS[kind], x))
                done = True
            except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
                done = False
            if told != done:
                different.append((kind, type_name, f"told {told}, done {done}"))
    return different


def seconds_for(count):
    """Return what ``count`` answers for ops that come again and again take."""
    nodes = [
        _node("AddV2", {"T": "float32"}),
        _node("Reshape", {"T": "float32", "Tshape": "int32"}),
        _node("ReadVariableOp", {"dtype": "float32"}),
        _node("ResourceApplyAdam", {"T": "float32"}),
        _node("Unpack", {"T": "float32", "num": 3}),
    ]
    for node in nodes:
        device_kinds.kernel_placement(node)
    begin = time.process_time()
    for i in range(count):
        device_kinds.kernel_placement(nodes[i % len(nodes)], {"f": frozenset()})
    return time.process_time() - begin
