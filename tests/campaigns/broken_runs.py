"""Broken runs: does verification catch each, and let every correct run pass?

A case is a step, an optimizer, a learning rate, a way to spread the step over two devices (ops
placed at random, or the batch split), and what is wrong with it, if anything. What runs is edited
where a placer or splitter with that mistake would have made it; what judges is the code of
`advisor analyze`, in this process, on logical CPUs.
"""

import random
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
from breakages import PLACED, SPLIT, Graph, reordered
from campaign import run_campaign
from random_models import random_model
from tables import table_head, table_row

from placement_advisor.candidates.batch_split.split_graph import FAMILY
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.op import Role
from placement_advisor.processes.calls import CallFailure
from placement_advisor.testbed.testbed import STEP
from placement_advisor.tf import placed_step
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.run import runner
from placement_advisor.tf.split_step import split_step
from placement_advisor.tf.step_limit import MOST_LIMIT_S
from placement_advisor.tf.trace import tracer

# Small models of every kind that verification meets. Half draw random numbers or statistics of the
# batch, so that replicas need not compute what one device does.
OPTIMIZERS = {
    "sgd": "keras.optimizers.SGD({rate})",
    "momentum": "keras.optimizers.SGD({rate}, momentum=0.9)",
    "adam": "keras.optimizers.Adam({rate})",
}
BATCH = 16

_HEAD = f"""
import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(11)
random = np.random.default_rng(11)
BATCH = {BATCH}
optimizer = OPTIMIZER
def batches(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH, drop_remainder=True)
def normal(*shape):
    return random.normal(size=(4 * BATCH, *shape)).astype("float32")
def ids(highest, *shape):
    return random.integers(0, highest, (4 * BATCH, *shape)).astype("int32")
"""

_BODIES = {
    # Dropout twice, and a penalty on weights.
    "dropout_mlp": """
model = keras.Sequential([keras.Input((12,)), layers.Dense(16, "relu"), layers.Dropout(0.3),
    layers.Dense(16, "tanh", kernel_regularizer="l2"), layers.Dropout(0.5), layers.Dense(3)])
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
dataset = batches(normal(12), ids(3))
""",
    # Batch normalization behind convolutions; the first has a bias that cannot change the loss.
    "norm_convolutions": """
image = keras.Input((8, 8, 3))
x = layers.BatchNormalization()(layers.Conv2D(4, 3)(image))
x = layers.Conv2D(6, 3, use_bias=False)(layers.Activation("relu")(x))
x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(layers.BatchNormalization()(x)))
model = keras.Model(image, layers.Dense(3)(x))
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True))
dataset = batches(normal(8, 8, 3), ids(3))
""",
    # Both at once, on two towers of dense layers.
    "norm_dropout_towers": """
left, right = keras.Input((6,)), keras.Input((5,))
def tower(x):
    x = layers.BatchNormalization()(layers.Dense(8)(x))
    return layers.Dropout(0.25)(layers.Dense(8, "relu")(x))
x = layers.Concatenate()([tower(left), tower(right)])
model = keras.Model([left, right], layers.Dense(1)(x))
model.compile(optimizer, "mse")
dataset = batches((normal(6), normal(5)), normal(1))
""",
    # A raw step that draws with kernels that keep a state of their own.
    "raw_noise": """
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (7, 9)), ("two", (9, 9)), ("three", (9, 2)))]
optimizer.build(w)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        h = tf.nn.dropout(tf.nn.relu(x @ w[0]), 0.2)
        h = tf.tanh((h + tf.random.normal(tf.shape(h), 0.0, 0.1)) @ w[1])
        loss = tf.reduce_mean((h @ w[2] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, w), w))
    return loss
dataset = batches(normal(7), normal(2))
""",
    # Tables of which rows are looked up, some of them twice in a batch.
    "embedding_towers": """
user, item = keras.Input((4,), dtype="int32"), keras.Input((), dtype="int32")
words = layers.Embedding(30, 6)
left = layers.Dense(5, "relu")(layers.Flatten()(words(user)))
right = layers.Dense(5, "relu")(layers.Embedding(20, 6)(item))
model = keras.Model([user, item], layers.Dense(1)(layers.Concatenate()([left, right])))
model.compile(optimizer, "mse", metrics=["mae"])
dataset = batches((ids(30, 4), ids(20)), normal(1))
""",
    # Attention, whose keys have a bias that cannot change the loss, and layer normalization.
    "attention": """
x = start = keras.Input((5, 8))
x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
model = keras.Model(start, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
model.compile(optimizer, "mse")
dataset = batches(normal(5, 8), normal(2))
""",
    # A recurrent layer, whose loop is one op, and clipped gradients.
    "recurrent": """
x = start = keras.Input((6, 5))
model = keras.Model(start, layers.Dense(2)(layers.LSTM(7)(x)))
optimizer.global_clipnorm = 0.5
model.compile(optimizer, "mse")
dataset = batches(normal(6, 5), normal(2))
""",
    # One example batch, given as values.
    "one_batch": """
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (7, 9)), ("two", (9, 2)))]
optimizer.build(w)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(x @ w[0]) @ w[1] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, w), w))
    return loss
inputs = normal(7)[:BATCH], normal(2)[:BATCH]
""",
    # Updates written by hand: differences are assigned, and slots kept beside.
    "raw_updates": """
rate = tf.Variable(RATE, name="learning_rate", trainable=False)
w = [tf.Variable(random.normal(size=s).astype("float32") / 3, name=n)
     for n, s in (("one", (6, 10)), ("two", (10, 10)), ("three", (10, 1)))]
m = [tf.Variable(tf.zeros_like(v), trainable=False, name=v.name[:-2] + "_m") for v in w]
s = [tf.Variable(tf.zeros_like(v), trainable=False, name=v.name[:-2] + "_s") for v in w]
KIND = "NAME"
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        h = tf.tanh(tf.nn.relu(x @ w[0]) @ w[1])
        loss = tf.reduce_mean((h @ w[2] - y) ** 2)
    for v, mean, square, g in zip(w, m, s, tape.gradient(loss, w)):
        if KIND == "sgd":
            v.assign(v - rate * g)
        elif KIND == "momentum":
            mean.assign(0.9 * mean + g)
            v.assign_sub(rate * mean)
        else:
            mean.assign_add(0.1 * (g - mean))
            square.assign_add(0.001 * (g * g - square))
            v.assign_sub(rate * mean / (tf.sqrt(square) + 1e-7))
    return loss
dataset = batches(normal(6), normal(1))
""",
}
STEPS = tuple(_BODIES)
# Four models that nobody chose, drawn after the code was frozen; every second has dropout or batch
# normalization.
FIRST_SEED = 814009
SEEDS = tuple(f"seed-{FIRST_SEED + number}" for number in range(4))
_NEEDS = ({"dropout"}, (), {"batch_norm"}, ())
RATES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
_WAYS = ("place", "batch")
_CORRECT = 200
_STEPS = 4
_PLACES = {f"cpu:{i}": f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)}


