"""What in a Python file is taken, what it is run on, and what is said where nothing is."""

import numpy as np
import pytest
from traced_models import MODELS

from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import RemoteModule

loaded_workload = RemoteModule("loaded_workload")

IMPORTS = "import keras\nimport numpy as np\nimport placement_advisor\nimport tensorflow as tf\n"


@pytest.fixture
def load(loader, write_model):
    """Return a function that loads a model file of a text, or one of the models by name."""

    def load_file(source, function=loaded_workload.load, **asked):
        is_text = "\n" in source
        path = write_model(IMPORTS + source) if is_text else MODELS / f"{source}.py"
        return loader.call(function, str(path), asked)

    return load_file


@pytest.fixture
def trace(load):
    """Return a function that loads and traces a model file of a text."""
    return lambda source, **asked: load(source, loaded_workload.trace, **asked)


ROWS = "inputs = (np.ones((4, 3), 'float32'), np.ones((4, 1), 'float32'))\n"
MODEL = "model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name='dense')\n"
STEP = """
weights = tf.Variable(tf.ones((3, 1)))

@tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1])])
def train_step(x, y):
    loss = tf.reduce_mean((x @ weights - y) ** 2)
    weights.assign_sub(0.1 * tf.gradients(loss, [weights])[0])
    return loss
"""
WORKLOAD = """
def double(rows):
    return 2.0 * rows

def workload():
    return placement_advisor.Workload(step=double, inputs=(np.ones((5, 2)),), mode="infer")
"""


def test_a_workload_comes_before_a_step_and_a_model(trace):
    found = trace(MODEL + STEP + WORKLOAD)
    assert (found["mode"], found["batch_size"]) == ("infer", 5)
    assert found["chosen"] == "workload() (Workload), one batch from the inputs of workload()"
    assert found["input_names"] == ("rows",)
    np.testing.assert_array_equal(found["returned"][0], np.full((5, 2), 2.0))


def test_a_workload_is_made_of_specs_at_a_batch_of_its_own_or_of_a_dataset_of_arguments(trace):
    source = WORKLOAD.replace(
        "np.ones((5, 2)),)", "{'rows': tf.TensorSpec([None, 2])},), batch_size=7"
    ).replace("2.0 * rows", "2.0 * rows['rows']")
    found = trace(source)
    assert (found["batch_size"], found["shapes"]) == (7, [[(7, 2)]])
    assert found["chosen"].endswith("batches made up for the specs in the inputs of workload()")
    assert trace(source, batch_size=9)["shapes"] == [[(9, 2)]]

    found = trace(
        "def workload():\n"
        "    pairs = tf.data.Dataset.from_tensor_slices((tf.range(6), tf.range(6))).batch(2)\n"
        "    return placement_advisor.Workload(step=tf.add, inputs=pairs)\n"
    )
    assert (found["mode"], found["shapes"]) == ("train", [[(2,), (2,)]] * 3)
    np.testing.assert_array_equal(found["returned"][0], [8, 10])


def test_a_training_step_comes_before_a_model_and_examples_before_a_signature(trace):
    found = trace(MODEL + STEP)
    assert (found["name"], found["mode"], found["batch_size"]) == ("train_step", "train", 32)
    assert found["chosen"] == (
        "train_step (tf.function), batches made up for its input_signature, batch 32 assumed"
    )
    assert found["shapes"] == [[(32, 3), (32, 1)]]
    assert "AssignSubVariableOp" in found["kinds"]

    found = trace(STEP + ROWS)
    assert found["chosen"] == "train_step (tf.function), one batch from `inputs`"
    assert found["shapes"] == [[(4, 3), (4, 1)]]


def test_the_only_function_or_the_only_one_that_trains_comes_before_a_model_not_compiled(load):
    source = MODEL + STEP.replace("train_step", "fit_line")
    assert load(source)["chosen"].startswith("fit_line (tf.function)")
    compiled = load(source + "model.compile('sgd', 'mse')\n")
    assert compiled["chosen"].startswith("model (compiled Sequential)")

    other = (
        "\n@tf.function\ndef evaluate(x, y):\n    return tf.reduce_mean((x @ weights - y) ** 2)\n"
    )
    found = load(MODEL + STEP.replace("train_step", "train_once") + other)
    assert found["chosen"].startswith("train_once (tf.function)")
    assert found["mode"] == "train"


