"""What the loader finds in a model file, and what it says where it finds nothing."""

from __future__ import annotations

import pytest
from traced_models import MODELS

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import RemoteModule

loaded_workload = RemoteModule("loaded_workload")


@pytest.fixture
def load(child, tmp_path):
    """Return a function that loads a model file of a text, or one of the models by name."""

    def load_file(source, **asked):
        path = MODELS / f"{source}.py"
        if "\n" in source:
            path = tmp_path / "model_file.py"
            path.write_text(source)
        return child.call(loaded_workload.load, str(path), asked)

    return load_file


def test_a_compiled_model_is_trained_on_its_dataset(load):
    found = load("two_tower")
    assert found == {
        "name": "functional",
        "mode": "train",
        "chosen": "model (compiled Functional), batches from `dataset`",
        "batch_size": 4,
        "has_devices": False,
        "input_names": ("user", "item", "target"),
        "shapes": [[(4, 10), (4, 10), (4, 1)]] * 4,
    }


def test_weights_of_examples_are_part_of_the_batch(load):
    found = load("norm_dropout")
    assert found["shapes"] == [[(8, 6), (8, 1), (8, 1)]] * 4
    assert found["input_names"][1:] == ("target_0", "target_1")


def test_a_subclassed_model_is_built_from_a_batch_of_dictionaries(load):
    found = load("nested")
    assert (found["name"], found["mode"], found["batch_size"]) == ("ranker", "train", 4)
    assert found["shapes"][0] == [(4, 5), (4, 5), (4, 1)]


def test_a_compiled_model_is_used_if_asked(load):
    found = load("two_tower", mode="infer")
    assert (found["mode"], found["input_names"]) == ("infer", ("user", "item"))
    assert found["shapes"] == [[(4, 10), (4, 10)]] * 4


def test_a_step_is_chosen_before_a_model(load):
    found = load(
        """
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
inputs = (tf.ones((5, 3)), {"a": tf.ones((5,)), "b": tf.ones(())})
@tf.function
def train_step(batch, more):
    return model(batch)
"""
    )
    assert found == {
        "name": "train_step",
        "mode": "train",
        "chosen": "train_step (tf.function), one batch from `inputs`",
        "batch_size": 5,
        "has_devices": False,
        "input_names": ("batch", "more_0", "more_1"),
        "shapes": [[(5, 3), (5,), ()]],
    }


def test_a_method_can_be_the_step(load):
    found = load(
        """
import tensorflow as tf
class Trainer:
    @tf.function
    def step(self, batch):
        return batch
trainer = Trainer()
step = trainer.step
inputs = tf.ones((2,))
"""
    )
    assert found["input_names"] == ("batch",)


UNCOMPILED = """
import keras, numpy as np
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
    def call(self, inputs):
        return self.dense(inputs)
net = Net()
inputs = np.ones((3, 4), np.float32)
"""


def test_an_uncompiled_model_is_used(load):
    found = load(UNCOMPILED)
    assert (found["name"], found["mode"], found["shapes"]) == ("net", "infer", [[(3, 4)]])
    assert found["chosen"] == "net (not compiled Net), one batch from `inputs`"


def test_an_uncompiled_model_cannot_be_trained(load):
    with pytest.raises(ModelError, match="net is not compiled") as caught:
        load(UNCOMPILED, mode="train")
    assert "--mode infer" in str(caught.value.hint)


def test_a_step_cannot_be_used_for_inference(load):
    with pytest.raises(ModelError, match="step is a training step"):
        load("tf_gradients_step", mode="infer")


def test_a_dataset_is_batched_anew(load):
    found = load("norm_dropout", batch_size=5)
    assert found["batch_size"] == 5
    assert found["shapes"] == [[(5, 6), (5, 1), (5, 1)]] * 4


def test_one_batch_cannot_be_batched_anew(load):
    with pytest.raises(ModelError, match="--batch-size needs a `dataset`"):
        load("tf_gradients_step", batch_size=5)


def test_a_batch_larger_than_the_dataset_has_its_samples_several_times(load):
    found = load("norm_dropout", batch_size=1000)
    assert found["batch_size"] == 1000
    assert found["shapes"] == [[(1000, 6), (1000, 1), (1000, 1)]] * 4
    assert "its samples several times" in found["chosen"]


STEP = """
import tensorflow as tf
@tf.function
def step(batch):
    return batch
"""


def test_a_last_batch_that_is_shorter_is_left_out(load):
    found = load(STEP + "dataset = tf.data.Dataset.range(7).batch(3)\n")
    assert found["shapes"] == [[(3,)], [(3,)]]


TWO_MODELS = """
import keras, numpy as np
first = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
second = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
inputs = np.ones((2, 3), np.float32)
"""


def test_of_two_models_one_is_named(load):
    assert load(TWO_MODELS, name="second")["chosen"].startswith("second (not compiled")


def test_of_two_models_that_called_model_is_chosen(load):
    found = load(TWO_MODELS + "model = second\n")
    assert found["chosen"].startswith("model (not compiled")
    assert found["name"] == "sequential_1"


def test_one_model_under_two_names_is_one_model(load):
    found = load(TWO_MODELS + "first = second\n")
    assert found["chosen"].startswith("first (not compiled")


REFUSED = {
    "two models": (TWO_MODELS, {}, "several models: first, second"),
    "an unknown name": (TWO_MODELS, {"name": "third"}, "nothing is called 'third'"),
    "a name of something else": (TWO_MODELS, {"name": "inputs"}, "'inputs' is a ndarray"),
    "no model": ("import numpy as np\ninputs = np.ones(3)\n", {}, "no model found"),
    "no batches": (STEP, {}, "no example batches"),
    "an empty dataset": (
        STEP + "dataset = tf.data.Dataset.range(0).batch(3)\n",
        {},
        "`dataset` is empty",
    ),
    "a dataset that fails": (
        STEP + "dataset = tf.data.Dataset.range(3).map(lambda i: 7 // i)\n",
        {},
        "`dataset` fails",
    ),
    "ragged batches": (
        STEP + "inputs = tf.ragged.constant([[1], [2, 3]])\n",
        {},
        "hold a RaggedTensor",
    ),
    "batches that the model does not take": (
        TWO_MODELS.replace("np.ones((2, 3)", "np.ones((2, 5)")
        + "class Net(keras.Model):\n"
        + "    def call(self, inputs):\n"
        + "        return first(inputs)\n"
        + "model = Net()\n",
        {},
        "model does not take its example batch",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_loader_says_what_is_wrong_with(load, what):
    source, options, reason = REFUSED[what]
    with pytest.raises(ModelError, match=reason) as caught:
        load(source, **options)
    assert "model_file.py" in caught.value.message


def test_a_file_may_be_called_like_a_module(child, tmp_path):
    path = tmp_path / "queue.py"
    path.write_text(STEP + "inputs = tf.ones((2,))\n")
    before = child.call(loaded_workload.file_of_module, "queue")
    found = child.call(loaded_workload.load, str(path), {})
    assert found["name"] == "step"
    after = child.call(loaded_workload.file_of_module, "queue")
    assert after == before


def test_a_file_imports_what_lies_beside_it(child, tmp_path):
    (tmp_path / "beside_it.py").write_text(STEP)
    path = tmp_path / "model_file.py"
    path.write_text("from beside_it import step, tf\ninputs = tf.ones((2,))\n")
    found = child.call(loaded_workload.load, str(path), {})
    assert found["name"] == "step"
