"""Model file -> workload: runs the user's file and finds what to analyse in it.

Understands a compiled `keras.Model` and a `tf.function` training step, with example batches in
``dataset`` (a `tf.data.Dataset`) or ``inputs`` (one batch). Runs in a child: the file is foreign
code.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.user_code import is_ours, is_user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Enough different batches to see state change from step to step, few enough to keep in memory.
EXAMPLE_BATCHES = 4
_FRAME_IN_MESSAGE = re.compile(r' *File "(?P<file>[^"]+)", line \d+, in .*\n.*\n')
_STEP_NAMES = ("train_step", "training_step", "step")
_CONTRACT = (
    "looked for a compiled keras.Model or a tf.function named train_step, training_step or step, "
    "with example batches in `dataset` (a tf.data.Dataset) or `inputs` (one batch)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step of the user's model with the batches to run it on.

    ``step`` takes one batch and returns what the user's step returns. ``batches`` are nested
    structures of tensors of equal shapes. ``input_names`` name the tensors of a flattened batch.
    ``model`` is the Keras model, None for a step of the user's own.
    """

    name: str
    mode: str
    chosen: str
    step: Callable[..., Any]
    batches: tuple[Any, ...]
    batch_size: int | None
    input_names: tuple[str, ...]
    model: Any | None


def load(path: str, *, name: str | None, mode: str | None, batch_size: int | None) -> Workload:
    """Run the file and return its workload.

    Raises:
        ModelError: the file fails or holds nothing that can be analysed.
    """
    namespace = _run(Path(path))
    target, label = _target(path, namespace, name)
    batches, origin = _batches(path, namespace, batch_size)
    if isinstance(target, tf.keras.Model):
        return _keras_workload(path, target, label, batches, origin, mode)
    if mode == "infer":
        raise ModelError(
            f"{path}: {label} is a training step; --mode infer needs a keras.Model",
            hint="leave --mode out",
        )
    arguments = batches[0] if isinstance(batches[0], tuple) else (batches[0],)
    return Workload(
        name=label,
        mode="train",
        chosen=f"{label} (tf.function), batches from {origin}",
        step=_as_one_argument(target),
        batches=tuple(b if isinstance(b, tuple) else (b,) for b in batches),
        batch_size=_leading_size(arguments),
        input_names=_argument_names(target, arguments),
        model=None,
    )


def _run(path: Path) -> dict[str, Any]:
    # A name of its own: the user's file may be called like a module that something else imports.
    spec = importlib.util.spec_from_file_location(f"_model_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path}: not a Python file", hint=_CONTRACT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise ModelError(
            f"{path}: the file called sys.exit({error.code!r}) while it was loaded"
            f"{_where(error, path)}",
            hint='put what should only run as a script under `if __name__ == "__main__":`',
        ) from None
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}" if error.filename else str(path)
        raise ModelError(f"{where}: not valid Python: {error.msg}") from None
    except MemoryError as error:
        raise ModelError(f"{path}: out of memory while loading{_where(error, path)}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not a Python file: {error}") from None
    except BaseException as error:
        raise ModelError(f"{path}: {describe(error, path)}") from None
    return vars(module)


def describe(error: BaseException, path: Path) -> str:
    """Return the error with the part of its traceback that lies in the user's code.

    TensorFlow writes the stack of a traced function into the message; our part is cut out.
    """
    text = "".join(traceback.format_exception_only(error)).strip()
    text = _FRAME_IN_MESSAGE.sub(lambda frame: "" if is_ours(frame["file"]) else frame[0], text)
    return f"{text}{_where(error, path)}"


