"""What tests of `place` do in a child, which has two logical CPUs."""

import re
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from live_steps import STEPS, STEPS_BY_NAME, variables_of
from tensorflow.python.eager import context
from traced_models import at_random

import placement_advisor
from placement_advisor.analysis.instructions import how_to_split
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import Placement
from placement_advisor.tf.place import live_step, short_name

WORKERS = ("worker:0", "worker:1")


def cpus(count):
    """Cut this process's CPU into logical ones; return their names."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)
    return [f"CPU:{i}" for i in range(count)]


def beside(alone, live, step, told, count=STEPS):
    """Run steps as they are, and of their equal by ``step``; return what is told of either."""
    own = own_step(alone)
    expected = [told(own(*arguments(alone, batch))) for batch in alone.batches[:count]]
    first, ran_on, copies = watched(lambda: step(*arguments(live, live.batches[0])))
    rest = [step(*arguments(live, batch)) for batch in live.batches[1:count]]
    return {
        "expected": expected,
        "found": [told(result) for result in (first, *rest)],
        "differences": differences(alone, live),
        "ran on": ran_on,
        "copies": copies,
    }


def differences(one, other, *, strict=True):
    """Return how far each variable is from its equal."""
    pairs = zip(variables_of(one), variables_of(other), strict=strict)
    return [float(np.max(np.abs(ours.numpy() - theirs.numpy()))) for ours, theirs in pairs]


def run_both_ways(name, seed, folder):
    """Run the same steps as they are and placed, at random or (no seed) all on the second CPU."""
    cpus(2)
    alone, live = (STEPS_BY_NAME[name]() for _ in range(2))
    objects = variables_of(live)
    graph = live_step(live.step, live.batches[0]).graph
    placement = random_placement(graph, seed)
    path = Path(folder) / "placement.json"
    placement.save(path, graph, WORKERS)
    step = placement_advisor.place(live.step, path, *live.batches[0])
    found = beside(alone, live, step, _loss)
    variables = variables_of(live)
    return found | {
        "same objects": all(a is b for a, b in zip(objects, variables, strict=False)),
        "plan": {op: device.replace("worker", "CPU") for op, device in placement.device_of.items()},
        "variables on": sorted({v.device.rpartition("device:")[2] for v in variables}),
        "is tf.function": isinstance(step, tf.types.experimental.PolymorphicFunction),
    }


def fit_placed():
    """Fit a model as it is and placed; evaluate and predict afterwards."""
    cpus(2)
    found = {}
    for way in ("own", "placed"):
        live = STEPS_BY_NAME["shared_embedding"]()
        left, right, y = (
            np.concatenate(parts) for parts in zip(*((*x, y) for x, y in live.batches), strict=True)
        )
        data = tf.data.Dataset.from_tensor_slices(((left, right), y)).batch(16, drop_remainder=True)
        live.step.evaluate(data, verbose=0)  # Traced before: must not see emptied variables.
        if way == "placed":
            live.step.jit_compile = True
            graph = live_step(live.step, live.batches[0]).graph
            placement_advisor.place(live.step, at_random(graph, WORKERS, 3), *live.batches[0])
        history = live.step.fit(data, epochs=2, shuffle=False, verbose=0).history
        found[way] = [*history["loss"], *live.step.evaluate(data, verbose=0)]
        found[f"{way} weights"] = live.step.get_weights()
        found[f"{way} with XLA"] = live.step.jit_compile
    return found


def built_again(seed, folder, parallel):
    """Place a model by a file that was written for one built before it, under other names."""
    cpus(4 if parallel else 2)
    first, alone, live = (STEPS_BY_NAME["gan"]() for _ in range(3))
    graph = live_step(first.step, first.batches[0]).graph
    path = Path(folder) / "placement.json"
    by_layer = at_random(graph, WORKERS, seed, by_layer=True)
    device_of = dict(by_layer.device_of)
    apart = [op for op in graph.placed_ops if op.variable is None][::7]
    device_of |= {op.name: WORKERS[number % 2] for number, op in enumerate(apart)}
    replace(by_layer, device_of=device_of).save(path, graph, WORKERS)
    again = live_step(live.step, live.batches[0]).graph
    placement = Placement.load(path, again)
    if parallel:
        groups = [["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"]]
        step = placement_advisor.make_parallel(
            live.step, groups, inputs=live.batches[0], placement=path
        )
    else:
        step = placement_advisor.place(live.step, path, *live.batches[0])
    return {
        **beside(alone, live, step, _loss),
        "same names": set(device_of) == set(placement.device_of),
        # Ops stand in the order in which they were made, whatever they are called.
        "written": [device_of[op.name] for op in graph.placed_ops],
        "read": [placement.device_of[op.name] for op in again.placed_ops],
        "plan": {op: at.replace("worker", "CPU") for op, at in placement.device_of.items()},
    }


def _listing_of_another_build():
    """Trace a model under the listing for one that was built before it."""
    first, live = (STEPS_BY_NAME["gan"]() for _ in range(2))
    graph = live_step(first.step, first.batches[0]).graph
    _, names = _listed(graph, 1, live)
    names["placed_step"].get_concrete_function(*arguments(live, live.batches[0]))


def _listing_around_a_traced_function():
    """Trace a step under its listing, handed over as a `tf.function` that was called before."""
    live, traced = _tape_step()
    live.step(*live.batches[0])
    _, names = _listed(traced.graph, 1, live)
    names["step"] = live.step
    names["placed_step"].get_concrete_function(*live.batches[0])


def predictions_from_a_pair():
    """Place models that take two tensors as one x; return how far their predictions are off."""
    cpus(2)
    pair = tuple(np.ones((4, size), np.float32) for size in (3, 5))
    inputs = [keras.Input((3,)), keras.Input((5,))]
    joined = keras.layers.Dense(2)(keras.layers.Concatenate()(inputs))
    off = []
    for model in (Joining(), keras.Model(inputs, joined)):
        expected = model(pair)
        graph = live_step(model, (pair,)).graph
        step = placement_advisor.place(model, at_random(graph, WORKERS, 1), pair)
        off.append(float(np.max(np.abs(step(pair) - expected))))
    return off


class Joining(keras.Model):
    """A model that says nothing of its inputs."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, inputs):
        left, right = inputs
        return self.dense(tf.concat([left, right], 1))


