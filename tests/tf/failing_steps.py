"""Errors as TensorFlow raises them, for children."""

import tensorflow as tf

from placement_advisor.tf.failures import run_failure

v1 = tf.compat.v1


def of_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        given = v1.placeholder(tf.float32)
        product = tf.matmul(given, tf.ones((3, 2)), name="product")
        return _caught(lambda: session.run(product, {given: [[1.0]] * 2}))


def of_a_function():
    product = tf.function(lambda given: tf.matmul(given, tf.ones((3, 2)), name="product"))
    concrete = product.get_concrete_function(tf.TensorSpec(None, tf.float32))
    return _caught(lambda: concrete(tf.ones((1, 1))))


def of_several_roots():
    message = (
        "Graph execution error:\n\nDetected at node 'a' defined at (most recent call last):\n"
        "Node: 'a'\nDetected at node 'b' defined at (most recent call last):\nNode: 'b'\n"
        "2 root error(s) found.\n  (0) INVALID_ARGUMENT:  first reason\n\t [[{{node a}}]]\n"
        "  (1) INVALID_ARGUMENT:  second reason\n"
    )
    return run_failure(tf.errors.InvalidArgumentError(None, None, message))


def of_memory():
    return run_failure(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nmore"))


def without_words():
    return run_failure(KeyError())


def of_user_code():
    @tf.function
    def product(given):
        return tf.reduce_sum(given) + given @ tf.ones((3, 2))

    return _caught(lambda: product(tf.ones((2, 2))))


def of_a_layer():
    import keras

    class Refusing(keras.layers.Layer):
        def call(self, given):
            raise ValueError("it takes no input. Not this one")

    return _caught(lambda: Refusing()(tf.ones((1, 2))))


def of_an_optimizer_in_a_conditional():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = tf.Variable(1.0)

    @tf.function
    def step():
        def exchange():
            context = tf.distribute.get_replica_context()
            context.merge_call(lambda of, each: of.extended.update(each, lambda v: v), (variable,))
            return 0

        return tf.cond(tf.constant(True), exchange, lambda: 0)

    return _caught(lambda: strategy.run(step))


def of_a_key():
    return run_failure(KeyError("weights"))


def _caught(call):
    try:
        call()
    except Exception as error:
        return run_failure(error)
    raise AssertionError("it did not fail")
