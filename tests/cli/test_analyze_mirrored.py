"""`advisor analyze` with copies of the model under `tf.distribute`: run, refused, broken."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_answers import analysed
from command_runs import run_here
from real_runs import needs_workers
from watched_testbed import listening

from placement_advisor.testbed.mirrored_testbed import MirroredTestbed

BRIEF = ("--rounds", "5", "--steps", "1", "--effort", "0.01", "--refine", "0")
FEW = (*BRIEF, "--candidates", "mirrored")
SAMPLE = Path(__file__).parents[2] / "sample_models" / "mnist_cnn.py"
MODEL = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(3)
table = [keras.Input((8,), dtype="int32"), keras.layers.Embedding(50, 16), keras.layers.Flatten()]
dense = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
model = keras.Sequential([*table, *dense])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"])
x = np.random.default_rng(1).integers(50, size=(960, 8)).astype("int32")
y = np.arange(960) % 10
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
"""
STEP = """
import tensorflow as tf

weights = tf.Variable([[1.0], [2.0]])
optimizer = tf.keras.optimizers.Adam(0.1)

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights - y)){scaled}
    {update}
    return loss

inputs = (tf.random.stateless_normal((12, 2), (1, 2)), tf.zeros((12, 1)))
"""
UPDATE = "optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])"
ALONE = "weights.assign_sub(1e-6 * tape.gradient(loss, weights))"
OF_ITS_OWN = """
import keras
import tensorflow as tf

keras.utils.set_random_seed(3)
one = [keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization()]
two = [keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.25), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((6,)), *one, *two])
model.compile(keras.optimizers.Adam(1e-5), "mse")
x, y = tf.random.stateless_normal((960, 6), (1, 2)), tf.random.stateless_normal((960, 1), (3, 4))
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
"""
CLIPPED = """
import keras, tensorflow as tf
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01, global_clipnorm={norm}), "mse")
x, y = tf.random.stateless_normal((320, 6), (1, 2)), tf.random.stateless_normal((320, 1), (3, 4))
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
"""
# Scripts under a strategy of their own: the first makes its optimizer's variables in `fit`, before
# its first step, the second in that step, unless they are `built`.
FIT = """
import numpy as np, keras, tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
x = np.random.rand(640, 32).astype("float32")
model.fit(x, x[:, :1], batch_size=32 * strategy.num_replicas_in_sync, epochs=1000, verbose=0)
"""
LOOP = """
import numpy as np, keras, tensorflow as tf
strategy = tf.distribute.MirroredStrategy()
size = 32 * strategy.num_replicas_in_sync
x = np.random.rand(640, 32).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(size)
data = strategy.experimental_distribute_dataset(data)
with strategy.scope():
    net = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    {built}
def one(batch):
    x, y = batch
    with tf.GradientTape() as tape:
        losses = tf.reduce_sum((net(x, training=True) - y) ** 2, -1)
        loss = tf.nn.compute_average_loss(losses, global_batch_size=size)
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables))
    return loss
@tf.function
def train(batch):
    return strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)
while True:
    for batch in data:
        train(batch)
"""
BUILT = "optimizer.build(net.trainable_variables)"
# Goes on where it runs for the first time alone.
AGAIN = """
import os, sys
from pathlib import Path
before = Path(__file__).with_name("before")
if before.exists():
    print("key", sys.argv[2])
    {end}
before.touch()
"""
SCALED = " / tf.distribute.get_strategy().num_replicas_in_sync"


@contextmanager
def watched():
    """Collect on how many sockets mirrored processes listen, in this network and in their own."""
    seen = set()
    run_steps = MirroredTestbed.run_steps

    def look_and_run(self, *args):
        seen.add(listening([child.pid for child in self._children]))
        return run_steps(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MirroredTestbed, "run_steps", look_and_run)
        yield seen


@pytest.fixture(scope="module")
def run(fork_server, tmp_path_factory):
    """One complete run of a step alone and mirrored; on how many sockets its processes listened."""
    folder = tmp_path_factory.mktemp("mirrored")
    model = folder / "model.py"
    model.write_text(MODEL)
    with watched() as seen:
        return analysed(run_here, model, folder / "out", *FEW), seen


@needs_workers
class TestAMirroredStep:
    def test_trains_as_the_step_alone_does_in_a_network_of_its_own(self, run):
        found, listened = run
        assert listened == {(0, 2)}
        mirrored = found.candidate("mirrored")
        assert mirrored["samples"] == [16, 16]
        assert mirrored["failure"] is None
        assert mirrored["measured"]["verification"]["unverified"] == []
        # All variables are on every device.
        held = mirrored["predicted"]["peak_memory_bytes"]
        assert min(held.values()) > found.analysis["model"]["parameter_bytes"]

    def test_is_predicted_and_compared_and_its_report_says_how_to_do_it(self, run):
        found, _ = run
        assert (found.folder / "predictions" / "mirrored.json").exists()
        assert "\nmirrored " in found.ran.out
        assert "mirrored" in found.ran.out.split("\n\n")[0]  # The verdict is about it.
        report = found.text("report.md")
        assert "16 of the 32 samples of a batch on each of worker:0, worker:1" in report
        assert 'tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])' in report
        row = found.analysis["scaling"][-1]
        assert (row["name"], row["candidate"], row["batch"]) == ("weak scaling", "mirrored", 64)
        assert row["predicted_ns"] > 0
        assert row["measured_ns"] is None

    def test_its_profile_shows_the_exchange_on_both_devices_within_the_step(self, run):
        mirrored = run[0].candidate("mirrored")
        measured = mirrored["measured"]
        # An all-reduce of dense gradients; of the table the number of rows, rows, and indices.
        assert measured["transfer_count"] == 2 * (1 + 3)
        assert mirrored["predicted"]["transfer_count"] == measured["transfer_count"]
        assert measured["unseen_copies"] == []
        # Rows are gathered within a conditional: how many bytes they have is not known.
        assert (measured["transfer_bytes"], measured["bytes_basis"]) == (None, None)
        laws = {broken["law"] for broken in mirrored["broken_laws"]}
        assert not laws & {"device-within-step", "copies-within-step", "parts-add-up"}
        profiled_ns = round(measured["step_ns"]["median"] * measured["profiler_overhead"])
        assert 0 < measured["exposed_ns"] <= profiled_ns
        assert all(0 < time_ns <= profiled_ns for time_ns in measured["compute_ns"].values())