def cases():
    """Return every breakage of every step once for each optimizer, and the correct runs."""
    draw = random.Random(19)
    broken = [f"{way} {breakage}" for way in _WAYS for breakage in PLACED]
    broken += [f"batch {breakage}" for breakage in SPLIT]
    found = [
        f"{step} {optimizer} {rate} {what}"
        for step, optimizer, what in product(STEPS, OPTIMIZERS, broken)
        for rate in (draw.choice(RATES[:3]), draw.choice(RATES[3:]))
    ]
    # A model that was drawn is traced anew for each rate, so that there is one for all cases.
    rates = {each: draw.choice(RATES) for each in product(SEEDS, OPTIMIZERS)}
    found += [f"{' '.join(each)} {rate} {what}" for each, rate in rates.items() for what in broken]
    each = -(-_CORRECT // (len(STEPS + SEEDS) * len(OPTIMIZERS) * len(_WAYS)))
    found += [
        f"{step} {optimizer} {rates.get((step, optimizer)) or draw.choice(RATES)} {way} "
        f"correct-{number}"
        for step, optimizer, way in product(STEPS + SEEDS, OPTIMIZERS, _WAYS)
        for number in range(each)
    ]
    # Those of one traced step come one after the other, and of these those of one reference.
    return sorted(found, key=lambda case: case.split()[:3])


class _Steps:
    """A traced step, whole and with its batch split."""

    def __init__(self, step, optimizer, rate):
        self._temporary = tempfile.TemporaryDirectory()  # It goes with the steps.
        self.folder = Path(self._temporary.name)
        path = self.folder / "model_file.py"
        path.write_text(_text(step, optimizer, rate))
        tracer.load_workload(ModelSource(path=str(path)))
        loaded = tracer.loaded_workload()
        whole = tracer.trace_step(path, loaded)
        self.whole = whole
        self.bundles = {STEP: whole.flat.bundle(whole.batches())}
        self.graphs = {STEP: whole.graph}
        half = (loaded.batch_size or BATCH) // 2
        try:
            split = split_step(whole, [half, half])
            self.bundles[FAMILY] = split.bundle()
            self.graphs[FAMILY] = split.graphs[FAMILY].graph
        except BatchSplitError as error:
            self.why = error.message
        self._rate = ""

    def open(self, rate):
        """Open both programs at a learning rate, and take the whole step as the reference."""
        if rate == self._rate:
            return
        self._rate = rate
        for label in ("single", "candidate"):
            runner.discard(label)
        runner.open_runner("", _PLACES, _PLACES["cpu:0"], len(_PLACES))
        for name, bundle in self.bundles.items():
            for variable, value in bundle.variables.items():
                if variable.endswith("learning_rate"):
                    bundle.variables[variable] = np.asarray(float(rate), value.dtype)
            (self.folder / name).mkdir(exist_ok=True)
            bundle.save(self.folder / name)
            self.open_program(name)
        alone = dict.fromkeys((op.name for op in self.whole.graph.placed_ops), "cpu:0")
        _must(runner.prepare("single", alone, STEP))
        _must(runner.verify("single", _STEPS))

    def open_program(self, name):
        runner.open_program(name, str(self.folder / name), self.graphs[name], MOST_LIMIT_S)

    def trained(self):
        updates = (op for op in self.whole.graph.ops if op.role is Role.UPDATE)
        changed = {op.variable for op in updates if op.kind.startswith(("Assign", "Resource"))}
        values = self.bundles[STEP].variables.items()
        floats = {name for name, value in values if value.dtype.kind == "f" and value.size > 1}
        return sorted(changed & floats)


def _text(step, optimizer, rate):
    if step not in SEEDS:
        head = _HEAD.replace("OPTIMIZER", OPTIMIZERS[optimizer].format(rate=float(rate)))
        return head + _BODIES[step].replace("RATE", str(float(rate))).replace("NAME", optimizer)
    wanted = _NEEDS[SEEDS.index(step)]
    features = {"needs": {"training", optimizer, *wanted}}
    features["without"] = () if wanted else ("dropout", "batch_norm")
    seed = int(step.partition("-")[2])
    return random_model(seed, **features, learning_rate=float(rate), max_ms=2.0).text


_last = {}  # Steps by name and optimizer: those of the last case.


def _steps(step, optimizer, rate):
    if (step, optimizer) not in _last:
        _last.clear()
        _last[step, optimizer] = _Steps(step, optimizer, rate)
    return _last[step, optimizer]


def examine(case):
    """Return what verification says of a case: caught, verified, or neither (`unverified`)."""
    step, optimizer, rate, way, what = case.split()
    steps = _steps(step, optimizer, rate)
    steps.open(rate)
    draw = random.Random(case)
    program = STEP if way == "place" else FAMILY
    if program not in steps.graphs:
        return {"verdict": "none", "why": steps.why}
    edit = PLACED.get(what) or SPLIT.get(what) or reordered
    names = steps.trained()
    draw.shuffle(names)
    for variable in names:
        try:
            return {"variable": variable, **_judged(steps, program, edit, variable, draw)}
        except LookupError as error:
            why = str(error)
    return {"verdict": "none", "why": why}


def _judged(steps, program, edit, variable, draw):
    seed = draw.random()
    place = _at_random if program == STEP else _by_replica
    device_of = place(steps.graphs[program], draw)
    untouched = placed_step.placed_graph

    def broken(bundle, wanted, host):
        graph_def = untouched(bundle, wanted, host)
        # A splitter's mistake is in every run of the split step, a placer's in that of a placement.
        is_split = any(node.name.startswith("replica_1/") for node in graph_def.node)
        is_placed = any(node.device == _PLACES["cpu:1"] for node in graph_def.node)
        if is_placed or (is_split and edit is not PLACED["reseeded"]):
            edit(Graph(graph_def), variable, random.Random(seed))
        return graph_def

    try:
        with patch.object(placed_step, "placed_graph", broken):
            _must(runner.prepare("candidate", device_of, program))
            found = _must(runner.verify("candidate", _STEPS))
    finally:
        runner.discard("candidate")
        # What this mistake made of the split step on one device is not to be kept.
        steps.open_program(program)
    verdict = "refused" if found.wrong else "unverified" if found.unverified else "verified"
    how = {"relative_difference": found.relative_difference, "unverified": found.unverified[:3]}
    return {"verdict": verdict, "wrong": found.wrong, **how}


def _must(answer):
    if isinstance(answer, CallFailure):
        if "cycle" in answer.message:
            raise LookupError("two variables wait for each other: their updates cannot be swapped")
        raise AssertionError(answer.message)
    return answer


def _at_random(graph, draw):
    """Return a device for each op; those of a variable stand together."""
    home = {}
    drawn = ((op, draw.choice(sorted(_PLACES))) for op in graph.placed_ops)
    return {op.name: home.setdefault(op.variable or op.name, place) for op, place in drawn}


def _by_replica(graph, _):
    """Return the first device for what is shared and the first replica, else the second."""
    return {
        op.name: "cpu:1" if op.name.startswith("replica_1/") and not op.variable else "cpu:0"
        for op in graph.placed_ops
    }


def table(results):
    """Return how many of each breakage were caught, and how many correct runs passed."""
    counts = {}
    for result in results:
        _, _, _, way, what = result["case"].split()
        counts.setdefault(f"{what.partition('-')[0]} ({way})", Counter())[result["verdict"]] += 1
    lines = [table_head("run | cases | refused | unverified | verified")]
    for what in sorted(counts, key=lambda name: (name.startswith("correct"), name)):
        judged = [counts[what][verdict] for verdict in ("refused", "unverified", "verified")]
        lines.append(table_row(what, sum(judged), *judged))
    return "\n".join(lines)


if __name__ == "__main__":
    run_campaign("broken_runs", cases(), examine, table)