def test_a_plain_function_and_a_step_of_an_object_are_found(trace):
    plain = STEP.replace("@tf.function", "#")
    assert trace(MODEL + plain + ROWS)["chosen"].startswith("train_step (function), one batch")

    source = """
class Trainer:
    def __init__(self):
        self.weights = tf.Variable(tf.ones((3, 1)))

    @tf.function
    def train_step(self, x, y):
        loss = tf.reduce_mean((x @ self.weights - y) ** 2)
        self.weights.assign_sub(0.1 * tf.gradients(loss, [self.weights])[0])
        return loss

trainer = Trainer()
"""
    found = trace(source + ROWS)
    assert found["chosen"].startswith("trainer.train_step (tf.function), one batch")


PLAIN = "@tf.function\ndef infer(x, y):\n    return x - y\n"


def test_arguments_come_by_name_in_a_tuple_or_not_at_all(trace):
    found = trace(PLAIN + "inputs = {'y': np.full(2, 3.0), 'x': np.full(2, 5.0)}\n")
    assert found["input_names"] == ("x", "y")
    np.testing.assert_array_equal(found["returned"][0], [2.0, 2.0])

    batch = """
import collections
Batch = collections.namedtuple("Batch", "x y")
inputs = Batch(np.full(2, 5.0), np.full(2, 3.0))
"""
    one = "@tf.function\ndef infer(batch):\n    return batch.x - batch.y\n"
    for source in (one, PLAIN):
        np.testing.assert_array_equal(trace(source + batch)["returned"][0], [2.0, 2.0])

    found = trace(
        "weights = tf.Variable([1.0, 2.0])\n@tf.function\ndef step():\n    return weights * 2.0\n"
    )
    assert found["chosen"] == "step (tf.function), which takes no inputs"
    assert found["batch_size"] is None
    np.testing.assert_array_equal(found["returned"][0], [2.0, 4.0])


def test_a_dataset_of_keras_is_a_dataset(trace):
    source = """
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return np.full((4, 3), i, "float32"), np.zeros((4, 1), "float32")

dataset = Batches()
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
"""
    found = trace(source)
    assert found["shapes"] == [[(4, 3), (4, 1)]] * 3
    assert [batch[0][0, 0] for batch in found["batches"]] == [0.0, 1.0, 2.0]
    with pytest.raises(ModelError, match="--batch-size needs"):
        trace(source, batch_size=8)


def test_a_name_comes_before_everything_also_that_of_a_function_or_method(load):
    source = MODEL + STEP + WORKLOAD + "other = tf.function(double)\n"
    assert load(source, name="model")["name"] == "dense"
    assert load(source, name="train_step")["mode"] == "train"
    assert load(source, name="workload")["mode"] == "infer"

    found = load("def network(units=2):\n    " + MODEL + "    return model\n", name="network")
    assert found["chosen"] == (
        "network() (not compiled Sequential), batches made up for its inputs, batch 32 assumed"
    )

    found = load(WORKLOAD + "inputs = np.ones((3, 2))\n", name="double")
    assert found["chosen"] == "double (function), one batch from `inputs`"
    found = load(MODULE, name="scaler.half", batch_size=2)
    assert (found["name"], found["shapes"]) == ("scaler.half", [[(2, 3)]])


@pytest.mark.parametrize("name", ["build_model", "make_model", "create_model", "get_model"])
def test_a_function_that_builds_a_model_is_found(load, name):
    found = load(
        f"def {name}():\n    {MODEL}    model.compile('sgd', 'mse')\n    return model\n"
        "if __name__ == '__main__':\n    print('runs no step')\n"
    )
    assert found["mode"] == "train"
    assert found["chosen"].startswith(f"{name}() (compiled Sequential)")
    assert found["shapes"] == [[(32, 3), (32, 1)]]


