"""`advisor analyze` with the batch split: run on real workers, refused, and simulated elsewhere."""

import json

import jsonschema
import pytest
from command_runs import run_here
from real_runs import needs_workers

from placement_advisor.results.contracts import load_schema

FEW = ("--rounds", "5", "--steps", "1", "--effort", "0.01", "--refine", "0")
MODEL = """
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((64,)), {layer}, keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"])
x = np.random.default_rng(1).normal(size=(900, 64)).astype("float32")
y = np.arange(900) % 10
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(30)
"""
DENSE = 'keras.layers.Dense(256, activation="relu")'
NOT_BY_SHARES = """
import tensorflow as tf

@tf.function
def step(x):
    return tf.tanh(tf.reshape(x, (8, 3)))

inputs = (tf.reshape(tf.range(24.0), (8, 3)),)
"""


@pytest.fixture(scope="module")
def run(fork_server, tmp_path_factory):
    """One complete run of a step alone and with its batch split, in two ways."""
    folder = tmp_path_factory.mktemp("batch")
    model = folder / "model.py"
    model.write_text(MODEL.format(layer=DENSE))
    output = folder / "out"
    families = "batch,variables-spread,variables-on-host"
    ran = run_here("analyze", str(model), "-o", str(output), "--candidates", families, *FEW)
    return ran, output


@pytest.fixture(scope="module")
def candidates(run):
    assert run[0].code == 0, run[0].err
    analysis = json.loads((run[1] / "analysis.json").read_text())
    jsonschema.validate(analysis, load_schema("analysis"))
    return {candidate["name"]: candidate for candidate in analysis["candidates"]}


@pytest.fixture(scope="module")
def batch(candidates):
    return candidates["batch"]


@needs_workers
class TestASplitBatch:
    def test_computes_what_the_step_does_on_half_of_the_samples_each(self, batch):
        assert batch["samples"] == [15, 15]
        assert batch["failure"] is None
        assert batch["measured"]["verification"]["unverified"] == []
        assert batch["measured"]["moved_ops"] == []

    def test_has_no_finding_that_replicas_differ(self, run):
        analysis = json.loads((run[1] / "analysis.json").read_text())
        assert "PA304" not in {finding["code"] for finding in analysis["findings"]}

    def test_copies_what_was_predicted(self, batch):
        predicted, measured = batch["predicted"], batch["measured"]
        # Four variables go there; their gradients, the sum of losses and the hits come back.
        assert predicted["transfer_count"] == measured["transfer_count"] == 10
        assert predicted["transfer_bytes"] == measured["transfer_bytes"]

    def test_is_predicted_from_what_its_ops_were_measured_to_cost(self, batch):
        ratio = batch["predicted"]["ratio_to_single"]
        assert 0 < ratio["low"] < ratio["ratio"] < ratio["high"]
        assert all(time_ns > 0 for time_ns in batch["predicted"]["compute_ns"].values())

    def test_has_a_row_and_how_to_do_it_but_no_placement_file(self, run, batch):
        ran, output = run
        assert "\nbatch " in ran.out
        report = (output / "report.md").read_text()
        assert "of the 30 samples of a batch 15 on worker:0, 15 on worker:1" in report
        analysis = json.loads((output / "analysis.json").read_text())
        best = analysis["recommendation"]["candidate"]
        variables = {"batch": "", "variables-spread": ', variables="spread"'}[best]
        devices = '["/GPU:0", "/GPU:1"]'
        call = f"make_parallel(step, {devices}, ratios=[15, 15]{variables}, inputs=inputs)"
        assert call in report
        assert batch["placement_file"] is None
        assert not (output / "placements" / "batch.json").exists()

    def test_has_variables_on_both_devices_where_they_are_spread(self, candidates):
        spread = candidates["variables-spread"]
        assert spread["failure"] is None
        assert spread["measured"]["verification"]["unverified"] == []
        predicted, measured = spread["predicted"], spread["measured"]
        assert predicted["transfer_count"] == measured["transfer_count"]
        assert predicted["transfer_bytes"] == measured["transfer_bytes"]
        held, all_on_first = (
            each["predicted"]["peak_memory_bytes"] for each in (spread, candidates["batch"])
        )
        assert held["worker:0"] < all_on_first["worker:0"]
        assert held["worker:1"] > all_on_first["worker:1"]

    def test_needs_a_host_to_have_variables_there(self, candidates):
        failure = candidates["variables-on-host"]["failure"]
        assert failure["kind"] == "not-applicable"
        assert failure["message"] == "worker:0 has no host beside it that could hold variables"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("--no-run",),
            "it takes no batch of 4: ValueError: Cannot reshape a tensor with 12 elements",
        ),
        (("--devices", "9"), "a batch of 8 has less than one sample for each of 9"),
    ],
)
def test_a_batch_that_cannot_be_split_is_said_with_its_reason_and_nothing_else_is_lost(
    advisor, tmp_path, words, reason
):
    model = tmp_path / "model.py"
    model.write_text(NOT_BY_SHARES)
    output = str(tmp_path / "out")
    ran = advisor("analyze", str(model), "-o", output, "--candidates", "batch", *FEW, *words, "-q")
    assert ran.code == 0, ran.err
    assert reason in (tmp_path / "out" / "report.md").read_text()
    assert "\nsingle " in ran.out


