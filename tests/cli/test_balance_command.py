"""`advisor balance`: on real workers, and what it refuses."""

import pytest
from cli_answers import refusal, told
from real_runs import needs_workers

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


PAIRS = MODEL.replace("return x", "return x @ tf.transpose(x)")


@pytest.fixture
def balance(advisor, write_model):
    def run(model, *words, samples=64):
        path = write_model(model.replace("SAMPLES", str(samples)))
        return advisor("balance", str(path), *words, "-q")

    return run


@pytest.mark.slow
@needs_workers
def test_two_real_workers_share_a_batch(balance):
    content = told(balance(MODEL, "--testbed", "workers", "--json"), "balance")
    assert [device["name"] for device in content["devices"]] == ["worker:0", "worker:1"]
    assert [point["samples"] for point in content["devices"][0]["measured"]] == [64, 32, 16]
    tried = {tuple(each["samples"]): each["step_ns"] for each in content["tried"]}
    assert (32, 32) in tried
    assert tried[tuple(content["advised"])] == min(tried.values())
    assert all(sum(samples) == 64 for samples in tried)


@pytest.mark.parametrize(
    ("model", "testbed", "said"),
    [
        (NO_BATCH, "none", "nothing can run here"),
        (NO_BATCH, "logical-cpus", "its inputs hold no batch"),
        (PAIRS, "logical-cpus", "makes something for each pair of samples"),
    ],
)
def test_what_cannot_be_balanced_is_refused(balance, model, testbed, said):
    assert said in refusal(balance(model, "--testbed", testbed))


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
def test_memory_that_does_not_do_is_refused(balance, memory, said):
    words = ("--testbed", "logical-cpus", "--memory", memory)
    assert said in refusal(balance(MODEL, *words, samples=2048))
