"""`advisor analyze` with copies of the model under `tf.distribute`: run, refused, broken."""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest
from command_runs import run_here
from real_runs import needs_workers
from watched_testbed import listening

from placement_advisor.results.contracts import load_schema
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed

FEW = ("--rounds", "5", "--steps", "1", "--effort", "0.01", "--candidates", "mirrored")
SAMPLE = Path(__file__).parents[2] / "sample_models" / "mnist_cnn.py"
MODEL = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(3)
model = keras.Sequential(
    [
        keras.Input((8,), dtype="int32"),
        keras.layers.Embedding(50, 16),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"])
x = np.random.default_rng(1).integers(50, size=(960, 8)).astype("int32")
y = np.arange(960) % 10
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)
"""
MEAN_OF_ITS_OWN = """
import tensorflow as tf

weights = tf.Variable([[1.0], [2.0]])
optimizer = tf.keras.optimizers.Adam(0.1)

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights - y)){scaled}
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss

inputs = (tf.random.stateless_normal((12, 2), (1, 2)), tf.zeros((12, 1)))
"""
ALONE = """
import tensorflow as tf

weights = tf.Variable([[1.0], [2.0]])

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights - y))
    weights.assign_sub(1e-6 * tape.gradient(loss, weights))
    return loss

inputs = (tf.random.stateless_normal((12, 2), (1, 2)), tf.zeros((12, 1)))
"""
OF_ITS_OWN = """
import keras
import tensorflow as tf

keras.utils.set_random_seed(3)
model = keras.Sequential(
    [
        keras.Input((6,)),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.Dropout(0.25),
        keras.layers.Dense(1),
    ]
)
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


def candidate_in(analysis):
    (found,) = (each for each in analysis["candidates"] if each["name"] == "mirrored")
    return found


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
def listened():
    """What `watched` saw of the run."""
    return set()


@pytest.fixture(scope="module")
def run(fork_server, tmp_path_factory, listened):
    """One complete run of a step alone and mirrored, with dense and sparse gradients."""
    folder = tmp_path_factory.mktemp("mirrored")
    model = folder / "model.py"
    model.write_text(MODEL)
    output = folder / "out"
    with watched() as seen:
        ran = run_here("analyze", str(model), "-o", str(output), *FEW)
    listened |= seen
    return ran, output


@pytest.fixture(scope="module")
def analysis(run):
    assert run[0].code == 0, run[0].err
    found = json.loads((run[1] / "analysis.json").read_text())
    jsonschema.validate(found, load_schema("analysis"))
    return found


@needs_workers
class TestAMirroredStep:
    def test_trains_as_the_step_alone_does(self, analysis):
        mirrored = candidate_in(analysis)
        assert mirrored["samples"] == [16, 16]
        assert mirrored["failure"] is None
        assert mirrored["measured"]["verification"]["unverified"] == []

    def test_is_predicted_before_it_is_timed_and_compared(self, run):
        ran, output = run
        assert (output / "predictions" / "mirrored.json").exists()
        assert "\nmirrored " in ran.out
        assert "mirrored" in ran.out.split("\n\n")[0]  # The verdict is about it.

    def test_its_processes_listen_in_a_network_of_their_own_alone(self, analysis, listened):
        assert listened == {(0, 2)}

    def test_has_all_variables_on_every_device(self, analysis):
        held = candidate_in(analysis)["predicted"]["peak_memory_bytes"]
        parameters = analysis["model"]["parameter_bytes"]
        assert min(held.values()) > parameters

    def test_its_profile_shows_the_exchange_on_both_devices(self, analysis):
        mirrored = candidate_in(analysis)
        measured = mirrored["measured"]
        # An all-reduce of dense gradients; of the table the number of rows, rows, and indices.
        assert measured["transfer_count"] == 2 * (1 + 3)
        assert mirrored["predicted"]["transfer_count"] == measured["transfer_count"]
        assert measured["unseen_copies"] == []
        # Rows are gathered within a conditional: how many bytes they have is not known.
        assert (measured["transfer_bytes"], measured["bytes_basis"]) == (None, None)
        assert all(time_ns > 0 for time_ns in measured["compute_ns"].values())

    def test_no_device_computes_and_waits_for_longer_than_the_profiled_step(self, analysis):
        measured = candidate_in(analysis)["measured"]
        laws = {broken["law"] for broken in candidate_in(analysis)["broken_laws"]}
        assert not laws & {"device-within-step", "copies-within-step", "parts-add-up"}
        profiled_ns = measured["step_ns"]["median"] * measured["profiler_overhead"]
        assert 0 < measured["exposed_ns"] <= round(profiled_ns)
        assert max(measured["compute_ns"].values()) <= round(profiled_ns)

    def test_weak_scaling_is_run_as_well(self, analysis):
        row = analysis["scaling"][-1]
        assert (row["name"], row["candidate"], row["batch"]) == ("weak scaling", "mirrored", 64)
        assert row["predicted_ns"] > 0
        assert row["measured_ns"] > 0

    def test_its_report_says_how_to_do_it(self, run):
        report = (run[1] / "report.md").read_text()
        assert "16 of the 32 samples of a batch on each of worker:0, worker:1" in report
        assert 'tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])' in report


