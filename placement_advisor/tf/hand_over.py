"""A model or step of the user's own process, written as a model file that any process can load.

Steps run in children that have nothing of this process. A Keras model that is made of Keras'
classes alone travels as Keras saves it. Anything else travels as the graph of its step, a
SavedModel with the values of its variables, for batches of any size if it can be traced so, else
of the one size. The batch lies beside it.

What cannot travel: a step that calls back into Python (`tf.py_function`), and what TensorFlow
cannot save, such as tables that nothing holds.
"""

from __future__ import annotations

import keyword
import pickle
import re
import shutil
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.failures import first_line
from placement_advisor.tf.place import label_of, live_step
from placement_advisor.tf.trace import bundle, tracer

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.tf.load.loaded_step import LoadedStep


_MODEL, _STEP, _BATCH = "model.keras", "step", "batch.pickle"
_WITHOUT_MODULE = frozenset({"__none__", "__keras_tensor__", "__tensor__", "__numpy__"})
_GIVE_FILE = "put it into a file, and give its path: analyze('model.py')"
_KERAS_FILE = '''"""A Keras model that was handed to `placement_advisor.analyze`, with its batch."""

import pickle
from pathlib import Path

import keras

HERE = Path(__file__).parent
model = keras.models.load_model(HERE / "{model}")
inputs = pickle.loads((HERE / "{batch}").read_bytes())
'''
_STEP_FILE = '''"""A step handed to `placement_advisor.analyze`, as a graph, and its batch."""

import pickle
from pathlib import Path

import tensorflow as tf

import placement_advisor

HERE = Path(__file__).parent
loaded = tf.saved_model.load(str(HERE / "{step}"))


def {name}({arguments}):
    return loaded.step({arguments})


def workload():
    inputs = pickle.loads((HERE / "{batch}").read_bytes())
    return placement_advisor.Workload(step={name}, inputs=inputs, mode="{mode}")
'''


def name_of(step: Any) -> str:
    """Return what a model or step is called, as a name of Python."""
    name = re.sub(r"\W", "_", label_of(step))
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"step_{name}"


def hand_over(step: Any, inputs: tuple[Any, ...], mode: str | None, folder: Path) -> Path:
    """Write a model or step with its batch into a folder; return the file to load.

    Raises:
        ModelError: it cannot be traced, its inputs do not fit, or it cannot travel.
    """
    name = name_of(step)
    if len(inputs) == 1 and isinstance(inputs[0], tf.data.Dataset):
        first = next(iter(inputs[0]), None)
        if first is None:
            raise ModelError("the dataset is empty")
        inputs = first if isinstance(first, tuple) else (first,)
    if isinstance(step, keras.Model):
        return _hand_over_model(step, inputs, mode, folder, name)
    return _write_step(live_step(step, inputs), mode, folder, name)


def _hand_over_model(
    model: Any, inputs: tuple[Any, ...], mode: str | None, folder: Path, name: str
) -> Path:
    live = live_step(model, inputs)
    if mode not in (None, live.loaded.mode) or not _is_of_keras_alone(model):
        return _write_step(live, mode, folder, name)
    _make(folder)
    model.save(folder / _MODEL)
    text = _KERAS_FILE.format(model=_MODEL, batch=_BATCH)
    return _write(folder, name, text, live.loaded.batches[0])


def _is_of_keras_alone(model: Any) -> bool:
    """Say whether a process that has imported Keras alone can load a model."""
    try:
        found = [keras.saving.serialize_keras_object(model), model.get_compile_config()]
    except Exception:  # A class of the user's own that does not say how it is made again.
        return False
    while found:
        value = found.pop()
        if isinstance(value, dict):
            # What Keras' own loader finds names a module of Keras, or is a tensor; a function, or a
            # class that was registered elsewhere, is neither.
            kind, module = value.get("class_name", "__none__"), str(value.get("module"))
            if not module.startswith("keras") and kind not in _WITHOUT_MODULE:
                return False
            found += value.values()
        elif isinstance(value, list | tuple):
            found += value
    return True


def _write_step(live: tracer.TracedStep, mode: str | None, folder: Path, name: str) -> Path:
    loaded = live.loaded
    if mode not in (None, loaded.mode):
        raise ModelError(
            f"{loaded.name}: mode is {mode!r}, and the step is one to {loaded.mode}",
            hint="hand over the step that you want, or leave mode out",
        )
    own = sorted(_kinds(live.function.graph) & PYTHON_CALLS)
    if own:
        raise ModelError(
            f"{loaded.name} calls Python while it runs ({own[0]}), which stays in this process",
            hint=_GIVE_FILE,
        )
    holder = tf.Module()
    variables = [
        variable for variable, _ in tracer.owned_variables(live.function.graph, loaded.model)
    ]
    holder.held = list({id(v.handle): v for v in variables}.values())
    holder.step = _as_function(live)
    _make(folder)
    try:
        tf.saved_model.save(holder, str(folder / _STEP), signatures=None)
    except Exception as error:  # TensorFlow raises errors of every kind.
        raise ModelError(
            f"{loaded.name} cannot travel: TensorFlow does not save it: {first_line(error)}",
            hint=_GIVE_FILE,
        ) from None
    text = _STEP_FILE.format(
        step=_STEP,
        batch=_BATCH,
        name=name,
        mode=loaded.mode,
        arguments=", ".join(_argument_names(loaded)),
    )
    return _write(folder, name, text, tuple(tf.nest.flatten(loaded.batches[0])))


def _kinds(graph: Any) -> set[str]:
    """Return the kinds of all ops of a graph, those within its functions included."""
    definition = graph.as_graph_def()
    inside = {node.op for function in definition.library.function for node in function.node_def}
    return inside | {node.op for node in definition.node}


def _as_function(live: tracer.TracedStep) -> Any:
    """Return the step as a function of its flat tensors, for any batch if that can be traced."""
    loaded, size = live.loaded, live.loaded.batch_size
    open_specs = tf.nest.map_structure(
        lambda spec: (
            tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, spec.name)
            if size is not None and spec.shape.rank and spec.shape[0] == size
            else spec
        ),
        loaded.specs,
    )
    try:
        return _traced(loaded, open_specs)
    except Exception:  # The step is for this size alone.
        return _traced(loaded, loaded.specs)


def _traced(loaded: LoadedStep, specs: Any) -> Any:
    names = _argument_names(loaded)
    flat = [
        tf.TensorSpec(spec.shape, spec.dtype, name)
        for spec, name in zip(tf.nest.flatten(specs), names, strict=True)
    ]

    def step(*tensors: Any) -> Any:
        batch = tf.nest.pack_sequence_as(loaded.specs, tensors)
        returned = tf.nest.flatten(loaded.step(batch), expand_composites=True)
        return [tensor for tensor in returned if tensor is not None]

    function = tf.function(step, input_signature=flat, autograph=loaded.model is None)
    function.get_concrete_function()
    return function


def _argument_names(loaded: LoadedStep) -> list[str]:
    names: list[str] = []
    for place, name in enumerate(loaded.input_names):
        own = bundle.identifier(name)
        names.append(own if own.isidentifier() and own not in names else f"input_{place}")
    return names


def _make(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _write(folder: Path, name: str, text: str, batch: Any) -> Path:
    """Write the file to load, and the batch that it reads."""
    arrays = tf.nest.map_structure(bundle.array, batch)
    (folder / _BATCH).write_bytes(pickle.dumps(arrays))
    path = folder / f"{name}.py"
    path.write_text(text.rstrip() + "\n", encoding="utf-8")
    return path
