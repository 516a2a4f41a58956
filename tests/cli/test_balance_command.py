"""`advisor balance`: on real workers, and what it refuses."""

import json

import jsonschema
import pytest
from real_runs import needs_workers

from placement_advisor.results.contracts import load_schema

MODEL = """
import tensorflow as tf

weights = tf.Variable(tf.ones((256, 256)))

@tf.function
def step(x):
    for _ in range(8):
        x = tf.tanh(x @ weights)
    return x

inputs = (tf.ones((SAMPLES, 256)),)
"""
NO_BATCH = """
import tensorflow as tf

@tf.function
def step():
    return tf.ones(3)
"""


def written(folder, text):
    model = folder / "model.py"
    model.write_text(text)
    return str(model)


@pytest.mark.slow
@needs_workers
def test_two_real_workers_share_a_batch(advisor, tmp_path):
    model = written(tmp_path, MODEL.replace("SAMPLES", "64"))
    ran = advisor("balance", model, "--testbed", "workers", "--json", "-q")
    assert ran.code == 0, ran.err
    content = json.loads(ran.out)
    jsonschema.Draft202012Validator(load_schema("balance")).validate(content)
    assert [device["name"] for device in content["devices"]] == ["worker:0", "worker:1"]
    assert [point["samples"] for point in content["devices"][0]["measured"]] == [64, 32, 16]
    tried = {tuple(each["samples"]): each["step_ns"] for each in content["tried"]}
    assert (32, 32) in tried
    assert tried[tuple(content["advised"])] == min(tried.values())
    assert all(sum(samples) == 64 for samples in tried)


def test_where_nothing_can_be_timed_that_is_said(advisor, tmp_path):
    ran = advisor("balance", written(tmp_path, NO_BATCH), "--testbed", "none", "-q")
    assert ran.code == 2
    assert "nothing can run here" in ran.err


def test_a_model_without_a_batch_is_refused(advisor, tmp_path):
    ran = advisor("balance", written(tmp_path, NO_BATCH), "--testbed", "logical-cpus", "-q")
    assert ran.code == 2
    assert "its inputs hold no batch" in ran.err


def test_a_step_that_compares_samples_with_each_other_is_refused(advisor, tmp_path):
    pairs = MODEL.replace("SAMPLES", "64").replace("return x", "return x @ tf.transpose(x)")
    ran = advisor("balance", written(tmp_path, pairs), "--testbed", "logical-cpus", "-q")
    assert ran.code == 2
    assert "makes something for each pair of samples" in ran.err


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ("lots", "'lots' is no size"),
        ("0GB:1GB", "a device has no memory"),
        ("1GB:1GB:1GB", "3 sizes for 2 devices"),
        ("100kB", "cpu:0 has 100 kB: the step holds"),
        ("1MB", "a batch of 2048 does not fit: the devices hold"),
    ],
)
def test_memory_that_does_not_do_is_refused(advisor, tmp_path, memory, said):
    model = written(tmp_path, MODEL.replace("SAMPLES", "2048"))
    ran = advisor("balance", model, "--testbed", "logical-cpus", "--memory", memory, "-q")
    assert ran.code == 2
    assert said in ran.err
