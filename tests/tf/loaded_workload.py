"""What a loader has found, seen from inside its process."""

import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from placement_advisor.tf.load.example_batches import make_batches
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import tracer
from placement_advisor.tf.trace.bundle import array


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


def alive():
    """Return the children of this process, and which module is `__main__`."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return list(map(int, children)), str(sys.modules["__main__"].__file__)


def change_folder(path):
    """Make a folder the current one of this process."""
    os.chdir(path)


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
