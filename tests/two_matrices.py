"""A model by hand with a matrix on each of two devices, as a file that the advisor takes."""

TWO_MATRICES = """\
import tensorflow as tf

FIRST, SECOND = "GPU:0", "GPU:1"
WIDTH, BATCH = 512, 4_096
with tf.device(FIRST):
    lower_kernel = tf.Variable(tf.zeros([WIDTH, WIDTH]), name="lower/kernel")
with tf.device(SECOND):
    upper_kernel = tf.Variable(tf.zeros([WIDTH, WIDTH]), name="upper/kernel")


def step(rows, others):
    with tf.device(FIRST), tf.name_scope("lower"):
        lower = tf.reduce_sum(rows @ lower_kernel, axis=1)
    with tf.device(SECOND), tf.name_scope("upper"):
        upper = tf.reduce_max(others @ upper_kernel, axis=1)
    with tf.device(FIRST), tf.name_scope("join"):
        return tf.tanh(lower) * tf.tanh(upper)


inputs = (tf.TensorSpec([BATCH, WIDTH]), tf.TensorSpec([BATCH, WIDTH]))


import placement_advisor


def workload():
    return placement_advisor.Workload(step=step, inputs=inputs, mode="infer")
"""