def test_elsewhere_a_split_batch_is_simulated(advisor, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(layer=DENSE))
    families = "batch,variables-on-host"
    words = ("--candidates", families, "--hardware", "4xV100-NVLink", *FEW, "-q", "--json")
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    single, batch, on_host = json.loads(ran.out)["candidates"]
    assert on_host["samples"] == [8, 8, 7, 7]
    assert on_host["predicted"]["compute_ns"]["CPU:0"] > 0
    assert batch["samples"] == [8, 8, 7, 7]
    # At least the variables to each of three devices, and their gradients back.
    assert batch["predicted"]["transfer_count"] > 3 * 8
    assert batch["predicted"]["step_ns"] != single["predicted"]["step_ns"]


TOWERS = """
import keras
import numpy as np

keras.utils.set_random_seed(3)
sides = [keras.Input((64,), name=f"in_{i}") for i in range(2)]
towers = [keras.layers.Dense(96, activation="tanh", name=f"tower_{i}")(sides[i]) for i in (0, 1)]
both = keras.layers.Dense(1, name="rating")(keras.layers.Concatenate()(towers))
model = keras.Model(sides, both)
model.compile("adam", "mse")
random = np.random.default_rng(1)
x = [random.normal(size=(24, 64)).astype("float32") for _ in sides]
inputs = (x, np.ones((24, 1), "float32"))
"""


@pytest.mark.slow
def test_on_four_devices_the_batch_goes_to_pairs_and_the_towers_of_each_to_its_devices(
    advisor, tmp_path
):
    model = tmp_path / "model.py"
    model.write_text(TOWERS)
    words = ("--testbed", "logical-cpus", "--devices", "4", *FEW, "-q", "--json")
    output = tmp_path / "out"
    ran = advisor("analyze", str(model), "-o", str(output), "--candidates", "batch-towers", *words)
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    jsonschema.validate(analysis, load_schema("analysis"))
    found = analysis["candidates"][1]
    assert (found["name"], found["samples"], found["failure"]) == ("batch-towers", [12, 12], None)
    assert found["predicted"]["step_ns"] > 0
    assert all(time_ns > 0 for time_ns in found["predicted"]["compute_ns"].values())
    assert len(found["predicted"]["compute_ns"]) == 4
    # It ran, and computes what the step does.
    assert found["measured"]["verification"]["unverified"] == []
    (strong,) = (row for row in analysis["scaling"] if row["name"] == "strong scaling")
    assert (strong["devices"], strong["batch"]) == (4, 24)
    layout = json.loads((output / "placements" / "batch-towers.json").read_text())
    assert set(layout["devices"]) == {"cpu:0", "cpu:1"}


def test_with_fewer_devices_or_no_towers_that_is_said(advisor, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(layer=DENSE))
    reasons = {2: "two pairs of devices are 4, and there are 2", 4: "no layer joins two"}
    for devices, reason in reasons.items():
        output = tmp_path / str(devices)
        words = ("--no-run", "--devices", str(devices), "--candidates", "batch-towers", "-q")
        ran = advisor("analyze", str(model), "-o", str(output), *words, *FEW)
        assert ran.code == 0, ran.err
        assert reason in (output / "report.md").read_text()


@pytest.mark.slow
def test_a_step_that_draws_random_numbers_is_verified_with_draws_held_equal(advisor, tmp_path):
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(layer="keras.layers.Dropout(0.5)"))
    words = ("--candidates", "batch", *FEW, "-q", "--json")
    ran = advisor("analyze", str(model), "-o", str(tmp_path / "out"), *words)
    assert ran.code == 0, ran.err
    analysis = json.loads(ran.out)
    batch = analysis["candidates"][1]
    assert batch["failure"] is None
    # Its draws aside, it was shown to train the same model.
    assert batch["measured"]["verification"]["held_equal"]
    assert batch["measured"]["verification"]["unverified"] == []
    (told,) = (each for each in analysis["findings"] if each["code"] == "PA304")
    assert told["finding"].endswith(
        "each device takes random numbers of its own in sequential/dropout"
    )
