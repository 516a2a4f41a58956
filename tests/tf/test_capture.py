"""Scripts as people have them: each runs as a program, and stands still within a training step."""

import os
import time
from collections import Counter

import numpy as np
import pytest

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.tf.answers import Traced
from placement_advisor.tf.calls import tracer
from placement_advisor.tf.load.model_source import ModelSource, module_path

loaded_workload = RemoteModule("loaded_workload")
# What a step of a script was given is written down by the script itself, beside it.
_MODEL = """
import os, sys
import numpy as np, keras, tensorflow as tf
HERE = os.path.dirname(os.path.abspath(__file__))
def model(width=3):
    made = keras.Sequential([keras.Input((width,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made
def rows(count, width=3):
    return np.arange(count * width, dtype="float32").reshape(count, width)
"""
_STEP = """
import numpy as np, tensorflow as tf
weight = tf.Variable(tf.ones((4, 2)), name="weight")
def update(x, rate=0.1):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weight) ** 2)
    weight.assign_sub(rate * tape.gradient(loss, weight))
    return loss
"""

# Each turn of a loop is written down: its batch, and what variables held before.
_LOOP = f"""{_STEP}
import os
HERE = os.path.dirname(os.path.abspath(__file__))
def batch(i): return np.full((6, 4), i, "float32") + np.arange(4, dtype="float32")
def keep(i, x):
    np.savez(os.path.join(HERE, str(i)), x, *[np.asarray(each) for each in held()])
"""
_KERAS_LOOP = f"""{_LOOP}
import keras
inputs = keras.Input((4,))
hidden = keras.layers.Dense(5, activation="relu", name="hidden")(inputs)
hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization(name="norm")(hidden))
model = keras.Model(inputs, keras.layers.Dense(3, name="scores")(hidden))
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer, accuracy = keras.optimizers.Adam(0.1), keras.metrics.SparseCategoricalAccuracy()
def held(): return model.variables + optimizer.variables + accuracy.variables
optimizer.build(model.trainable_variables)
"""
_KERAS_TURN = """
    with tf.GradientTape() as tape:
        scores = model(x, training=True)
        loss = loss_of(y, scores)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(y, scores)
    if i % 2 == 0:
        print(f"loss {float(loss):.3f}, accuracy {float(accuracy.result()):.3f}")
"""


@pytest.fixture
def capture(child, load_script):
    """Return a function that runs a script up to its step, and says what was seen."""

    def run(text, *arguments, **asked):
        load_script(text, *arguments, **asked)
        return child.call(loaded_workload.seen)

    return run


def _traced(child, tmp_path):
    traced = child.call(tracer.trace_workload, str(tmp_path / "train.py"), None)
    assert isinstance(traced, Traced), traced
    return traced


@pytest.mark.parametrize(
    ("given", "shapes"),
    [
        ("rows(40), rows(40, 1), batch_size=8, validation_split=0.5", [(8, 3), (8, 1)]),
        ("tf.data.Dataset.from_tensors((rows(6), rows(6, 1))).repeat(5)", [(6, 3), (6, 1)]),
        ("rows(40), rows(40, 1), 8, sample_weight=np.ones(40)", [(8, 3), (8, 1), (8,)]),
        ("rows(40), np.zeros((40, 1), int), 8, class_weight={0: 2.0}", [(8, 3), (8, 1), (8,)]),
        ("((rows(5), rows(5, 1)) for _ in range(9)), steps_per_epoch=4", [(5, 3), (5, 1)]),
    ],
)
def test_fit_is_seen_with_the_batch_that_it_gives(capture, given, shapes):
    text = f"{_MODEL}\nmodel().fit({given})\nopen(HERE + '/ended', 'w')\n"
    found = capture(text)
    line = text[: text.index("\nmodel()")].count("\n") + 2
    assert found["chosen"].startswith(
        f"captured model.fit (Sequential, sequential, batch {shapes[0][0]}) at "
    )
    assert found["chosen"].endswith(f"train.py:{line}, at its 2nd step")
    assert (found["mode"], found["batch_size"]) == ("train", shapes[0][0])
    assert set(map(tuple, found["shapes"])) == {tuple(shapes)}
    assert len(found["input_names"]) == len(shapes)


