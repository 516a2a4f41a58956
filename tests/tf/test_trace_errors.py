"""A step that cannot be traced: the user's own error, their line, and a way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from placement_advisor.errors import ModelError
from placement_advisor.processes import children
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from placement_advisor.processes.children import Child

_LIMIT_S = 600.0
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


@pytest.fixture(scope="module")
def loader() -> Iterator[Child]:
    with children.Child("loader") as own:
        yield own


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_while_tracing_names_the_line_and_the_way_out(
    loader: Child, tmp_path: Path, what: str
) -> None:
    expression, error, hint = ERRORS[what]
    path = tmp_path / "model_file.py"
    path.write_text(STEP.format(expression))
    loader.call(tracer.load_workload, ModelSource(path=str(path)), time_limit_s=_LIMIT_S)
    with pytest.raises(ModelError) as caught:
        loader.call(tracer.trace_workload, str(path), str(tmp_path), time_limit_s=_LIMIT_S)
    message = caught.value.message
    assert message.startswith(f"{path}: step cannot be traced: ")
    assert error in message
    assert f'File "{path}", line 6, in step' in message
    assert "placement_advisor" not in message
    assert hint in str(caught.value.hint)
