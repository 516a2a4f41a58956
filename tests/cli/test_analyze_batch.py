"""`advisor analyze` with the batch split: run on real workers, refused, and simulated elsewhere."""

import json

import pytest
from cli_answers import analysed
from command_runs import run_here
from real_runs import needs_workers

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
    families = "batch,variables-spread,variables-on-host"
    return analysed(run_here, model, folder / "out", "--candidates", families, *FEW)


@needs_workers
class TestASplitBatch:
    def test_computes_what_the_step_does_on_half_of_the_samples_each(self, run):
        batch = run.candidate("batch")
        assert batch["samples"] == [15, 15]
        assert batch["failure"] is None
        predicted, measured = batch["predicted"], batch["measured"]
        assert measured["verification"]["unverified"] == []
        assert measured["moved_ops"] == []
        # No finding that replicas differ.
        assert "PA304" not in {finding["code"] for finding in run.analysis["findings"]}
        # Four variables go there; their gradients, the sum of losses and the hits come back.
        assert predicted["transfer_count"] == measured["transfer_count"] == 10
        assert predicted["transfer_bytes"] == measured["transfer_bytes"]
        ratio = predicted["ratio_to_single"]
        assert 0 < ratio["low"] < ratio["ratio"] < ratio["high"]
        assert all(time_ns > 0 for time_ns in predicted["compute_ns"].values())

    def test_has_a_row_and_how_to_do_it_but_no_placement_file(self, run):
        assert "\nbatch " in run.ran.out
        report = run.text("report.md")
        assert "of the 30 samples of a batch 15 on worker:0, 15 on worker:1" in report
        best = run.analysis["recommendation"]["candidate"]
        variables = {"batch": "", "variables-spread": ', variables="spread"'}[best]
        devices = '["/GPU:0", "/GPU:1"]'
        call = f"make_parallel(step, {devices}, ratios=[15, 15]{variables}, inputs=inputs)"
        assert call in report
        assert run.candidate("batch")["placement_file"] is None
        assert not (run.folder / "placements" / "batch.json").exists()

    def test_has_variables_on_both_devices_where_they_are_spread_or_on_a_host(self, run):
        spread = run.candidate("variables-spread")
        assert spread["failure"] is None
        predicted, measured = spread["predicted"], spread["measured"]
        assert measured["verification"]["unverified"] == []
        assert predicted["transfer_count"] == measured["transfer_count"]
        assert predicted["transfer_bytes"] == measured["transfer_bytes"]
        held = predicted["peak_memory_bytes"]
        all_on_first = run.candidate("batch")["predicted"]["peak_memory_bytes"]
        assert held["worker:0"] < all_on_first["worker:0"]
        assert held["worker:1"] > all_on_first["worker:1"]
        failure = run.candidate("variables-on-host")["failure"]
        assert failure["kind"] == "not-applicable"
        assert failure["message"] == "worker:0 has no host beside it that could hold variables"


def test_a_batch_that_cannot_be_split_is_said_with_its_reason_and_nothing_else_is_lost(analyze):
    found = analyze(NOT_BY_SHARES, "--candidates", "batch", *FEW, "--quick", "-q")
    reason = "it takes no batch of 4: ValueError: Cannot reshape a tensor with 12 elements"
    assert reason in found.text("report.md")
    assert "\nsingle " in found.ran.out


def test_elsewhere_a_split_batch_is_simulated(analyze):
    words = ("--candidates", "batch,variables-on-host", "--hardware", "4xV100-NVLink", *FEW, "-q")
    found = analyze(MODEL.format(layer=DENSE), "--quick", *words)
    single, batch, on_host = found.analysis["candidates"]
    assert on_host["samples"] == batch["samples"] == [8, 8, 7, 7]
    assert on_host["predicted"]["compute_ns"]["CPU:0"] > 0
    # At least the variables to each of three devices, and their gradients back.
    assert batch["predicted"]["transfer_count"] > 3 * 8
    assert batch["predicted"]["step_ns"] != single["predicted"]["step_ns"]


@pytest.mark.slow
def test_on_four_devices_the_batch_goes_to_pairs_and_the_towers_of_each_to_its_devices(
    analyze, two_towers
):
    words = ("--testbed", "logical-cpus", "--devices", "4", "--candidates", "batch-towers")
    run = analyze(two_towers, *words, *FEW, "-q")
    found = run.candidate("batch-towers")
    assert (found["samples"], found["failure"]) == ([16, 16], None)
    assert found["predicted"]["step_ns"] > 0
    assert all(time_ns > 0 for time_ns in found["predicted"]["compute_ns"].values())
    assert len(found["predicted"]["compute_ns"]) == 4
    # It ran, and computes what the step does.
    assert found["measured"]["verification"]["unverified"] == []
    (strong,) = (row for row in run.analysis["scaling"] if row["name"] == "strong scaling")
    assert (strong["devices"], strong["batch"]) == (4, 32)
    layout = json.loads(run.text("placements/batch-towers.json"))
    assert set(layout["devices"]) == {"cpu:0", "cpu:1"}


@pytest.mark.slow
def test_a_step_that_draws_random_numbers_is_verified_with_draws_held_equal(analyze):
    dropout = MODEL.format(layer="keras.layers.Dropout(0.5)")
    found = analyze(dropout, "--candidates", "batch", *FEW, "-q")
    batch = found.candidate("batch")
    assert batch["failure"] is None
    # Its draws aside, it was shown to train the same model.
    assert batch["measured"]["verification"]["held_equal"]
    assert batch["measured"]["verification"]["unverified"] == []
    (told,) = (each for each in found.analysis["findings"] if each["code"] == "PA304")
    end = "each device takes random numbers of its own in sequential/dropout"
    assert told["finding"].endswith(end)