def test_the_batch_is_the_one_that_the_scripts_own_step_sees(capture, child, tmp_path):
    script = """
made = model()
for i in range(9):
    x, y = rows(4) + i, rows(4, 1) - i
    np.savez(HERE + "/given.npz", x=x, y=y)
    made.train_on_batch(x, y)
    if i > 2: import time; time.sleep(1)
"""
    capture(_MODEL + script)
    given = np.load(tmp_path / "given.npz")
    np.testing.assert_equal(child.call(loaded_workload.first_batch), [given["x"], given["y"]])


def test_nothing_that_stands_behind_the_step_ever_runs(capture, tmp_path):
    script = """
import atexit
def leave(name): open(HERE + "/" + name, "w").close()
atexit.register(leave, "atexit")
while True:
    try:
        model().fit(rows(40), rows(40, 1), batch_size=8, verbose=0, epochs=1000)
    except BaseException:
        leave("caught")
    finally:
        leave("finally")
"""
    found = capture(_MODEL + script)
    assert found["mode"] == "train"
    assert not {"atexit", "caught", "finally"} & {path.name for path in tmp_path.iterdir()}


def test_a_script_that_forks_prints_much_and_trains_in_a_thread_is_seen(capture, tmp_path):
    script = """
import threading, time
sys.argv = ["another", "--name"]
print("much " * 10**6)
if (pid := os.fork()) == 0:
    while True:
        time.sleep(0.01)
        with open(HERE + "/beats", "a") as file:
            file.write(".")
def beat():
    while True:
        time.sleep(0.01)
threading.Thread(target=beat).start()
while not os.path.exists(HERE + "/beats"):
    time.sleep(0.01)
def work(): model().fit(rows(40), rows(40, 1), batch_size=8, verbose=0, epochs=100)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    found = capture(_MODEL + script)
    assert found["batch_size"] == 8
    beats = (tmp_path / "beats").stat().st_size
    time.sleep(0.5)
    assert (tmp_path / "beats").stat().st_size == beats  # What was forked stands still, too.


def test_a_script_has_its_arguments_and_is_the_main_module(capture, child, tmp_path):
    script = """
import argparse
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, required=True)
    asked = parser.parse_args()
    model(asked.width).fit(rows(40, asked.width), rows(40, 1), batch_size=4)
if __name__ == "__main__":
    main()
"""
    found = capture(_MODEL + script, "--width", "7")
    assert found["shapes"][0][0] == (4, 7)
    main = child.call(loaded_workload.file_of_module, "__main__")
    assert main == str(tmp_path / "train.py")


def test_a_module_of_a_package_is_run_with_its_relative_imports(child, tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(_MODEL)
    (package / "train.py").write_text(
        "import os\nfrom . import models\n"
        "models.model().fit(models.rows(40), models.rows(40, 1), batch_size=5)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert module_path("package.train") == "package/train.py"
    with pytest.raises(ModelError, match=r"-m package\.other: no such module below"):
        module_path("package.other")
    child.call(os.chdir, tmp_path)
    source = ModelSource(path="package/train.py", module="package.train")
    chosen = child.call(tracer.load_workload, source)
    assert "batch 5" in str(chosen)


def test_a_function_is_seen_with_its_arguments(capture, child, tmp_path):
    script = """
step = tf.function(update)
for i in range(100):
    step(tf.fill((6, 4), float(i)), rate=0.5)
"""
    found = capture(_STEP + script)
    assert (found["name"], found["mode"], found["batch_size"]) == ("update", "train", 6)
    assert (found["input_names"], found["shapes"][0]) == (("x",), [(6, 4)])
    assert "/train.py:12, at its " in found["chosen"]
    kinds = {op.kind for op in _traced(child, tmp_path).graph.ops}
    assert {"MatMul", "AssignSubVariableOp"} <= kinds


def test_a_step_that_takes_the_next_batch_itself_has_that_batch(capture, child, tmp_path):
    script = """