@pytest.mark.slow
@needs_workers
def test_devices_of_one_process_are_mirrored_as_well(advisor, tmp_path):
    """With the model of TensorFlow's own guide to `MirroredStrategy`."""
    words = ("--testbed", "logical-cpus", *FEW, "-q", "--json")
    with watched() as seen:
        ran = advisor("analyze", str(SAMPLE), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    assert seen == {(0, 0)}
    mirrored = candidate_in(json.loads(ran.out))
    assert mirrored["failure"] is None
    assert mirrored["measured"]["verification"]["unverified"] == []


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize("scaled", ["", SCALED])
def test_gradients_that_add_up_to_others_are_found_out(advisor, tmp_path, scaled):
    model = tmp_path / "model.py"
    model.write_text(MEAN_OF_ITS_OWN.format(scaled=scaled))
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *FEW, "-q", "--json")
    assert ran.code == 0, ran.err
    failure = candidate_in(json.loads(ran.out))["failure"]
    if scaled:
        assert failure is None
    else:
        assert failure["kind"] == "wrong-result"
        assert "divided by strategy.num_replicas_in_sync" in failure["message"]


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(("norm", "is_wrong"), [(1e-2, True), (1e6, False)])
def test_gradients_that_replicas_clip_by_norms_of_their_own_are_found_out(
    advisor, tmp_path, norm, *, is_wrong
):
    model = tmp_path / "model.py"
    model.write_text(CLIPPED.format(norm=norm))
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *FEW, "-q", "--json")
    assert ran.code == 0, ran.err
    failure = candidate_in(json.loads(ran.out))["failure"]
    if is_wrong:
        assert failure["kind"] == "wrong-result"
        assert "each replica clips by its own" in failure["message"]
    else:
        assert failure is None


@pytest.mark.slow
@needs_workers
def test_replicas_that_train_alone_are_a_wrong_result_with_line_and_remedy(advisor, tmp_path):
    """Once told *split: mirrored, 1.87×*: `assign_sub` exchanges nothing under `tf.distribute`."""
    model = tmp_path / "alone.py"
    model.write_text(ALONE)
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *FEW, "-q", "--json")
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    failure = candidate_in(analysis)["failure"]
    assert failure["kind"] == "wrong-result"
    assert "Variable" in failure["message"]
    assert "alone.py:10" in failure["message"]
    assert "optimizer" in failure["message"]
    assert analysis["recommendation"]["verdict"] != "split"


@pytest.mark.slow
@needs_workers
def test_a_process_that_dies_costs_the_candidate_alone(fork_server, tmp_path, monkeypatch):
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    run_steps = MirroredTestbed.run_steps
    turns = []

    def break_and_run(self, *args):
        turns.append(1)
        if len(turns) == 3:
            os.kill(self._children[1].pid, signal.SIGKILL)
        return run_steps(self, *args)

    monkeypatch.setattr(MirroredTestbed, "run_steps", break_and_run)
    ran = run_here("analyze", str(model), "-o", str(tmp_path / "out"), *FEW, "-q", "--json")
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    failure = candidate_in(analysis)["failure"]
    assert failure["kind"] == "crashed"
    assert failure["message"].endswith("was killed by SIGKILL")
    assert len(analysis["candidates"][0]["measured"]["step_ns"]["samples"]) == 5


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--ratios", "3:1"), "gives all devices the same number of samples, not 24 + 8"),
        (("--devices", "3"), "gives all devices the same number of samples, not 11 + 11 + 10"),
    ],
)
def test_uneven_shares_cannot_be_mirrored(advisor, tmp_path, words, reason):
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    output = tmp_path / "out"
    ran = advisor("analyze", str(model), "-o", str(output), *FEW, *words, "--no-run", "-q")
    assert ran.code == 0, ran.err
    assert reason in (output / "report.md").read_text()