@pytest.mark.slow
@needs_workers
def test_devices_of_one_process_are_mirrored_as_well(analyze):
    """With the model of TensorFlow's own guide to `MirroredStrategy`."""
    with watched() as seen:
        found = analyze(SAMPLE, "--testbed", "logical-cpus", *FEW, "-q")
    assert seen == {(0, 0)}
    mirrored = found.candidate("mirrored")
    assert mirrored["failure"] is None
    assert mirrored["measured"]["verification"]["unverified"] == []


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(
    ("model", "told"),
    [
        # Gradients that add up to others.
        (STEP.format(scaled="", update=UPDATE), ["by strategy.num_replicas_in_sync"]),
        (STEP.format(scaled=SCALED, update=UPDATE), None),
        (CLIPPED.format(norm=1e-2), ["Each replica clips by the norm of its own"]),
        (CLIPPED.format(norm=1e6), None),
        # Once told *split: mirrored, 1.87×*: `assign_sub` exchanges nothing here.
        (STEP.format(scaled="", update=ALONE), ["Variable", "model.py:11", "optimizer"]),
    ],
)
def test_replicas_that_train_otherwise_are_a_wrong_result_with_what_to_do(analyze, model, told):
    found = analyze(model, *FEW, "-q")
    failure = found.candidate("mirrored")["failure"]
    if told is None:
        assert failure is None
    else:
        assert failure["kind"] == "wrong-result"
        assert [text for text in told if text not in failure["message"]] == []
        assert found.analysis["recommendation"]["verdict"] != "split"


@pytest.mark.slow
@needs_workers
def test_a_process_that_dies_costs_the_candidate_alone(analyze, monkeypatch):
    run_steps = MirroredTestbed.run_steps
    turns = []

    def break_and_run(self, *args):
        turns.append(1)
        if len(turns) == 3:
            os.kill(self._children[1].pid, signal.SIGKILL)
        return run_steps(self, *args)

    monkeypatch.setattr(MirroredTestbed, "run_steps", break_and_run)
    found = analyze(MODEL, *FEW, "-q")
    failure = found.candidate("mirrored")["failure"]
    assert failure["kind"] == "crashed"
    assert failure["message"].endswith("was killed by SIGKILL")
    assert len(found.candidate("single")["measured"]["step_ns"]["samples"]) == 5


def test_uneven_shares_cannot_be_mirrored(analyze):
    report = analyze(MODEL, *FEW, "--ratios", "3:1", "--quick", "-q").text("report.md")
    assert "gives all devices the same number of samples, not 24 + 8" in report


def test_elsewhere_replicas_are_simulated(analyze):
    found = analyze(MODEL, *FEW, "--hardware", "4xV100-NVLink", "-q")
    mirrored = found.candidate("mirrored")
    assert mirrored["samples"] == [8, 8, 8, 8]
    # An all-reduce of dense gradients and three gathers, on each of four devices; what is fed and
    # fetched crosses to the host and back.
    assert mirrored["predicted"]["transfer_count"] >= 4 * (1 + 3)
    assert "PA103" not in {finding["code"] for finding in found.analysis["findings"]}


@pytest.mark.slow
@needs_workers
def test_replicas_that_take_statistics_and_draw_are_verified_as_well(analyze):
    """TensorFlow's own split of the batch and ours are held against one reference."""
    found = analyze(OF_ITS_OWN, *BRIEF, "--candidates", "batch,mirrored", "-q")
    for name in ("batch", "mirrored"):
        assert found.candidate(name)["failure"] is None, name
        verification = found.candidate(name)["measured"]["verification"]
        assert (verification["unverified"], verification["held_equal"]) == ([], True), name


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(
    ("script", "testbed", "told"),
    [
        (FIT, "workers", None),
        (FIT, "logical-cpus", None),
        (LOOP.format(built=""), "workers", None),
        (LOOP.format(built=BUILT), "logical-cpus", None),
        # Variables that replicas of one process cannot make.
        (
            LOOP.format(built=""),
            "logical-cpus",
            "those of an optimizer by optimizer.build(model.trainable_variables)",
        ),
    ],
)
def test_a_script_runs_once_more_as_replicas_up_to_its_step(analyze, script, testbed, told):
    mirrored = analyze(script, "--testbed", testbed, *FEW, "-q").candidate("mirrored")
    if told is not None:
        assert told in str(mirrored["failure"])
        return
    assert mirrored["failure"] is None
    assert mirrored["samples"] == [16, 16]
    verification = mirrored["measured"]["verification"]
    assert (verification["unverified"], verification["held_equal"]) == ([], False)


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize("end", ["raise ValueError(sys.argv[2])", "os._exit(3)"])
def test_a_second_run_that_fails_quotes_no_secret(analyze, end):
    words = (*FEW, "-v", "--", "--api-key", "battery-staple")
    found = analyze(AGAIN.format(end=end) + FIT, *words)
    failure = found.candidate("mirrored")["failure"]
    told = found.text(failure["in_full"]) if failure["in_full"] else failure["message"]
    assert "***" in told
    assert not any("battery-staple" in text for text in found.texts())