@tf.function
def train(iterator):
    return update(next(iterator))
data = iter(tf.data.Dataset.from_tensors(tf.ones((5, 4))).repeat())
for _ in range(100):
    train(data)
"""
    found = capture(_STEP + script)
    assert (found["batch_size"], found["shapes"][0]) == (5, [(5, 4)])
    assert _traced(child, tmp_path).graph


def test_of_steps_that_take_turns_the_dearest_is_taken_or_the_named_one(capture):
    text = f"""{_MODEL}
small, large = model(), model(900)
small.name, large.name = "critic", "generator"
for _ in range(100):
    for _ in range(3):
        small.train_on_batch(rows(4), rows(4, 1))
    large.train_on_batch(rows(400, 900), rows(400, 1))
"""
    found = capture(text)
    assert found["name"] == "generator"
    assert "the dearest of its steps (generator " in found["chosen"]
    assert ", critic 6 times, " in found["chosen"]
    assert capture(text, step="critic")["name"] == "critic"


def test_a_model_that_is_compiled_again_has_another_step(capture):
    text = f"""{_MODEL}
made = model()
made.fit(rows(4), rows(4, 1), verbose=0)
made.compile("sgd", "mae")
made.fit(rows(6), rows(6, 1), epochs=100, verbose=0)
"""
    found = capture(text)
    assert found["batch_size"] == 6
    assert "/train.py:15, at its 2nd step" in found["chosen"]


def test_a_step_can_be_named_by_its_line(capture):
    text = f"""{_MODEL}
first, second = model(), model()
first.name = second.name = "alike"
for _ in range(1000):
    first.train_on_batch(rows(4), rows(4, 1))
    second.train_on_batch(rows(6), rows(6, 1))
"""
    assert capture(text, step="train.py:16")["batch_size"] == 6
    chosen = capture(text)["chosen"]
    assert "train.py:15 2 times" in chosen
    assert "train.py:16 " in chosen


def test_gradients_that_are_added_up_make_one_step_with_their_update(capture, child, tmp_path):
    script = """
total = tf.Variable(tf.zeros((4, 2)), trainable=False)
@tf.function
def add(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weight) ** 2)
    total.assign_add(tape.gradient(loss, weight))
@tf.function
def apply():
    weight.assign_sub(0.1 * total)
    total.assign(tf.zeros_like(total))
for _ in range(100):
    for _ in range(3):
        add(tf.ones((6, 4)))
    apply()
"""
    found = capture(_STEP + script)
    assert found["name"] == "add 3 times, apply"
    assert found["shapes"][0] == [(6, 4)] * 3
    products = [op for op in _traced(child, tmp_path).graph.ops if op.kind == "MatMul"]
    assert len(products) == 6


def test_an_update_that_runs_in_some_steps_alone_is_named(capture, child, tmp_path):
    script = """
count = tf.Variable(0)
added = tf.Variable(tf.zeros((4, 2)), trainable=False)
@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weight) ** 2)
    added.assign_add(tape.gradient(loss, weight))
    count.assign_add(1)
    if count % 4 == 0:
        weight.assign_sub(added)
    for _ in tf.range(3):
        count.assign_add(4)
    return tf.cond(count > 0, lambda: loss, lambda: 2 * loss)
while True:
    train(tf.ones((6, 4)))
"""
    capture(_STEP + script)
    chosen = _traced(child, tmp_path).chosen
    assert chosen.endswith("; in some steps alone: the update at " + str(tmp_path / "train.py:18"))


@pytest.mark.parametrize(
    ("more", "call"), [("", "predict"), ("made.fit(rows(40), rows(40, 1))", "fit")]
)
def test_what_only_infers_is_taken_from_a_script_that_never_trains(capture, more, call):
    found = capture(f"{_MODEL}\nmade = model()\nmade.predict(rows(12), batch_size=6)\n{more}\n")
    assert found["chosen"].startswith(f"captured model.{call} (")
    assert found["mode"] == ("train" if more else "infer")


def test_strategies_give_way_to_one_replica_and_stay_classes(capture):
    script = """
strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"])
assert isinstance(strategy, tf.distribute.Strategy)
assert not isinstance(3, tf.distribute.MirroredStrategy)
size = 5 * strategy.num_replicas_in_sync
data = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensors(tf.ones((size, 4))).repeat()
)
@tf.function
def train(batch):
    return strategy.reduce("SUM", strategy.run(update, args=(batch,)), axis=None)
for batch in data:
    train(batch)
"""
    found = capture(_STEP + script)
    assert found["batch_size"] == 5
    assert "; one replica of your MirroredStrategy at " in found["chosen"]


def test_ragged_and_sparse_tensors_are_parts_of_a_batch(capture, child, tmp_path):
    script = """
words = tf.ragged.constant([[1, 2, 3], [0], [2, 1]])
flags = tf.sparse.from_dense([[1.0, 0.0, 0.0, 2.0]] * 3)
@tf.function
def train(batch, training=True):
    x = tf.sparse.sparse_dense_matmul(batch["flags"], weight)
    with tf.GradientTape() as tape:
        rows = tf.gather(weight, batch["words"].values)
        loss = tf.reduce_sum(rows ** 2) + tf.reduce_sum(x)
    weight.assign_sub(0.1 * tf.convert_to_tensor(tape.gradient(loss, weight)))
for _ in range(100):
    train({"words": words, "flags": flags}, training=True)
"""
    found = capture(_STEP + script)
    assert found["batch_size"] == 3
    assert _traced(child, tmp_path).graph


_SESSION = """
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
"""


def test_a_session_is_seen_with_its_feeds_its_devices_and_what_variables_hold(
    capture, child, tmp_path
):
    script = """
x = tf.placeholder(tf.float32, [None, 4], name="x")
with tf.device("/gpu:0"):
    left = tf.matmul(x, tf.get_variable("left", [4, 3]))
with tf.device("/gpu:1"):
    right = tf.matmul(x, tf.get_variable("right", [4, 3]))
loss = tf.reduce_mean(tf.square(left + right))
train = tf.train.AdamOptimizer(0.1).minimize(loss, colocate_gradients_with_ops=True)
session = tf.Session()
session.run(tf.global_variables_initializer())
for _ in range(1000):
    session.run([train, loss], {x: np.ones((7, 4))})
"""
    found = capture(_SESSION + script)
    assert found["chosen"].startswith("captured Session.run (batch 7) at ")
    assert (found["mode"], found["input_names"]) == ("train", ("x",))
    traced = _traced(child, tmp_path)
    asked = traced.requested_device_of
    assert (asked["left"], asked["right"]) == ("GPU:0", "GPU:1")
    assert {line.line for line in traced.stack_of["MatMul"]} == {8}
    assert sum(op.kind == "ResourceApplyAdam" for op in traced.graph.ops) == 2


def test_a_monitored_session_over_a_dataset_is_seen_with_a_batch_of_it(capture, child, tmp_path):
    script = """
data = tf.data.Dataset.from_tensors(np.ones((9, 4), "float32")).repeat()
x = tf.data.make_one_shot_iterator(data).get_next()
loss = tf.reduce_mean(tf.square(tf.matmul(x, tf.get_variable("w", [4, 3]))))
step = tf.train.get_or_create_global_step()
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(10**6)]) as session:
    while not session.should_stop():
        session.run(train)
"""
    found = capture(_SESSION + script)
    assert (found["batch_size"], found["shapes"][0]) == (9, [(9, 4)])
    assert _traced(child, tmp_path).graph


_INFERENCE = f"""{_SESSION}
data = tf.data.Dataset.from_tensors(np.ones((9, 4), "float32")).repeat(3)
drawn = tf.data.make_one_shot_iterator(data).get_next()
given = tf.placeholder(tf.float32, [None, 4])
weight = tf.get_variable("w", [4, 3])
seen = []
"""


# By the size of their batches.
_INFERRING = {
    7: """
