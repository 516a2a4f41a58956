"""What tests of `make_parallel` do in a child, which has several logical CPUs."""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf
from live_steps import BATCH, STEPS_BY_NAME, Live, batches
from placed_live import beside, cpus, differences, error_of, random_placement, watched

import placement_advisor
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.graph.placement import Placement
from placement_advisor.tf.place import live_step
from placement_advisor.tf.placed_step import PlacedStep, Runtime, placed_graph
from placement_advisor.tf.split_step import split_step
from placement_advisor.tf.verifier import Verifier, find_cancelling, results_of_shares

STEPS = 6
TWO = ("CPU:0", "CPU:1")


def keras_step():
    """A Keras model with an embedding, a metric that counts, and a penalty on its weights."""
    keras.utils.set_random_seed(7)
    ids = keras.Input((10,), dtype="int32", name="ids")
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(50, 8, name="words")(ids))
    x = keras.layers.Dense(6, activation="relu", kernel_regularizer="l2", name="hidden")(x)
    model = keras.Model(ids, keras.layers.Dense(3, activation="softmax", name="chances")(x))
    model.compile(
        keras.optimizers.Adam(0.01, clipnorm=0.05),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    random = np.random.default_rng(4)
    batches = [
        (random.integers(0, 50, (BATCH, 10)).astype(np.int32), random.integers(0, 3, BATCH))
        for _ in range(STEPS)
    ]
    return Live(model, batches, [])


def summed_loss():
    """A loss that is a sum over the batch, and the number of samples as the step sees it.

    Its weights are so many that in another order of samples some sum of a gradient is another.
    """
    weight = tf.Variable(np.linspace(0.5, 0.25, 64, dtype=np.float32)[:, None], name="weight")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weight - y) ** 2)
        weight.assign_sub(0.001 * tape.gradient(loss, weight))
        return {"loss": loss / tf.cast(tf.shape(x)[0], tf.float32), "predicted": x @ weight}

    return Live(train_step, batches((64,)), [weight])


def filled():
    """Zeros and ones for each sample: a thousand elements in the whole batch, fewer in a share.

    They stand in the step, in a function that it calls and has called before, and in a loop.
    """
    weight = tf.Variable(tf.random.stateless_normal((6, 80), (3, 4), 0.1), name="weight")

    @tf.function
    def hidden(x):
        return tf.tanh(x @ weight + tf.ones((x.shape[0], 80)))

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            inner = hidden(x)
            state = tf.zeros_like(inner)
            for _ in tf.range(3):
                state = 0.5 * state + inner * tf.ones_like(inner)
            loss = tf.reduce_mean((tf.reduce_sum(state, 1, keepdims=True) - y) ** 2)
        weight.assign_sub(0.001 * tape.gradient(loss, weight))
        return {"loss": loss}

    given = batches((6,))
    hidden(given[0][0])
    return Live(train_step, given, [weight])


