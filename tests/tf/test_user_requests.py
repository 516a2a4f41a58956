"""What the tracer keeps of the user's own code: requested devices and source lines."""

from __future__ import annotations

from pathlib import Path

_SCOPES = """
import tensorflow as tf
weights = tf.Variable(tf.ones((4, 4)), name="weights")
@tf.function
def activate(x):
    return tf.nn.relu(x)
@tf.function
def step(x):
    with tf.device("/job:localhost/replica:0/task:0/device:GPU:1"):
        a = tf.exp(x @ weights, name="here")
    with tf.device("gpu"):
        b = tf.exp(a, name="first")
    with tf.device("/job:worker/task:2/cpu:0"):
        c = activate(b)
    return tf.exp(c, name="nowhere")
inputs = tf.ones((2, 4))
"""


def test_devices_are_kept_in_one_short_form(trace_source):
    asked = trace_source(_SCOPES).traced.requested_device_of
    assert {name: asked.get(name) for name in ("matmul", "here", "first", "nowhere")} == {
        "matmul": "GPU:1",
        "here": "GPU:1",
        "first": "GPU:0",
        "nowhere": None,
    }
    # A called function stands where it is called.
    assert {asked[name] for name in asked if name.endswith("Relu")} == {"/job:worker/task:2/CPU:0"}


def test_an_op_knows_the_line_that_made_it(trace_source):
    traced = trace_source(_SCOPES).traced
    lines = _SCOPES.splitlines()
    for name, line in traced.line_of.items():
        assert Path(line.file).name == "model_file.py", name
    assert 'name="here"' in lines[traced.line_of["here"].line - 1]
    # What a function holds has the line that calls it.
    (relu,) = (op.name for op in traced.graph.ops if op.kind == "Relu")
    assert "activate(b)" in lines[traced.line_of[relu].line - 1]
    # Nobody's line makes a variable part of the step, but one created it.
    assert "weights" not in traced.line_of
    (created,) = traced.created_at["weights"]
    assert lines[created.line - 1].startswith("weights = tf.Variable")


_TOWERS = """
import tensorflow as tf
kernels = [tf.Variable(tf.ones((4, 4)), name=name) for name in ("left", "right")]
def tower(x, kernel):
    return tf.nn.relu(x @ kernel)
def towers(x):
    left = tower(x, kernels[0])
    right = tower(x, kernels[1])
    return left + right
@tf.function
def step(x):
    return towers(x)
inputs = tf.ones((2, 4))
"""


def test_an_op_knows_all_lines_that_led_to_it(trace_source):
    traced = trace_source(_TOWERS).traced
    lines = [line.strip() for line in _TOWERS.splitlines()]
    stacks = [
        [lines[line.line - 1] for line in traced.stack_of[op.name]]
        for op in traced.graph.ops
        if op.kind == "Relu"
    ]
    assert stacks == [
        ["return tf.nn.relu(x @ kernel)", f"{side} = tower(x, kernels[{i}])", "return towers(x)"]
        for i, side in enumerate(("left", "right"))
    ]


def test_layers_of_a_library_have_no_line_of_the_user(traced):
    found = traced("two_tower").traced
    assert found.line_of == {}
    # Keras itself asks for the CPU where it looks texts up.
    assert set(found.requested_device_of.values()) <= {"CPU:0"}
