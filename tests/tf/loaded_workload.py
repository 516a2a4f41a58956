"""What a loader has found, seen from inside its process."""

import sys
from typing import Any

import tensorflow as tf

from placement_advisor.tf import tracer


def load(path: str, name: str | None, mode: str | None, batch_size: int | None) -> dict[str, Any]:
    """Load a file; return what it was taken for, with the shapes of all batches, flattened."""
    tracer.load_workload(path, name, mode, batch_size)
    found = tracer.loaded_workload()
    return {
        "name": found.name,
        "mode": found.mode,
        "chosen": found.chosen,
        "batch_size": found.batch_size,
        "input_names": found.input_names,
        "shapes": [
            [tuple(tensor.shape) for tensor in tf.nest.flatten(batch)] for batch in found.batches
        ],
    }


def file_of_module(name: str) -> str | None:
    """Return where an imported module comes from."""
    return sys.modules[name].__file__
