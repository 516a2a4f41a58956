"""Trainings that are recorded, as tests do them in a child, which has logical CPUs."""

import io
import time
from contextlib import redirect_stdout
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

import keras
import numpy as np
import tensorflow as tf
from placed_live import cpus, error_of

import placement_advisor
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware
from placement_advisor.profile.recorded_costs import recorded_costs, same_ops
from placement_advisor.profile.recorded_ops import read_recorded

FEATURES = 12


def model_on(devices=("CPU:0",), optimizer="adam"):
    """Return a compiled model whose hidden layers take turns on devices."""
    keras.utils.set_random_seed(3)
    inputs = x = keras.Input((FEATURES,), name="features")
    for i in range(2):
        with tf.device(devices[i % len(devices)]):
            x = keras.layers.Dense(256, activation="relu", name=f"hidden_{i}")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="score")(x))
    model.compile(optimizer, "mse")
    return model


def samples(count):
    random = np.random.default_rng(1)
    x = random.normal(size=(count, FEATURES)).astype(np.float32)
    return x, x[:, :1] ** 2


def fit(folder, asked):
    """Train with the callback; return what it printed and wrote, and the losses."""
    return _fit(folder, **asked)


def _fit(
    folder, *, devices=1, mirrored=False, count=500, size=32, steps=(3, 6), batch_size=None, **how
):
    """Steps have ``size`` samples, the last what is left; the callback gets ``batch_size``."""
    names = cpus(devices)
    if mirrored:
        with tf.distribute.MirroredStrategy(names).scope():
            # Updates of Adam are called otherwise there, and not known again.
            model = model_on(optimizer="sgd")
    else:
        model = model_on(names)
    x, y = samples(count)
    batch = (x[:batch_size], y[:batch_size]) if batch_size else None
    profiler = placement_advisor.keras.PlacementProfiler(folder, steps, batch=batch)
    with redirect_stdout(io.StringIO()) as printed:
        history = model.fit(x, y, batch_size=size, verbose=0, callbacks=[profiler], **how)
    return {
        "printed": printed.getvalue(),
        "loss": history.history["loss"],
        "own step": vars(model).get("train_step"),
        **_written(folder, is_mirrored=mirrored),
    }


def losses_without(epochs):
    """Train alike without the callback."""
    model = model_on()
    x, y = samples(500)
    return model.fit(x, y, batch_size=32, epochs=epochs, verbose=0).history["loss"]


def _written(folder, *, is_mirrored=False):
    path = Path(folder) / "graph.json.gz"
    if not path.exists():
        return {}
    graph, recorded = OpGraph.load(path), read_recorded(Path(folder))
    table = roofline_by_place(graph, read_hardware("2xV100-NVLink"))["GPU:0"]
    ran = [(op.name, op.kind) for op in recorded.ops]
    known = same_ops({op.name: op.kind for op in graph.ops}, ran)
    # What replicas wait for one another, on a few cores, may be most of the time.
    share = None if is_mirrored else recorded_costs(graph, recorded, table)[1].time_share
    product = next(op for op in graph.ops if op.kind == "MatMul")
    return {
        "first product bytes": product.output_bytes,
        "joined": share,
        "known": sorted(known.values()),
        "steps": {len(op.step_ns) for op in recorded.ops},
    }


def own_loop(folder):
    """Record steps 2 to 6 of a loop over a function that trains."""
    weight = tf.Variable(tf.zeros((FEATURES, 1)), name="weight")

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weight - y) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    x, y = samples(32)
    recording = placement_advisor.record_steps(folder, (2, 6))
    with redirect_stdout(io.StringIO()) as printed, recording as record:
        losses = [float(record(train_step, x, y)) for _ in range(8)]
    return {"printed": printed.getvalue(), "losses": losses, **_written(folder)}