def test_a_model_says_its_shapes_by_symbolic_inputs_or_examples_or_a_call(load):
    found = load(
        "inputs = keras.Input((None, 3))\n"
        "outputs = keras.layers.LSTM(2)(inputs)\n"
        "net = keras.Model(inputs, outputs)\n"
    )
    assert found["shapes"] == [[(32, 128, 3)]]
    assert "batch 32 assumed, unknown sizes taken as 128" in found["chosen"]

    found = load(UNCOMPILED)
    assert (found["mode"], found["shapes"]) == ("infer", [[(3, 4)]])
    assert found["chosen"] == "net (not compiled Net), one batch from `inputs`"
    found = load(UNCOMPILED.replace("inputs = np.ones((3, 4), np.float32)", "net(np.ones((6, 4)))"))
    assert found["shapes"] == [[(32, 4)]]
    assert "batches made up for the shapes it was built for" in found["chosen"]


TWO_HEADS = """
one = keras.Input((3,), name="one")
two = keras.Input((4,), name="two")
both = keras.layers.Concatenate()([one, two])
model = keras.Model({"one": one, "two": two}, {
    "number": keras.layers.Dense(1, name="number")(both),
    "choice": keras.layers.Dense(6, name="choice")(both),
})
model.compile("sgd", {
    "number": "mse",
    "choice": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
})
"""


def test_outputs_get_the_targets_that_their_losses_want_said_or_not(trace):
    found = trace(TWO_HEADS)
    # In the order of the names: one, two; choice, number.
    assert found["shapes"] == [[(32, 3), (32, 4), (32,), (32, 1)]]
    classes = np.stack([batch[2] for batch in found["batches"]])
    assert classes.min() >= 0
    assert 2 <= classes.max() < 6

    found = trace(
        "sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)\n"
        "def own_loss(classes, logits):\n"
        "    return sparse(classes, logits)\n"
        "words = keras.Input((5,), dtype='int32')\n"
        "vectors = keras.layers.Embedding(8, 2)(words)\n"
        "model = keras.Model(words, keras.layers.Dense(8)(vectors))\n"
        "model.compile('adam', own_loss)\n"
    )
    assert found["shapes"] == [[(32, 5), (32, 5)]]


def test_examples_without_targets_are_completed_for_training_alone(trace):
    found = trace(MODEL + "model.compile('sgd', 'mse')\ninputs = np.ones((4, 3))\n")
    assert found["shapes"] == [[(4, 3), (4, 1)]]
    assert found["chosen"].endswith(
        "one batch from `inputs`, which has no targets, so all values made up"
    )

    found = trace(
        "one, two = keras.Input((3,)), keras.Input((3,))\n"
        "model = keras.Model([one, two], keras.layers.Add()([one, two]))\n"
        "inputs = (np.ones((4, 3)), np.ones((4, 3)))\n"
    )
    assert found["shapes"] == [[(4, 3), (4, 3)]]
    np.testing.assert_array_equal(found["returned"][0], np.full((4, 3), 2.0))


OWN_STEP = """
class Duel(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = keras.layers.Dense(2), keras.layers.Dense(2)

    def train_step(self, images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.left(images) - self.right(images))
        weights = self.left.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}

duel = Duel()
duel.compile("adam")
inputs = np.ones((4, 3), np.float32)
"""


def test_a_train_step_of_the_users_own_needs_no_loss_and_gets_targets_if_it_takes_some(trace):
    found = trace(OWN_STEP)
    assert (found["name"], found["mode"], found["shapes"]) == ("duel", "train", [[(4, 3)]])
    assert "AssignSubVariableOp" in found["kinds"]

    source = (
        "class Fitted(keras.Model):\n"
        "    def train_step(self, data):\n"
        "        x, y = data\n"
        "        with tf.GradientTape() as tape:\n"
        "            loss = tf.reduce_mean((self(x) - y) ** 2)\n"
        "        weights = self.trainable_weights\n"
        "        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))\n"
        "        return {'loss': loss}\n"
        "rows = keras.Input((3,))\n"
        "model = Fitted(rows, keras.layers.Dense(2)(rows))\n"
        "model.compile('adam')\n"
    )
    assert trace(source)["shapes"] == [[(32, 3), (32, 2)]]
    alone = source.replace("x, y = data", "x, y = data, 0.0")
    assert trace(alone)["shapes"] == [[(32, 3)]]