with tf.Session() as session:
    session.run(weight.initializer)
    for _ in range(3):
        session.run(tf.matmul(given, weight), {given: np.ones((7, 4))})
""",
    9: """
session = tf.Session()
session.run(weight.initializer)
product = tf.matmul(drawn, weight)
while True:
    try:
        seen.append(session.run(product).shape)
    except tf.errors.OutOfRangeError:
        break
assert seen == [(9, 3)] * 3, seen
""",
}


@pytest.mark.parametrize(("size", "loop"), _INFERRING.items())
def test_a_session_that_only_infers_is_seen_though_it_is_closed_or_at_the_end_of_its_data(
    capture, child, tmp_path, loop, size
):
    found = capture(f"{_INFERENCE}{loop}")
    assert (found["batch_size"], found["mode"]) == (size, "infer")
    assert _traced(child, tmp_path).graph


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise SystemExit(3)", r"the script ended with sys.exit\(3\) before its first step"),
        ("raise ValueError('no data')", "ValueError: no data"),
        ("import nothing_like_it", "No module named 'nothing_like_it'"),
        ("import sys; sys.exit()", "no model found"),
    ],
)
def test_a_script_that_ends_before_its_first_step_says_why(capture, text, message):
    with pytest.raises(ModelError, match=message):
        capture(text)


_TURNS = {
    "variables, NumPy": f"""{_LOOP}
def held(): return [weight]
for i in range(100):
    x = batch(i)
    keep(i, x)
    print(float(update(x)))
""",
    "Keras, a dataset": f"""{_KERAS_LOOP}
data = tf.data.Dataset.from_tensor_slices((np.stack([batch(i) for i in range(200)]),
    np.arange(1200).reshape(200, 6) % 3))
for i, (x, y) in enumerate(data):
    keep(i, x)
{_KERAS_TURN}""",
    "Keras, NumPy, a function, three steps": f"""{_KERAS_LOOP}
def turn(i, x, y):{_KERAS_TURN}
for i in range(3):
    x = batch(i)
    keep(i, x)
    turn(i, x, np.arange(6) % 3)
keep(3, x)
""",
}


@pytest.mark.parametrize("kind", _TURNS)
def test_a_turn_of_a_loop_that_runs_op_by_op_updates_as_the_script_does(
    capture, child, tmp_path, kind
):
    text = _TURNS[kind]
    shapes = [(6, 4), (6,)] if "Keras" in kind else [(6, 4)]
    found = capture(text)
    assert found["chosen"].startswith("captured op-by-op loop (batch 6) at ")
    line = 1 + text[: text.rindex("tape.gradient(")].count("\n")
    assert f"train.py:{line}, at its " in found["chosen"]
    assert (found["mode"], found["shapes"]) == ("train", [shapes])
    for ours, scripts in child.call(loaded_workload.replayed, str(tmp_path)):
        np.testing.assert_allclose(ours, scripts, rtol=1e-5, atol=1e-6)


def test_a_turn_of_a_loop_has_the_layers_and_lines_that_its_ops_had(capture, child, tmp_path):
    text = (
        f"{_KERAS_LOOP}\nfor i in range(100):\n    x, y = batch(i), np.arange(6) % 3{_KERAS_TURN}"
    )
    capture(text)
    traced = _traced(child, tmp_path)
    products = [op for op in traced.graph.ops if op.kind == "MatMul"]
    assert [(op.layer, op.role.name) for op in products] == [
        ("hidden", "FORWARD"),
        ("scores", "FORWARD"),
        ("scores", "BACKWARD"),
        ("scores", "BACKWARD"),
        ("hidden", "BACKWARD"),
    ]
    lines = [traced.stack_of[op.name][0].line for op in products]
    model, gradient = (
        text[: text.rindex(call)].count("\n") + 1 for call in ("model(x,", "tape.gradient(")
    )
    assert lines == [model, model, gradient, gradient, gradient]
    assert traced.left_out.run_eagerly
    assert not traced.takes_batch_size


def test_all_gradients_of_a_turn_belong_to_its_step(capture, child, tmp_path):
    script = """
