"""Steps that call Python: told by the user's line, and recorded in the process that made them."""

from __future__ import annotations

import pytest

from placement_advisor.errors import BatchSplitError
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.tf.answers import OwnSteps, Traced
from placement_advisor.tf.calls import native_step, splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource

_MS = 1_000_000
_KERAS = """
import keras, numpy as np, tensorflow as tf
class Ranker(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(1)
    def call(self, x):
        soft = tf.numpy_function(lambda a: a / 2, [x], tf.float32, stateful=False)  # HERE
        return self.head(tf.ensure_shape(soft, x.shape))
model = Ranker()
model.compile("adam", "mse")
model.fit(np.ones((8, 3), "float32"), np.ones((8, 1), "float32"), batch_size=2, verbose=0)
"""
_LOOP = """
import os, time, tensorflow as tf
COUNTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "counted")
weight = tf.Variable(tf.ones((3, 1)))
def clip(gradient):
    with open(COUNTED, "a") as file:
        file.write(".")
    time.sleep(0.02)
    return tf.clip_by_value(gradient, -1.0, 1.0)
@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weight) ** 2)
    clipped = tf.py_function(clip, [tape.gradient(loss, weight)], tf.float32)  # HERE
    weight.assign_sub(0.1 * tf.ensure_shape(clipped, weight.shape))
    return loss
for _ in range(50):
    train_step(tf.ones((4, 3)))
"""
_WITHIN = """
import tensorflow as tf
weight = tf.Variable(tf.ones((3, 1)))
@tf.function
def train_step(x):
    total = tf.zeros(())
    for row in x:  # HERE
        total += tf.ensure_shape(tf.numpy_function(lambda a: a.sum(), [row], tf.float32), ())
    weight.assign_sub(tf.ones((3, 1)) * total)
    return total
for _ in range(50):
    train_step(tf.ones((4, 3)))
"""

_SESSION = """
import numpy as np, tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_v2_behavior()
x = tf1.placeholder(tf.float32, (4, 3))
w = tf1.get_variable("w", (3, 2), initializer=tf1.ones_initializer())
def body(i, y):
    return i + 1, tf.ensure_shape(tf1.py_func(lambda a: a / 2, [y], tf.float32), (4, 2))
_, y = tf1.while_loop(lambda i, y: i < 3, body, [tf.constant(0), x @ w])
loss = tf.reduce_mean((tf.stop_gradient(y) - x @ w) ** 2)
train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf1.Session() as session:
    session.run(tf1.global_variables_initializer())
    for _ in range(50):
        session.run(train, {x: np.ones((4, 3), "float32")})
"""


@pytest.fixture
def trace(child, tmp_path):
    """Return a function that traces the step of a script, which is to be run elsewhere."""
    path, bundle = tmp_path / "train.py", tmp_path / "bundle"
    bundle.mkdir()

    def traced(text: str) -> Traced:
        path.write_text(text)
        child.call(tracer.load_workload, ModelSource(path=str(path)))
        found = child.call(tracer.trace_workload, str(path), str(bundle))
        assert isinstance(found, Traced), found
        assert not [*bundle.iterdir()], "nobody else can run it"
        return found

    return traced


def _line(text: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith("# HERE"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [(_KERAS, "PyFuncStateless"), (_LOOP, "EagerPyFunc"), (_WITHIN, "PyFunc")],
    ids=["numpy_function of a model", "py_function of a loop", "within a loop of the step"],
)
def test_the_op_that_calls_python_is_told_by_its_kind_and_the_users_line(trace, text, kind):
    assert trace(text).python_call == f"`{kind}` at train.py:{_line(text)}"


def test_python_stands_on_the_host(trace):
    (op,) = [op for op in trace(_LOOP).graph.ops if op.kind == "EagerPyFunc"]
    assert op.device_kinds == {"CPU"}


def test_it_is_recorded_where_it_was_made_and_runs_no_oftener_than_that_takes(
    trace, child, tmp_path
):
    trace(_LOOP)
    counted = tmp_path / "counted"
    before = len(counted.read_text())
    folder = tmp_path / "profile"
    steps = child.call(native_step.record, str(folder), 0)
    assert isinstance(steps, OwnSteps), steps
    assert (len(steps.warmup_ns), len(steps.step_ns)) == (2, 10)
    assert min(steps.step_ns) >= 20 * _MS
    # As many again are profiled, one of which sets the profiler up.
    assert len(counted.read_text()) - before == 2 + 10 + 11
    recorded = read_recorded(folder, shares_core=True)
    (python,) = [op for op in recorded.ops if op.kind == "EagerPyFunc"]
    assert len(python.step_ns) == 10
    assert 15 * _MS <= python.median_ns <= max(steps.step_ns) * 2


def test_a_loop_of_a_session_is_recorded_as_well(trace, child, tmp_path):
    assert trace(_SESSION).python_call == "`PyFunc` at train.py:8"
    # The shape that it says of the batch is not that of a share.
    split = child.call(splitter.split_workload, (2, 2), None)
    assert isinstance(split, BatchSplitError)
    assert "it takes no batch of 2" in split.message
    steps = child.call(native_step.record, str(tmp_path / "profile"), 0)
    assert isinstance(steps, OwnSteps), steps
    assert "PyFunc" in {op.kind for op in read_recorded(tmp_path / "profile").ops}