def test_a_module_and_the_only_compiled_of_several_models_are_found(trace):
    found = trace(
        MODEL.replace("model", "encoder")
        + "whole = keras.Sequential([encoder, keras.layers.Dense(3)])\n"
        + "whole.compile('sgd', 'mse')\n"
    )
    assert found["chosen"].startswith("whole (compiled Sequential)")

    found = trace(MODULE)
    assert (found["name"], found["mode"], found["batch_size"]) == ("scaler", "infer", 32)
    np.testing.assert_allclose(found["returned"][0], 2 * found["batches"][-1][0])
    found = trace(MODEL, batch_size=5)
    assert (found["mode"], found["shapes"]) == ("infer", [[(5, 3)]])
    assert found["chosen"] == "model (not compiled Sequential), batches made up for its inputs"


MODULE = """
class Scaler(tf.Module):
    def __init__(self):
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def __call__(self, rows):
        return self.factor * rows

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def half(self, rows):
        return rows / self.factor

scaler = Scaler()
"""


def test_what_the_file_prints_stays_in_the_child(load, capfd):
    load(MODEL + "print('noise')\n")
    assert "noise" not in "".join(capfd.readouterr())


ECHO = """
@tf.function
def step(batch):
    return batch
"""
DATA = ECHO + "dataset = tf.data.Dataset."
TWO_MODELS = """
first = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="1st")
second = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="2nd")
inputs = np.ones((2, 3), np.float32)
"""
UNCOMPILED = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
    def call(self, inputs):
        return self.dense(inputs)
net = Net()
inputs = np.ones((3, 4), np.float32)
"""
REFUSED = [
    ("def workload():\n    return 3\n", {}, "workload() returned a int"),
    ("def workload():\n    return missing\n", {}, "NameError: name 'missing' is not defined"),
    (WORKLOAD, {"mode": "train"}, "workload() has mode 'infer', not 'train'"),
    (
        WORKLOAD.replace("np.ones((5, 2)),", "tf.TensorSpec([2]), 3.0"),
        {},
        "mixes specs with values",
    ),
    (WORKLOAD.replace("np.ones((5, 2)),", "1.0, 2.0"), {}, "too many positional arguments"),
    (WORKLOAD.replace("np.ones((5, 2))", "tf.TensorSpec(None)"), {}, "unknown number of dimension"),
    ("@tf.function\ndef step(x):\n    return x\n", {}, "step: no example batches"),
    (
        "class Net(keras.Model):\n    pass\nnet = Net()\n",
        {},
        "net (Net) does not say what inputs it takes",
    ),
    ("def build_model():\n    return None\n", {}, "build_model() returned a NoneType"),
    ("def build_model():\n    raise OSError('no data')\n", {}, "OSError: no data"),
    (MODULE, {"name": "scaler.third"}, "nothing is called 'scaler.third'"),
    (MODULE.replace("__call__", "twice"), {}, "scaler has several functions: half, twice"),
    (
        "class Empty(tf.Module):\n    pass\nempty = Empty()\n",
        {},
        "empty (Empty) has no tf.function with an input_signature",
    ),
    (MODEL.replace("(3,)", "(3,), 4"), {"batch_size": 5}, "have a fixed batch of 4, not 5"),
    (TWO_MODELS, {}, "several models: first, second"),
    (TWO_MODELS, {"name": "third"}, "nothing is called 'third'"),
    (TWO_MODELS, {"name": "inputs"}, "'inputs' is a ndarray"),
    ("inputs = np.ones(3)\n", {}, "no model found"),
    (DATA + "range(0).batch(3)\n", {}, "`dataset` is empty"),
    (DATA + "range(3).map(lambda i: 7 // i)\n", {}, "`dataset` fails"),
    (ECHO + "inputs = tf.ragged.constant([[1], [2, 3]])\n", {}, "hold a RaggedTensor"),
    (
        TWO_MODELS.replace("np.ones((2, 3)", "np.ones((2, 5)")
        + "class Net(keras.Model):\n"
        + "    def call(self, inputs):\n"
        + "        return first(inputs)\n"
        + "model = Net()\n",
        {},
        "model does not take its example batch",
    ),
    (UNCOMPILED, {"mode": "train"}, "net is not compiled"),
    (MODEL + STEP + ROWS, {"mode": "infer"}, "step is a training step"),
    (MODEL + STEP + ROWS, {"batch_size": 5}, "--batch-size needs a `dataset`"),
]


@pytest.mark.parametrize(("source", "options", "reason"), REFUSED)
def test_a_file_is_refused_with_its_name_and_the_reason(trace, source, options, reason):
    with pytest.raises(ModelError) as caught:
        trace(source, **options)
    assert "model.py: " in caught.value.message
    assert reason in caught.value.message
    assert "not compiled" not in reason or "--mode infer" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("strategy", "name"), [("MirroredStrategy", "model"), ("MultiWorkerMirroredStrategy", None)]
)
def test_a_model_made_under_a_strategy_is_that_of_one_replica(load, strategy, name):
    found = load(f"with tf.distribute.{strategy}().scope():\n    {MODEL}", name=name)
    assert found["chosen"].startswith("model (not compiled Sequential)")


def test_a_compiled_model_is_trained_on_its_dataset_or_used_if_asked(load):
    found = load("two_tower")
    assert found.pop("name").startswith("functional")
    assert found == {
        "mode": "train",
        "chosen": "model (compiled Functional), batches from `dataset`",
        "batch_size": 4,
        "has_devices": False,
        "input_names": ("user", "item", "target"),
        "shapes": [[(4, 10), (4, 10), (4, 1)]] * 4,
    }
    found = load("two_tower", mode="infer")
    assert (found["mode"], found["input_names"]) == ("infer", ("user", "item"))
    assert found["shapes"] == [[(4, 10), (4, 10)]] * 4


def test_weights_dictionaries_and_methods_are_parts_of_what_is_loaded(load):
    found = load("norm_dropout")
    assert found["shapes"] == [[(8, 6), (8, 1), (8, 1)]] * 4
    assert found["input_names"][1:] == ("target_0", "target_1")
    found = load("nested")
    assert (found["name"], found["mode"], found["batch_size"]) == ("ranker", "train", 4)
    assert found["shapes"][0] == [(4, 5), (4, 5), (4, 1)]

    found = load("""