def test_elsewhere_replicas_are_simulated(advisor, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(MODEL)
    words = (*FEW, "--hardware", "4xV100-NVLink", "-q", "--json")
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    mirrored = candidate_in(analysis)
    assert mirrored["samples"] == [8, 8, 8, 8]
    # An all-reduce of dense gradients and three gathers, on each of four devices; what is fed and
    # fetched crosses to the host and back.
    assert mirrored["predicted"]["transfer_count"] >= 4 * (1 + 3)
    assert "PA103" not in {finding["code"] for finding in analysis["findings"]}


@pytest.mark.slow
@needs_workers
def test_replicas_that_take_statistics_and_draw_are_verified_as_well(advisor, tmp_path):
    """TensorFlow's own split of the batch and ours are held against one reference."""
    model = tmp_path / "model.py"
    model.write_text(OF_ITS_OWN)
    few = (*FEW[:-1], "batch,mirrored")
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *few, "-q", "--json")
    assert ran.code == 0, ran.err
    candidates = {each["name"]: each for each in json.loads(ran.out)["candidates"]}
    for name in ("batch", "mirrored"):
        assert candidates[name]["failure"] is None, name
        verification = candidates[name]["measured"]["verification"]
        assert (verification["unverified"], verification["held_equal"]) == ([], True), name


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize(
    ("script", "testbed"),
    [
        (FIT, "workers"),
        (FIT, "logical-cpus"),
        (LOOP.format(built=""), "workers"),
        (LOOP.format(built=BUILT), "logical-cpus"),
    ],
)
def test_a_script_runs_once_more_as_replicas_up_to_its_step(advisor, tmp_path, script, testbed):
    path = tmp_path / "train.py"
    path.write_text(script)
    words = ("--testbed", testbed, *FEW, "-q", "--json")
    ran = advisor("analyze", str(path), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    mirrored = candidate_in(json.loads(ran.out))
    assert mirrored["failure"] is None
    assert mirrored["samples"] == [16, 16]
    verification = mirrored["measured"]["verification"]
    assert (verification["unverified"], verification["held_equal"]) == ([], False)


@pytest.mark.slow
@needs_workers
def test_variables_that_replicas_of_one_process_cannot_make_are_told_with_a_remedy(
    advisor, tmp_path
):
    path = tmp_path / "train.py"
    path.write_text(LOOP.format(built=""))
    words = ("--testbed", "logical-cpus", *FEW, "-q", "--json")
    ran = advisor("analyze", str(path), "-o", str(tmp_path / "out"), *words)
    failure = candidate_in(json.loads(ran.out))["failure"]
    assert "those of an optimizer by optimizer.build(model.trainable_variables)" in str(failure)


@pytest.mark.slow
@needs_workers
@pytest.mark.parametrize("end", ["raise ValueError(sys.argv[2])", "os._exit(3)"])
def test_a_second_run_that_fails_quotes_no_secret(advisor, tmp_path, end):
    path = tmp_path / "train.py"
    path.write_text(AGAIN.format(end=end) + FIT)
    output = tmp_path / "out"
    words = ("-o", str(output), *FEW, "-v", "--", "--api-key", "battery-staple")
    ran = advisor("analyze", str(path), *words)
    assert ran.code == 0, ran.err
    failure = candidate_in(json.loads((output / "analysis.json").read_text()))["failure"]
    told = output / failure["in_full"] if failure["in_full"] else None
    assert "***" in (failure["message"] if told is None else told.read_text())
    texts = [each.read_bytes() for each in output.rglob("*") if each.is_file()]
    texts += [ran.out.encode(), ran.err.encode()]
    assert not any(b"battery-staple" in text for text in texts)