def place_twice():
    """Train half of the steps under one placement and half under another."""
    cpus(2)
    alone, live = (STEPS_BY_NAME["shared_embedding"]() for _ in range(2))
    found = []
    for seed, half in ((1, slice(10)), (2, slice(10, None))):
        graph = live_step(live.step, live.batches[0]).graph
        placement = at_random(graph, WORKERS, seed)
        step = placement_advisor.place(live.step, placement, *live.batches[0])
        found += losses(step, live, half)
    return losses(own_step(alone), alone), found


def refusals(folder):
    """Return the errors that are raised for what does not fit."""
    cpus(2)
    live, traced = _tape_step()
    other = STEPS_BY_NAME["looping_step"]()
    inputs, graph = live.batches[0], traced.graph
    placement = at_random(graph, WORKERS, 1)
    path = Path(folder) / "placement.json"
    placement.save(path, graph, WORKERS, traced.traced_as())
    place = placement_advisor.place
    calls = {
        "no GPU": lambda: place(live.step, at_random(graph, ("GPU:0", "GPU:1"), 1), *inputs),
        "another step": lambda: place(other.step, placement, *other.batches[0]),
        "other shapes than the file's": lambda: place(live.step, path, *(v[:8] for v in inputs)),
        "no step": lambda: place(3, placement),
        "a listing of another build": _listing_of_another_build,
        "a listing around a traced function": _listing_around_a_traced_function,
    }
    before = [variable.device for variable in live.variables]
    said = {what: error_of(call) for what, call in calls.items()}
    assert before == [variable.device for variable in live.variables]
    live.step(*inputs)
    step = place(live.step, random_placement(graph, None), *inputs)
    calls = {
        "another shape at a call": lambda: step(*(value[:5] for value in inputs)),
        "another structure at a call": lambda: step(inputs[0]),
        # Traced before its variables moved: it would train some that nobody sees.
        "the function that was traced before": lambda: live.step(*inputs),
    }
    return said | {what: error_of(call) for what, call in calls.items()}


def _tape_step():
    live = STEPS_BY_NAME["tape_step"]()
    return live, live_step(live.step, live.batches[0])


def placed_by_listing(name, seed):
    """Trace a step under the listing of a placement; return where ops were asked to be."""
    cpus(2)
    live = STEPS_BY_NAME[name]()
    graph = live_step(live.step, live.batches[0]).graph
    placement, names = _listed(graph, seed, live)
    batch = arguments(live, live.batches[0])
    traced = names["placed_step"].get_concrete_function(*batch)
    asked = {op.name: short_name(op.device) for op in traced.graph.get_operations()}
    wanted = {
        op.name: placement.device_of[op.name].replace("worker", "CPU")
        for op in graph.ops
        if op.role in (Role.FORWARD, Role.BACKWARD)
        and op.variable is None
        and not re.fullmatch(r"Identity(_\d+)?", op.name)  # Made on return, after the step.
    }
    return {"asked": asked, "wanted": wanted, "loss": _loss(names["placed_step"](*batch))}


def _listed(graph, seed, live):
    """Return a placement by layer, and what its listing defines around a step."""
    placement = at_random(graph, WORKERS, seed, by_layer=True)
    listing = how_to_split(graph, placement, Path()).listing
    own = live.step
    step = own.train_step if isinstance(own, keras.Model) else own.python_function
    names = {"step": step, "__name__": "listing"}
    # The listing takes stand-ins for GPUs, which are not here.
    runnable = listing.replace("/GPU:", "/CPU:")
    exec(compile(runnable, "how_to_split.py", "exec"), names)
    return placement, names


def error_of(call):
    """Return what a call raises."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def random_placement(graph, seed):
    return at_random(graph, WORKERS[1:] if seed is None else WORKERS, seed or 0)


def own_step(live):
    """Return the step that the user would call."""
    if not isinstance(live.step, keras.Model):
        return live.step
    live.step.jit_compile = False
    if not live.step.compiled:
        return tf.function(lambda batch: live.step(batch, training=False), autograph=False)
    return tf.function(live.step.train_step, autograph=False)


def arguments(live, batch):
    """Return what the step is called with for a batch."""
    return (batch,) if isinstance(live.step, keras.Model) else batch


def losses(step, live, which=slice(None)):
    """Return the losses of steps on some of the batches."""
    return [_loss(step(*arguments(live, batch))) for batch in live.batches[which]]


def _loss(result):
    return float(result["loss"])


def watched(call):
    """Return the result of a first call, where its ops ran, and how often tensors crossed."""
    context.enable_run_metadata()
    try:
        result, metadata = call(), context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    parts = max(
        (graph.partition_graphs for graph in metadata.function_graphs),
        key=lambda graphs: sum(len(graph.node) for graph in graphs),
    )
    nodes = [node for graph in parts for node in graph.node]
    # What the placed graph becomes part of has ops of its own: no prefix, and no plan.
    ran_on = {
        node.name[inner.end() :]: node.device.rpartition("device:")[2]
        for node in nodes
        if (inner := re.match(r"(Stateful)?PartitionedCall/", node.name))
    }
    return result, ran_on, sum(node.op in {"_Send", "_HostSend"} for node in nodes)
