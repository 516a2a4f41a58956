"""A step that cannot be traced: the user's own error, their line, and a way out."""

from __future__ import annotations

import pytest

from placement_advisor.errors import ModelError
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

STEP = """\
import numpy as np
import tensorflow as tf
weights = tf.Variable(tf.ones((4, 2)))
@tf.function
def step(x):
    return {}
inputs = tf.ones((3, 5))
"""
ERRORS = {
    "a shape that does not fit": ("x @ weights", "for '{{node matmul}} = MatMul", "shapes"),
    "a value while tracing": ("x.numpy()", "no attribute 'numpy'", "use TensorFlow ops"),
    "NumPy on a tensor": ("np.sum(x)", "to a numpy array", "use TensorFlow ops"),
    "counting by a value": ("[x for _ in range(tf.size(x))]", "symbolic", "tf.range"),
    "a variable made in the step": (
        "tf.Variable(1.0) * x",
        "singleton tf.Variables",
        "outside the step",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_while_tracing_names_the_line_and_the_way_out(loader, tmp_path, what):
    expression, error, hint = ERRORS[what]
    path = tmp_path / "model_file.py"
    path.write_text(STEP.format(expression))
    loader.call(tracer.load_workload, ModelSource(path=str(path)))
    with pytest.raises(ModelError) as caught:
        loader.call(tracer.trace_workload, str(path), str(tmp_path))
    message = caught.value.message
    assert message.startswith(f"{path}: step cannot be traced: ")
    assert error in message
    assert f'File "{path}", line 6, in step' in message
    assert "placement_advisor" not in message
    assert hint in str(caught.value.hint)
