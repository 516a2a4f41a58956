"""What Keras itself says about the model that a loader holds. Runs in the loader's process."""

from math import prod

import keras

from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import tracer


def facts():
    """Return what models here are checked against.

    By path: ``weights`` are numbers of elements, ``slots`` and ``state`` bytes. ``macs`` are
    multiply-adds of convolutions and dense layers, ``first_macs`` those of the layer that the
    images enter: its input needs no gradient.
    """
    model = tracer.loaded_workload().model
    macs = [m for layer in model._flatten_layers() if (m := _multiply_adds(layer))]
    return {
        "count_params": model.count_params(),
        "trainable": sum(prod(v.shape) for v in model.trainable_variables),
        "weights": {weight.path: prod(weight.shape) for weight in model.weights},
        "slots": _sizes(model.optimizer.variables),
        "state": _sizes([*model.variables, *model.metrics_variables, *model.optimizer.variables]),
        "macs": sum(macs),
        "first_macs": macs[0] if macs else 0,
    }


def _sizes(variables):
    return {variable.path: int(variable.numpy().nbytes) for variable in variables}


def _multiply_adds(layer):
    """Multiply each output element by the weights that it is a sum over."""
    match layer:
        case keras.layers.DepthwiseConv2D():
            return prod(layer.output.shape) * prod(layer.kernel_size)
        case keras.layers.Conv2D():
            return prod(layer.output.shape) * prod(layer.kernel.shape[:3])
        case keras.layers.Dense():
            return prod(layer.output.shape) * layer.kernel.shape[0]
    return 0


def save(source, path, form):
    """Save the model of a file as ``saved_model``, which only infers, or whole as ``keras``."""
    tracer.load_workload(ModelSource(path=source))
    model = tracer.loaded_workload().model
    if form == "saved_model":
        model.export(path, verbose=False)
    else:
        model.save(path)