class Trainer:
    @tf.function
    def step(self, batch, more):
        return batch
trainer = Trainer()
step = trainer.step
inputs = (tf.ones((5, 3)), {"a": tf.ones((5,)), "b": tf.ones(())})
""")
    assert found["input_names"] == ("batch", "more_0", "more_1")
    assert (found["batch_size"], found["shapes"]) == (5, [[(5, 3), (5,), ()]])

    found = load(ECHO + "dataset = tf.data.Dataset.range(7).batch(3)\n")
    assert found["shapes"] == [[(3,)], [(3,)]]


def test_a_dataset_is_batched_anew_its_samples_several_times_and_one_batch_is_not(load):
    for size in (5, 1000):
        found = load("norm_dropout", batch_size=size)
        assert found["batch_size"] == size
        assert found["shapes"] == [[(size, 6), (size, 1), (size, 1)]] * 4
    assert "its samples several times" in found["chosen"]


def test_of_two_models_one_is_named_or_called_model_or_both_are_one(load):
    found = load(TWO_MODELS + "model = second\n")
    assert (found["name"], found["chosen"][:6]) == ("2nd", "model ")
    assert load(TWO_MODELS, name="second")["chosen"].startswith("second (not compiled")
    found = load(TWO_MODELS + "first = second\n")
    assert found["chosen"].startswith("first (not compiled")


def test_a_file_may_be_called_like_a_module_and_imports_what_lies_beside_it(loader, tmp_path):
    path = tmp_path / "queue.py"
    path.write_text(IMPORTS + ECHO + "inputs = tf.ones((2,))\n")
    before = loader.call(loaded_workload.file_of_module, "queue")
    found = loader.call(loaded_workload.load, str(path), {})
    assert found["name"] == "step"
    after = loader.call(loaded_workload.file_of_module, "queue")
    assert after == before

    (tmp_path / "beside_it.py").write_text(IMPORTS + ECHO)
    path = tmp_path / "model.py"
    path.write_text("from beside_it import step, tf\ninputs = tf.ones((2,))\n")
    found = loader.call(loaded_workload.load, str(path), {})
    assert found["name"] == "step"