def recurrent():
    """An LSTM of Keras whose first state is zeros: 1,280 in the whole batch, fewer in a share."""
    keras.utils.set_random_seed(9)
    model = keras.Sequential(
        [keras.Input((5, 3)), keras.layers.LSTM(80, name="read"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return Live(model, batches((5, 3)), [])


def tied(*, keeps_squares=False):
    """A maximum over equal words, decided by the number of samples, for three of each batch.

    All places are alike, unless squares of what each adds are kept, as Keras' Adam keeps them.
    """
    rows = tf.Variable(tf.random.stateless_normal((20, 3), (1, 2)), name="rows")
    squares = tf.Variable(tf.zeros((20, 3)), name="squares")

    @tf.function
    def train_step(words):
        is_whole = tf.cast(tf.shape(words)[0] == BATCH, tf.float32)
        with tf.GradientTape() as tape:
            scores = tf.reduce_sum(tf.gather(rows, words) * (1.0, -1.0, 2.0), -1)
            rank = scores + 1e-7 * tf.abs(scores) * is_whole * tf.range(4.0)
            place = tf.argmax(rank, 1)
            weights = tf.range(1.0, 5.0) ** 2
            chosen = tf.gather(scores, place, batch_dims=1)
            loss = tf.reduce_mean(chosen**2 + 0.1 * tf.reduce_sum(scores * weights, 1))
        gradient = tape.gradient(loss, rows)
        if keeps_squares:
            squares.scatter_add(tf.IndexedSlices(gradient.values**2, gradient.indices))
        rows.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
        return {"loss": loss}

    random = np.random.default_rng(3)
    words = np.array([random.permutation(20)[:4] for _ in range(STEPS * BATCH)], np.int32)
    for word, sample in enumerate((3, 8, 13)):
        words[sample::BATCH] = word
    return Live(train_step, [(each,) for each in np.split(words, STEPS)], [rows])


_DEVICE = "/device:CPU:0"


def _bundles(live):
    """Return the bundles of a step, as it is and with its batch split in two."""
    whole = live_step(live.step, live.batches[0])
    split = split_step(whole, (BATCH // 2, BATCH // 2)).bundle()
    return whole.flat.bundle(whole.batches()), split


def _all_on_one(bundle):
    return dict.fromkeys((node.name for node in bundle.graph_def.node), _DEVICE)


def _placed(bundle, device_of, made=PlacedStep):
    graph = placed_graph(bundle, device_of, _DEVICE)
    return made(bundle, graph, Runtime(address="", logical_cpus=1), 60.0)


def _verified(live, edit, ready=PlacedStep):
    """Verify a split step whose bundle was edited; it runs as a ``ready`` step."""
    bundle, split = _bundles(live)
    edit(split)
    verifier = Verifier(_placed, bundle, _all_on_one(bundle), 2)
    verifier.begin()
    ours = _all_on_one(split)
    return verifier.verify("batch", split, ours, _placed(split, ours, ready))


def verified_tie(loses_a_share):
    """Verify a split step in which a tie goes the other way, and half of the loss may be lost."""

    def edit(split):
        for node in split.graph_def.node:
            if node.name.startswith("replica_1/") and node.op == "ResourceGather" and loses_a_share:
                node.input[1] = node.input[1].replace("replica_1", "replica_0")

    cpus(2)
    return _verified(tied(keeps_squares=True), edit)


class _TurnedOver(PlacedStep):
    """A step in which rounding turns a ReLU over, of which one row of a table hears.

    Of its runs those of ``wrong_runs`` are so.
    """

    wrong_runs = ()
    _runs = 0

    def results(self, steps, values=None):
        """Return what the step computes, one number apart by a tenth of the largest change."""
        found = super().results(steps, values)
        self._runs += 1
        if self._runs not in self.wrong_runs:
            return found
        name = next(iter(found.state))
        apart = found.state[name].copy()
        apart.flat[0] += np.abs(apart - found.before[name]).max() / 10
        return replace(found, state={**found.state, name: apart})


def verified_where_one_number_differs(runs):
    """Verify a split step of which one number differs in some runs."""
    cpus(2)
    _TurnedOver.wrong_runs = runs
    return _verified(LIVE["tape_step"](), lambda _: None, _TurnedOver)


def reordered():
    """Run a step on the samples as they are and in another order: on all at once, and by share."""
    cpus(1)
    bundle, divided = _bundles(summed_loss())
    split = divided.split
    step = _placed(bundle, _all_on_one(bundle))
    return {
        way: (
            results_of_shares(step, split, samples, 2, None),
            results_of_shares(step, split, samples, 2, None, 7),
        )
        for way, samples in (("whole", (BATCH,)), ("shares", split.samples))
    }


LIVE = STEPS_BY_NAME | {
    made.__name__: made for made in (keras_step, summed_loss, tied, filled, recurrent)
}


def run_both_ways(name, ratios, seed=None, variables="first"):
    """Run the same steps as they are and parallel; with a seed, each share at random on a pair."""
    groups = cpus(len(ratios) if seed is None else 2 * len(ratios))
    alone, live = LIVE[name](), LIVE[name]()
    layout = None
    if seed is not None:
        groups = [groups[i : i + 2] for i in range(0, len(groups), 2)]
        layout = random_placement(live_step(live.step, live.batches[0]).graph, seed)
    step = placement_advisor.make_parallel(
        live.step, groups, ratios, inputs=live.batches[0], placement=layout, variables=variables
    )
    found = beside(alone, live, step, _numbers, STEPS)
    replicas = {(n.split("/")[0], at) for n, at in found["ran on"].items() if "replica_" in n}
    return found | {
        "moved": max(differences(LIVE[name](), live, strict=False)),
        "ran on": sorted(replicas),
        "merged on": sorted({at for n, at in found["ran on"].items() if "/merged" in n}),
    }


def fit_parallel(gives_inputs, weighted):
    """Fit a model as it is and parallel, with weights of samples or without, twice."""
    cpus(2)
    found = {}
    for way in ("own", "parallel"):
        live = keras_step()
        parts = [np.concatenate(part) for part in zip(*live.batches, strict=True)]
        if weighted:
            parts.append(np.linspace(0.5, 2, len(parts[0]), dtype=np.float32))
        data = tf.data.Dataset.from_tensor_slices(tuple(parts)).batch(BATCH, drop_remainder=True)
        if way == "parallel":
            first = next(iter(data)) if gives_inputs else ()
            placement_advisor.make_parallel(live.step, TWO, inputs=first)
        fit = partial(live.step.fit, data, epochs=2, shuffle=False, verbose=0)
        first, ran_on, _ = watched(fit)
        histories = [each.history for each in (first, fit())]
        found[way] = [value for each in histories for value in each["loss"] + each["accuracy"]]
        found[f"{way} on"] = sorted({at for name, at in ran_on.items() if "replica_1/" in name})
        found[f"{way} weights"] = live.step.get_layer("hidden").kernel.numpy().ravel().tolist()
    return found


def first_calls():
    """Call a function that was given no inputs: twice, at another size, and in a `tf.function`.

    And one that was, on uneven shares.
    """
    cpus(2)
    x = np.random.default_rng(6).normal(size=(8, 4)).astype(np.float32)
    step = placement_advisor.make_parallel(_tower, TWO, [2, 1], inputs=(x,))
    off = [float(np.max(np.abs(step(x) - _tower(x))))]
    step = placement_advisor.make_parallel(_tower, TWO)
    off += [float(np.max(np.abs(step(x) - _tower(x)))) for _ in range(2)]
    within = tf.function(placement_advisor.make_parallel(_tower, TWO))
    off += [float(np.max(np.abs(within(x) - _tower(x)))) for _ in range(2)]
    calls = {
        "other size": lambda: step(x[:6]),
        "open size": lambda: tf.function(
            placement_advisor.make_parallel(_tower, TWO), input_signature=[tf.TensorSpec([None, 4])]
        )(x),
        "cannot be split": lambda: placement_advisor.make_parallel(_largest, TWO)(x),
    }
    return {"off": off, "refused": {what: error_of(call) for what, call in calls.items()}}


def _tower(x):
    return tf.tanh(x @ tf.ones((4, 3)))


def _counting(x):
    """Compute only where there are as many samples as in the whole batch."""
    enough = tf.debugging.assert_greater(tf.reduce_sum(x * 0 + 1), 20.0, "too few samples")
    with tf.control_dependencies([enough]):
        return _tower(x)


def _moved_by_others(x):
    """Take the mean of the batch into one sample in eight."""
    return tf.where(x == tf.reduce_max(x), x - tf.reduce_mean(x), x)


def _largest(x):
    return tf.reduce_max(_tower(x))


def _refused():
    """Return what is said of arguments that are refused, and the arguments, on four CPUs."""
    x = np.random.default_rng(6).normal(size=(8, 4)).astype(np.float32)
    layout = random_placement(live_step(_tower, (x,)).graph, 1)
    unknown = {"no op": "worker:0", "nor this": "worker:1"}
    other = Placement(label="other", family="other", device_of=unknown, rationale="")
    pairs = TWO, ("CPU:2", "CPU:3")
    changes = [
        (
            "BatchSplitError: make_parallel: _largest: output 0 ('Max') cannot be put",
            {"fn": _largest},
        ),
        (
            "holds a number for each pair of samples",
            {"fn": lambda x: _tower(x) @ tf.transpose(_tower(x))},
        ),
        (
            "output 0 ('sub') cannot be put together from shares of the batch",
            {"fn": lambda x: _tower(x) - tf.reduce_mean(_tower(x), 0)},
        ),
        ("cannot be put together from shares of the batch", {"fn": _moved_by_others}),
        ("its inputs hold no batch", {"fn": lambda: tf.ones(3), "inputs": ()}),
        ("its inputs hold no batch", {"fn": lambda x: x + 1, "inputs": (tf.constant(1.0),)}),
        ("it takes no batch of 4: ", {"fn": lambda x: tf.reshape(x, (max(x.shape[0], 7), 4))}),
        ("it does not run on a share of its batch: ", {"fn": _counting}),
        ("PlacementError: ", {"devices": ("CPU:0", "CPU:1", "CPU:4")}),
        ("make_parallel needs two devices or more", {"devices": ("CPU:0",)}),
        ("CPU:0 is given twice", {"devices": ("CPU:0", "CPU:0")}),
        ("3 ratios for 2 devices", {"ratios": (1, 1, 1)}),
        ("share of device 1 in a batch of 8 rounds to no sample", {"ratios": (1000, 1)}),
        ("a int is no step", {"fn": 3}),
        ("variables='second': there are 'first', 'host', 'spread'", {"variables": "second"}),
        (
            "variables='spread' cannot be used with a placement",
            {"variables": "spread", "placement": layout},
        ),
        ("CPU:0, CPU:1: a share for several devices needs a placement", {"devices": pairs}),
        (
            "CPU:2: the placement is for worker:0, worker:1",
            {"devices": (TWO, ("CPU:2",)), "placement": layout},
        ),
        ("made for another graph", {"devices": pairs, "placement": other}),
    ]
    arguments = {"fn": _tower, "devices": TWO, "inputs": (x,)}
    return [(reason, arguments | changed) for reason, changed in changes]


def refusals():
    """Return what should be said of what cannot be split, and what is."""
    cpus(4)
    return [(reason, error_of(partial(_split, **arguments))) for reason, arguments in _refused()]


def _split(inputs, **arguments):
    step = placement_advisor.make_parallel(inputs=inputs, **arguments)
    if not inputs:
        step()


def _numbers(result):
    leaves = [leaf for leaf in tf.nest.flatten(result) if leaf is not None]
    return [float(number) for leaf in leaves for number in np.ravel(leaf)]


def masks(ratios):
    """Return the mask that each replica's dropout draws from a seed which all of them share."""
    devices = cpus(len(ratios))
    drop = keras.layers.Dropout(0.5, seed=3)

    @tf.function
    def step(x):
        return drop(x, training=True)

    ones = tf.ones((2 * len(ratios), 64))
    drop(ones, training=True)  # Its seed is a variable, which is made now.
    drawn = placement_advisor.make_parallel(step, devices, ratios, inputs=(ones,))(ones)
    return [[float(kept) for kept in row] for row in drawn.numpy()[::2]]


def learnt_from_shares(optimizer, ratios):
    """Run steps of a normalized model parallel, and by hand: how far each variable's change is off.

    By hand, each share's gradients and moving statistics come from a tape of their own; their
    weighted means make the one update.
    """
    devices = cpus(len(ratios))
    random = np.random.default_rng(6)
    x = random.normal(size=(STEPS, 32, 6)).astype(np.float32)
    y = random.normal(size=(STEPS, 32, 1)).astype(np.float32)
    by_hand, parallel = (_normalized(optimizer) for _ in range(2))
    before = [v.numpy() for v in by_hand.variables]
    counts = shares_of(32, ratios)
    for batch in zip(x, y, strict=True):
        _learn_from_shares(by_hand, *batch, counts)
    step = placement_advisor.make_parallel(parallel, devices, ratios, inputs=(x[0], y[0]))
    for batch in zip(x, y, strict=True):
        step(batch)
    return {
        v.path: float(np.max(np.abs(v.numpy() - w.numpy())) / np.max(np.abs(w.numpy() - old)))
        for v, w, old in zip(parallel.variables, by_hand.variables, before, strict=True)
    }


def _normalized(optimizer):
    keras.utils.set_random_seed(8)
    model = keras.Sequential(
        [
            keras.layers.Dense(5, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.build((None, 6))
    model.compile(optimizer, "mse")
    return model


def _learn_from_shares(model, x, y, counts):
    ends = np.cumsum(counts)[:-1]
    known = [v.numpy() for v in model.non_trainable_variables]
    total = []
    for rows, wanted in zip(np.split(x, ends), np.split(y, ends), strict=True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows, training=True) - wanted) ** 2)
        found = [g.numpy() for g in tape.gradient(loss, model.trainable_variables)]
        found += [v.numpy() for v in model.non_trainable_variables]
        weighted = [each * len(rows) / len(x) for each in found]
        total = [a + b for a, b in zip(total, weighted, strict=True)] if total else weighted
        for variable, value in zip(model.non_trainable_variables, known, strict=True):
            variable.assign(value)
    trainable = len(model.trainable_variables)
    model.optimizer.apply(total[:trainable], model.trainable_variables)
    for variable, value in zip(model.non_trainable_variables, total[trainable:], strict=True):
        variable.assign(value)


def found_and_resets(reads_after_an_update):
    """Return the kinds of ops that make noise of a bias, and how often a step was reset for it.

    The batch is normalized after the bias, and what the bias is updated by is scaled several times.
    It may be scaled by a number of steps as well, which is counted up before it is read.
    """
    random = np.random.default_rng(3)
    weight = tf.Variable(random.normal(size=(6, 5)).astype(np.float32), name="weight")
    bias = tf.Variable(random.normal(size=5).astype(np.float32), name="bias")
    count = tf.Variable(1.0, name="count")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            hidden = x @ weight + bias
            centred = hidden - tf.reduce_mean(hidden, 0)
            loss = tf.reduce_mean(tf.reduce_sum((centred - y) ** 2, 1))
        of_weight, of_bias = tape.gradient(loss, (weight, bias))
        scale = 1.0
        if reads_after_an_update:
            count.assign_add(1.0)
            scale = count.read_value()
        weight.assign_sub(0.1 * of_weight)
        bias.assign_sub(0.1 * (0.5 * (0.5 * (scale * of_bias))))
        return {"loss": loss}

    batch = random.normal(size=(8, 6)).astype(np.float32), random.normal(size=(8, 5))
    traced = live_step(train_step, (batch[0], batch[1].astype(np.float32)))
    bundle = traced.flat.bundle(traced.batches())

    (name,) = (name for name, value in bundle.variables.items() if value.shape == (5,))
    with patch.object(PlacedStep, "reset", autospec=True, side_effect=PlacedStep.reset) as reset:
        found = find_cancelling(_placed, bundle, _all_on_one(bundle), [name], bundle)
    kinds = {node.name: node.op for node in bundle.graph_def.node}
    return [kinds[each.op] for each in found], reset.call_count