def rewritten(folder):
    """Record ops in the place of which TensorFlow runs cheaper ones.

    Returns:
        The kinds that ran, where they are not those of the graph, and what was not joined to it.
    """
    weight = tf.Variable(tf.random.uniform((FEATURES, FEATURES)), name="weight")

    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            y = tf.matmul(tf.transpose(x), x, name="of_transposed") @ weight
            parts = [
                tf.pow(y, 2.0, name="power"),
                tf.pow(y, 0.5, name="root"),
                tf.pow(y, -0.5, name="inverse_root"),
                tf.pow(y, -1.0, name="inverse"),
                tf.divide(y, 3.0, name="third"),
                tf.multiply(y, y, name="square"),
                tf.square(tf.subtract(y, tf.sin(y), name="difference")),
                tf.add(y, -tf.cos(y), name="sum"),
                tf.add_n([y, y, y], name="thrice"),
                tf.math.log(tf.nn.softmax(y), name="logarithm"),
                tf.divide(tf.cos(y), tf.sqrt(y, name="under"), name="over"),
            ]
            loss = tf.add_n([tf.reduce_sum(part) for part in parts])
        weight.assign_sub(1e-9 * tape.gradient(loss, weight))
        return loss

    x = tf.abs(samples(32)[0])
    recording = placement_advisor.record_steps(folder, (2, 6))
    with redirect_stdout(io.StringIO()), recording as record:
        for _ in range(8):
            record(train_step, x)
    graph, recorded = OpGraph.load(Path(folder) / "graph.json.gz"), read_recorded(Path(folder))
    kinds = {op.name: op.kind for op in graph.ops}
    ran = [(op.name, op.kind) for op in recorded.ops]
    same = same_ops(kinds, ran)
    others = {op: kind for (_, kind), op in same.items() if kinds[op] != kind}
    return others, sorted({name for name, _ in ran} - {name for name, _ in same})


def failing_loop(folder):
    """Return what a loop that fails in a recorded step raises and prints; another records then."""
    with redirect_stdout(io.StringIO()) as printed:
        try:
            with placement_advisor.record_steps(folder, (1, 3)) as record:
                record(_divide, 1, 0)
        except ZeroDivisionError as error:
            told = f"{error}: {printed.getvalue()}"
    tf.profiler.experimental.start(folder)
    tf.profiler.experimental.stop()
    return told


def _divide(dividend, divisor):
    return dividend / divisor


def ns_outside(folder, calls):
    """Return what a step costs the callback, and a loop, that records none of them."""
    model = model_on()
    profiler = placement_advisor.keras.PlacementProfiler(folder, (10**9, 10**9))
    profiler.set_model(model)
    record = placement_advisor.record_steps(folder, (10**9, 10**9))
    in_callback, in_loop, alone = [], [], []
    for i in range(calls):
        start = time.perf_counter_ns()
        profiler.on_train_batch_begin(i)
        profiler.on_train_batch_end(i)
        in_callback.append(time.perf_counter_ns() - start)
        start = time.perf_counter_ns()
        record(_divide, 1, 1)
        in_loop.append(time.perf_counter_ns() - start)
        start = time.perf_counter_ns()
        _divide(1, 1)
        alone.append(time.perf_counter_ns() - start)
    return {"callback": median(in_callback), "loop": median(in_loop) - median(alone)}


def refusals(folder):
    """Return what is said of calls that are several steps each, and of steps that there are not."""
    model = model_on()
    model.compile("adam", "mse", steps_per_execution=4)
    profiler = placement_advisor.keras.PlacementProfiler
    several = error_of(lambda: model.fit(*samples(64), verbose=0, callbacks=[profiler(folder)]))
    ways = product((profiler, placement_advisor.record_steps), ((0, 3), (5, 4)))
    return several, [error_of(partial(way, folder, steps)) for way, steps in ways]


def under_another_profiler(folder):
    """Return what is printed where TensorFlow's profiler is taken."""
    tf.profiler.experimental.start(f"{folder}/other")
    with redirect_stdout(io.StringIO()) as printed:
        profiler = placement_advisor.keras.PlacementProfiler(folder, (1, 2))
        model_on().fit(*samples(64), verbose=0, callbacks=[profiler])
    tf.profiler.experimental.stop()
    return printed.getvalue()