import keras
critic = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, name="judge")])
maker = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4, name="make")])
first, second = keras.optimizers.SGD(), keras.optimizers.SGD()
for i in range(100):
    x, noise = batch(i), tf.random.normal((6, 2))
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(critic(maker(noise))) - tf.reduce_mean(critic(x))
        first.apply(tape.gradient(loss, critic.trainable_weights), critic.trainable_weights)
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(critic(maker(noise)))
    second.apply(tape.gradient(loss, maker.trainable_weights), maker.trainable_weights)
"""
    capture(_LOOP + script)
    traced = _traced(child, tmp_path)
    layers = Counter(
        (op.layer or "").rpartition("/")[2].partition("@")[0]
        for op in traced.graph.ops
        if op.kind == "MatMul" and op.role.name == "FORWARD"
    )
    assert traced.batch_size == 6
    assert layers == {"make": 3, "judge": 5}


def test_gradients_without_updates_are_no_loop(capture):
    script = """
made = model()
for i in range(100):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(made(rows(4)))
    tape.gradient(loss, made.trainable_variables)
made.fit(rows(40), rows(40, 1), batch_size=8, verbose=0)
"""
    found = capture(_MODEL + script)
    assert found["chosen"].startswith("captured model.fit (")


@pytest.mark.parametrize(
    ("line", "asked", "why"),
    [
        (
            "x = tf.py_function(tf.sin, [x], tf.float32)",
            {},
            r"EagerPyFunc at .*train\.py:\d+ calls Python",
        ),
        ("x = x + 1", {"batch_size": 12}, "takes no other batch than the script gave it"),
    ],
)
def test_what_a_loop_that_runs_op_by_op_cannot_be_taken_with_is_said_at_once(
    capture, line, asked, why
):
    with pytest.raises(ModelError, match=why):
        capture(
            f"{_STEP}\nwhile True:\n    x = tf.ones((6, 4))\n    {line}\n    update(x)\n", **asked
        )


def test_a_turn_that_also_evaluates_is_not_the_one_that_is_taken(capture, child, tmp_path):
    loop = """
writer = tf.summary.create_file_writer(HERE)
for i in range(300):
    x, y = batch(i), np.arange(6) % 3"""
    evaluation = """
    if i % 3:
        for _ in range(4):
            model(batch(0))
        with writer.as_default(step=i):
            tf.summary.scalar("loss", loss)
"""
    capture(_KERAS_LOOP + loop + _KERAS_TURN + evaluation)
    products = [op for op in _traced(child, tmp_path).graph.ops if op.kind == "MatMul"]
    assert len(products) == 5


def test_a_tape_that_is_asked_once_for_each_variable_makes_one_turn(capture, child, tmp_path):
    script = """
other = tf.Variable(tf.ones((2, 3)))
def train(x):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean((x @ weight @ other) ** 2)
    for variable in (weight, other):
        variable.assign_sub(0.1 * tape.gradient(loss, variable))
for i in range(100):
    train(batch(i))
    train(batch(i) + 1)
"""
    capture(_LOOP + script)
    kinds = Counter(op.kind for op in _traced(child, tmp_path).graph.ops)
    assert kinds["AssignSubVariableOp"] == 4


def test_what_is_older_than_the_turn_is_the_batch_only_if_nothing_newer_is(capture):
    before = f"{_LOOP}\nmask, same = tf.ones((6, 1)), tf.ones((6, 4))\nfor i in range(100):\n"
    assert capture(f"{before}    update(mask * batch(i))\n")["shapes"] == [[(6, 4)]]
    assert capture(f"{before}    update(mask * same)\n")["shapes"] == [[(6, 1), (6, 4)]]
