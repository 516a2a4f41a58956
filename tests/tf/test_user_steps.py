"""The user's own step in the child that has loaded it: timed, recorded, at other batches."""

import pytest
from finding_evidence import graph_of, growing_of, op

from placement_advisor.errors import BatchSplitError
from placement_advisor.processes.calls import CallFailure
from placement_advisor.profile.recorded_ops import read_recorded
from placement_advisor.testbed.native_timing import batch_points, loop_timing
from placement_advisor.tf.answers import OwnSteps, Traced
from placement_advisor.tf.calls import native_step, splitter, tracer

_MODEL = """
import keras, numpy as np
sides = [keras.Input((4,)) for _ in range(2)]
model = keras.Model(sides, keras.layers.Dense(1)(keras.layers.Concatenate()(sides)))
{compiled}
inputs = ([np.ones((8, 4), "float32")] * 2, np.ones((8, 1), "float32"))
"""
_OWN = """
class Own(keras.Model):
    def {method}(self, *args, **more):
        raise RuntimeError("never")
model = Own(model.inputs, model.outputs)
model.compile("sgd", "mse")
"""


def test_each_round_times_one_step_for_each_call_and_several(child, load_script):
    load_script(_MODEL.format(compiled='model.compile("sgd", "mse")'))
    timing = child.call(native_step.time_fit, 2, 20_000_000)
    assert timing.steps_per_call == 10
    assert len(timing.one_ns) == len(timing.several_ns) == 2
    # Of so small a step, nearly all is the call. Other work may hit one of the two rounds.
    assert max(timing.saved_shares) > 0
    # The model is as it was: its step runs as before.
    assert len(child.call(native_step.run_as_is, 0, 2)) == 2


@pytest.mark.parametrize(
    "compiled",
    [
        "",
        'model.compile("sgd", "mse", steps_per_execution=4)',
        _OWN.format(method="fit"),
        _OWN.format(method="make_train_function"),
    ],
)
def test_what_is_no_fit_of_keras_with_a_call_for_each_step_gives_none(child, load_script, compiled):
    load_script(_MODEL.format(compiled=compiled))
    assert loop_timing(child, [1_000_000]) is None


_STEP = """
import tensorflow as tf
@tf.function
def step(x, scale):
    return tf.reduce_sum(x * scale, name="total") + 0.0 * tf.reduce_sum(tf.reshape(x, {shape}))
inputs = tf.ones((8, 6)), tf.ones((6,))
"""


def _growing(batch):
    return growing_of(
        lambda n: graph_of([op("total", 4 * n, flops=6 * n, bytes_accessed=24 * n)]),
        batch,
        {"total": 80},
    )


def test_the_batch_is_cut_what_is_none_stays_whole_and_turns_are_alike(child, load_script):
    load_script(_STEP.format(shape="(-1,)"))
    points = batch_points(child, _growing(8), [1_000_000])[:3]
    assert [point.batch for point in points] == [8, 4, 2]
    assert all(point.samples_per_s > 0 for point in points)
    times = child.call(native_step.run_at_batches, (8, 4), 2, 3)
    assert {size: len(found) for size, found in times.items()} == {8: 6, 4: 6}


def test_a_step_that_takes_its_own_batch_alone_gives_none(child, load_script):
    load_script(_STEP.format(shape="(48,)"))
    answer = child.call(native_step.run_at_batches, (8, 4), 1, 1)
    assert isinstance(answer, CallFailure)
    assert batch_points(child, _growing(8), [1_000_000]) == ()


def test_nothing_is_run_where_it_cannot_tell_or_takes_too_long(child):
    # Nothing is loaded: any call would fail.
    for as_is_ns in ([], [21_000_000]):
        assert loop_timing(child, as_is_ns) is None
    for batch_size, as_is_ns in ((3, [1]), (8, []), (8, [2_000_000_000])):
        assert batch_points(child, _growing(batch_size), as_is_ns) == ()


_SCALED = """
import tensorflow as tf
@tf.function
def step(x, scale, words):
    {more}
    return tf.reduce_sum(x * scale, axis=1, name="total"), tf.strings.length(words)
inputs = tf.ones((8, 6)), tf.ones((6,)), tf.constant(["word"] * 8)
"""
_LARGE = """
import tensorflow as tf
@tf.function
def step(x):
    return tf.reduce_sum(x, axis=1)
inputs = tf.ones((8, 1_000_000))
"""


@pytest.fixture
def repeat(child, load_script):
    """Return a function that traces a step on its batch several times over."""

    def repeated(more="", *, step=_SCALED, times=4):
        child.call(tracer.trace_workload, load_script(step.format(more=more)), None)
        return child.call(splitter.trace_repeated, times)

    return repeated


def test_samples_are_more_and_all_else_is_as_before_and_none_are_made_of_which_shapes_suffice(
    repeat,
):
    graph = repeat()
    sizes = {op.layer or op.name: op.output_bytes for op in graph.ops}
    assert sizes["x"] == (4 * 8 * 6 * 4,)
    assert sizes["scale"] == (6 * 4,)
    assert sizes["words"] == (4 * 8 * 4,)
    assert graph.op("total").output_bytes == (4 * 8 * 4,)

    graph = repeat(step=_LARGE, times=100_000)
    assert graph.op("x").output_bytes == (100_000 * 8 * 1_000_000 * 4,)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("x = tf.ensure_shape(x, (8, 6))", "it takes no batch of 32: "),
        ("x = x + 1 if x.shape[0] > 8 else x", "the step is a different graph"),
    ],
)
def test_a_step_that_is_another_at_another_batch_is_refused(repeat, more, why):
    answer = repeat(more)
    assert isinstance(answer, BatchSplitError)
    assert why in answer.message


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
def trace(child, load_script, tmp_path):
    """Return a function that traces the step of a script, which is to be run elsewhere."""

    def traced(text):
        bundle = tmp_path / "bundle"
        bundle.mkdir()
        found = child.call(tracer.trace_workload, load_script(text), str(bundle))
        assert isinstance(found, Traced), found
        assert not [*bundle.iterdir()], "nobody else can run it"
        return found

    return traced


@pytest.mark.parametrize(
    ("text", "kind"),
    [(_KERAS, "PyFuncStateless"), (_LOOP, "EagerPyFunc"), (_WITHIN, "PyFunc")],
    ids=["numpy_function of a model", "py_function of a loop", "within a loop of the step"],
)
def test_the_op_that_calls_python_is_told_by_its_kind_and_the_users_line(trace, text, kind):
    line = 1 + text.partition("# HERE")[0].count("\n")
    assert trace(text).python_call == f"`{kind}` at train.py:{line}"


def test_python_on_the_host_is_recorded_where_it_was_made_and_runs_no_oftener_than_that_takes(
    trace, child, tmp_path
):
    (op,) = [op for op in trace(_LOOP).graph.ops if op.kind == "EagerPyFunc"]
    assert op.device_kinds == {"CPU"}
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