def _where(error: BaseException, path: Path) -> str:
    """Return the user's frames, outermost first: from the model file to the user's last line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_user_code(frame.filename, path)]
    if not own:
        return ""
    return "\n" + "".join(traceback.format_list(own)).rstrip()


def _target(path: str, namespace: dict[str, Any], name: str | None) -> tuple[Any, str]:
    if name is not None:
        if name not in namespace:
            public = ", ".join(sorted(n for n in namespace if not n.startswith("_")))
            raise ModelError(f"{path}: nothing is called {name!r}; the file has {public}")
        if not _is_target(namespace[name]):
            kind = type(namespace[name]).__name__
            raise ModelError(f"{path}: {name!r} is a {kind}", hint=_CONTRACT)
        return namespace[name], name
    for step in _STEP_NAMES:
        if _is_step(namespace.get(step)):
            return namespace[step], step
    models = {n: m for n, m in namespace.items() if isinstance(m, tf.keras.Model)}
    distinct = {id(model): label for label, model in reversed(models.items())}
    if len(distinct) > 1 and "model" not in models:
        found = ", ".join(models)
        raise ModelError(
            f"{path}: several models: {found}", hint=f"name one: {path}:{next(iter(models))}"
        )
    if models:
        label = "model" if "model" in models else next(iter(models))
        return models[label], label
    raise ModelError(f"{path}: no model found", hint=_CONTRACT)


def _is_target(value: Any) -> bool:
    return isinstance(value, tf.keras.Model) or _is_step(value)


def _is_step(value: Any) -> bool:
    return hasattr(value, "get_concrete_function") and hasattr(value, "python_function")


def _batches(
    path: str, namespace: dict[str, Any], batch_size: int | None
) -> tuple[tuple[Any, ...], str]:
    dataset = namespace.get("dataset")
    if isinstance(dataset, tf.data.Dataset):
        if batch_size is not None:
            dataset = dataset.unbatch().batch(batch_size, drop_remainder=True)
        try:
            batches = tuple(_take(dataset))
        except Exception as error:
            raise ModelError(f"{path}: `dataset` fails: {describe(error, Path(path))}") from None
        if not batches and batch_size is not None:
            raise ModelError(f"{path}: `dataset` holds less than one batch of {batch_size}")
        if not batches:
            raise ModelError(f"{path}: `dataset` is empty")
        _check_dense(path, batches[0])
        return batches, "`dataset`"
    if namespace.get("inputs") is not None:
        if batch_size is not None:
            raise ModelError(
                f"{path}: --batch-size needs a `dataset`; `inputs` has the size it has"
            )
        _check_dense(path, namespace["inputs"])
        try:
            batch = tf.nest.map_structure(tf.convert_to_tensor, namespace["inputs"])
        except (TypeError, ValueError) as error:
            raise ModelError(f"{path}: `inputs` is not made of tensors: {error}") from None
        return (batch,), "`inputs`"
    raise ModelError(f"{path}: no example batches", hint=_CONTRACT)


def _check_dense(path: str, batch: Any) -> None:
    for tensor in tf.nest.flatten(batch):
        if isinstance(tensor, tf.RaggedTensor | tf.SparseTensor):
            raise ModelError(
                f"{path}: the example batches hold a {type(tensor).__name__}",
                hint="hand it over as dense tensors (to_tensor, tf.sparse.to_dense)",
            )


def _take(dataset: tf.data.Dataset) -> Iterator[Any]:
    shapes = None
    for batch in dataset.take(EXAMPLE_BATCHES):
        found = [tensor.shape.as_list() for tensor in tf.nest.flatten(batch)]
        shapes = shapes or found
        if found == shapes:  # One graph is traced; batches of another shape would need another.
            yield batch


def _keras_workload(
    path: str, model: Any, label: str, batches: tuple[Any, ...], origin: str, mode: str | None
) -> Workload:
    compiled = getattr(model, "compiled", False)
    mode = mode or ("train" if compiled else "infer")
    if mode == "train" and not compiled:
        raise ModelError(
            f"{path}: {label} is not compiled", hint="call model.compile(...), or use --mode infer"
        )
    features = batches[0][0] if isinstance(batches[0], tuple) else batches[0]
    if mode == "infer":
        batches = tuple(b[0] if isinstance(b, tuple) else b for b in batches)
    # With a GPU in sight Keras would hand the whole step to XLA, which ignores devices inside.
    model.jit_compile = False
    try:
        if mode == "train":
            model._symbolic_build(data_batch=batches[0])
        elif not model.built:
            model(features)
    except Exception as error:
        raise ModelError(
            f"{path}: {label} does not take its example batch: {describe(error, Path(path))}"
        ) from None

    def train(batch: Any) -> Any:
        return model.train_step(batch)

    def infer(batch: Any) -> Any:
        return model(batch, training=False)

    state = "compiled" if compiled else "not compiled"
    return Workload(
        name=model.name,
        mode=mode,
        chosen=f"{label} ({state} {type(model).__name__}), batches from {origin}",
        step=train if mode == "train" else infer,
        batches=batches,
        batch_size=_leading_size(features),
        input_names=_keras_input_names(model, batches[0], mode),
        model=model,
    )


def _keras_input_names(model: Any, batch: Any, mode: str) -> tuple[str, ...]:
    features = batch[0] if mode == "train" and isinstance(batch, tuple) else batch
    count = len(tf.nest.flatten(features))
    named = tuple(tensor.name for tensor in getattr(model, "inputs", None) or ())
    names = list(named if len(named) == count else (f"input_{i}" for i in range(count)))
    others = len(tf.nest.flatten(batch)) - count
    names += ["target"] if others == 1 else [f"target_{i}" for i in range(others)]
    return tuple(names)


def _as_one_argument(function: Any) -> Callable[..., Any]:
    def step(arguments: tuple[Any, ...]) -> Any:
        return function.python_function(*arguments)

    return step


def _argument_names(function: Any, arguments: tuple[Any, ...]) -> tuple[str, ...]:
    given = list(inspect.signature(function.python_function).parameters)
    names: list[str] = []
    for i, argument in enumerate(arguments):
        base = given[i] if i < len(given) else f"input_{i}"
        count = len(tf.nest.flatten(argument))
        names += [base] if count == 1 else [f"{base}_{k}" for k in range(count)]
    return tuple(names)


def _leading_size(structure: Any) -> int | None:
    for tensor in tf.nest.flatten(structure):
        if tensor.shape.rank:
            return int(tensor.shape[0])
    return None
