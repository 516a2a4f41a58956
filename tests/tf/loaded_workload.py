"""What a loader has found, seen from inside its process."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from placement_advisor.measurement.verification import StepResults
from placement_advisor.tf.load.example_batches import make_batches
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import tracer
from placement_advisor.tf.trace.bundle import array, state_names


def load(path, asked):
    """Load a path with what is asked of it; return what it was taken for."""
    tracer.load_workload(ModelSource(path=path, **asked))
    return seen()


def seen():
    """Return what this process has loaded, with the shapes of all batches, flattened.

    Where batches are yet to be made up, the shapes are those of the specs, once.
    """
    found = tracer.loaded_workload()
    return {
        "name": found.name,
        "mode": found.mode,
        "chosen": found.chosen,
        "batch_size": found.batch_size,
        "has_devices": found.has_devices,
        "input_names": found.input_names,
        "shapes": [
            [tuple(tensor.shape) for tensor in tf.nest.flatten(batch)]
            for batch in found.batches or (found.specs,)
        ],
    }


def trace(path, asked):
    """Load and trace; return what `load` does, with op kinds, batches, and what a step returns."""
    answer = load(path, asked)
    found = tracer.loaded_workload()
    function = tracer.traced_function(found)
    batches = found.batches or make_batches(function, found.specs, found.input_names)
    step = tf.function(found.step, autograph=found.model is None)
    returned = [step(batch) for batch in batches]
    return answer | {
        "kinds": {op.type for op in function.graph.get_operations()},
        "batches": [[array(tensor) for tensor in tf.nest.flatten(batch)] for batch in batches],
        "returned": [array(tensor) for tensor in tf.nest.flatten(returned[-1])],
    }


def reference(steps):
    """Run the user's own step, unplaced, as a plain tf.function; return outputs and state.

    Runners take one step before they restore the initial state, and kernels with a random state
    of their own keep it: so does this.
    """
    workload = tracer.loaded_workload()
    function = tf.function(workload.step, autograph=workload.model is None)
    graph = function.get_concrete_function(workload.batches[0]).graph
    captured = {inner.op.name: outer for outer, inner in graph.captures}
    names = state_names(tracer.labels(graph, workload.model), captured, taken=())
    variables = {
        label: variable
        for name, label in names.items()
        for variable in graph.variables
        if variable.handle is captured[name]
    }
    initial = {name: tf.identity(variable) for name, variable in variables.items()}
    function(workload.batches[0])
    for name, variable in variables.items():
        variable.assign(initial[name])
    outputs = []
    for i in range(steps):
        answer = function(workload.batches[i % len(workload.batches)])
        outputs += [array(tensor) for tensor in tf.nest.flatten(answer) if tensor is not None]
    state = {name: array(variable.read_value()) for name, variable in variables.items()}
    before = {name: array(value) for name, value in initial.items()}
    return StepResults(outputs=tuple(outputs), before=before, state=state, given={})


def file_of_module(name):
    """Return where an imported module comes from."""
    return sys.modules[name].__file__


def another_batch(path):
    """Load and trace; return the second example batch of the traced step, if it has one."""
    tracer.load_workload(ModelSource(path=path))
    tracer.trace_workload(path, None)
    rest = tracer.loaded_workload().batches[1:]
    return [array(tensor) for tensor in tf.nest.flatten(rest[0])] if rest else None


def first_batch():
    """Return the tensors of the last batch that a script was given, as arrays."""
    return [array(tensor) for tensor in tf.nest.flatten(tracer.loaded_workload().batches[-1])]


def replayed(folder):
    """Run the step from where the script was; return what variables hold then, and held there.

    The script has a function ``held`` that returns its variables, and wrote into files, numbered by
    its turns, the batch and what they held before.
    """
    found = tracer.loaded_workload()
    variables = sys.modules["__main__"].held()
    files = sorted(Path(folder).glob("*.npz"), key=lambda file: int(file.stem))
    turns = [list(np.load(file).values()) for file in files]
    given = array(found.batches[-1][0])
    number = next(i for i, (x, *_) in enumerate(turns) if np.array_equal(x, given))
    for variable, value in zip(variables, turns[number][1:], strict=True):
        variable.assign(value)
    tracer.traced_function(found)(*found.batches[-1])
    held = [np.asarray(variable) for variable in variables]
    return list(zip(held, turns[number + 1][1:], strict=True))
