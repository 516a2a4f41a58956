"""What loops and conditionals of small functions take, seen from a child with TensorFlow."""

import tensorflow as tf

from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS
from placement_advisor.tf.trace.flat_step import flatten
from placement_advisor.tf.trace.op_graph_builder import composites_of, op_graph

_STATE = tf.Variable(tf.ones((3, 3)))


def composites(step):
    """Return trips, flops, bytes and the kinds' names within, by composite op of a step below."""
    function = tf.function(globals()[step], autograph="range" in step)
    traced = function.get_concrete_function(tf.TensorSpec((2, 3)))
    flat = flatten(traced, {})
    return {
        name: (found.trips, found.work.flops, found.work.bytes_accessed, sorted(found.members))
        for name, found in composites_of(flat).items()
    }


def inside(step):
    """Return what each composite op of a step below runs, and where it can run."""
    traced = tf.function(globals()[step]).get_concrete_function(tf.TensorSpec((2, 3)))
    flat = flatten(traced, {})
    graph = op_graph(flat, composites_of(flat), {}, is_tf32_allowed=True)
    return {
        op.kind: (op.inside and tuple(op.inside), sorted(op.device_kinds))
        for op in graph.ops
        if op.kind in COMPOSITE_KINDS
    }


def marked_twice(x):
    """Mark rows by an op that has no GPU kernel for truth values, or none."""

    def marks():
        marked = tf.scatter_nd([[1]], x[0, :1] > 0.0, (3,))
        return tf.where(tf.logical_not(marked), x, -x)

    return tf.cond(tf.reduce_sum(x) > 0.0, marks, lambda: x)


def marked_in_each_trip(x):
    return tf.while_loop(lambda i, _: i < 4, lambda i, x: (i + 1, marked_twice(x)), (0, x))[1]


def four_products(x):
    """Multiply four times with a variable."""
    return tf.while_loop(lambda i, _: i < 4, lambda i, x: (i + 1, x @ _STATE), (0, x))[1]


def four_products_with_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = four_products(x)
    return tape.gradient(y, x)


def until_small(x):
    """Halve as long as the data say so."""
    return tf.while_loop(lambda x: tf.reduce_sum(x) > 1.0, lambda x: (x / 2.0,), (x,))[0]


def one_or_two_products(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x @ _STATE @ _STATE, lambda: x @ _STATE)


def one_product_or_until_small(x):
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: x @ _STATE, lambda: until_small(x))


def product_that_nobody_reads(x):
    def body(i, x):
        _ = x @ _STATE
        return i + 1, x + 1.0

    return tf.while_loop(lambda i, _: i < 4, body, (0, x))[1]


def doubled_rows(x):
    """Let one value grow, and another follow it a trip later."""
    shapes = (tf.TensorShape(()), tf.TensorShape((None, 3)), tf.TensorShape((None, 3)))
    return tf.while_loop(
        lambda i, *_: i < 4, lambda i, x, _: (i + 1, tf.concat([x, x], 0), x), (0, x, x), shapes
    )[2]


def loop_in_a_loop(x):
    """Multiply 3 × 4 times."""
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, four_products(x)), (0, x))[1]


def called_with_any_batch(x):
    """Call a function that was traced for any batch, as those of a SavedModel are."""
    spec = tf.TensorSpec((None, 3))
    return tf.function(four_products, autograph=False, input_signature=[spec])(x)


def five_products_in_a_range(x):
    for _ in tf.range(5):
        x = x @ _STATE
    return x
