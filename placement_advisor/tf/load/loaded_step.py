"""Turns a function or a Keras model into a loaded step, which the tracer takes.

Functions are tf.functions, callables and explicit workloads. A Keras model gives training by
its own ``train_step``, or inference.
"""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.model_source import ModelSource, describe, hint_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from placement_advisor.tf.answers import CapturedCall
    from placement_advisor.tf.load.example_batches import Examples
    from placement_advisor.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStep:
    """One step of the user's model.

    ``step`` takes one batch and returns what the user's step returns. ``specs`` is a batch with
    a `tf.TensorSpec` of known shape for each tensor; ``input_names`` name them, flattened.
    ``batches`` hold tensors; without any, they are made up once the step is traced. ``model`` is
    the Keras model, None for a step of another kind. ``owner`` keeps the step's variables alive
    if ``step`` does not. ``trace`` turns specs into a concrete function, for a step that a
    `tf.function` cannot hold. ``dataset`` is the user's own, if the batches come from one.
    ``captured`` is the call of a script that ran.
    ``takes_batch_size``: it can be loaded with another batch than its file has.
    ``has_devices``: a frozen graph says where its ops run. ``origin`` has the ops of the user's own
    graph, by name, where the step is a copy of them: of one that ``runs_op_by_op`` once it was
    traced.
    """

    name: str
    mode: str
    step: Callable[..., Any]
    specs: Any
    batches: tuple[Any, ...]
    batch_size: int | None
    input_names: tuple[str, ...]
    chosen: str = ""
    model: Any | None = None
    owner: Any | None = None
    trace: Callable[[Any], Any] | None = None
    dataset: Any | None = None
    captured: CapturedCall | None = None
    takes_batch_size: bool = True
    has_devices: bool = False
    origin: Mapping[str, Any] | None = None
    runs_op_by_op: bool = False

    @property
    def is_for_xla(self) -> bool:
        """Whether Keras would have XLA compile the step (of a tf.function its graph tells)."""
        model = self.model
        return model is not None and bool(getattr(model, "compiled", False) and model.jit_compile)

    @property
    def is_eager(self) -> bool:
        """Whether the user's program would run the step op by op, and not as a graph."""
        run_eagerly = getattr(self.model, "run_eagerly", False)
        return bool(self.runs_op_by_op or run_eagerly or tf.config.functions_run_eagerly())

    def part(self, start: int, stop: int) -> LoadedStep:
        """Return the step on some samples of its batches.

        Tensors whose first size is not that of the batch stay whole.
        """
        return self._resized(stop - start, lambda tensor: tensor[start:stop])

    def of_size(self, size: int) -> LoadedStep:
        """Return the step on so many samples of its batches, several times each if need be.

        See `part`.
        """
        times = -(-size // (self.batch_size or size))
        return self._resized(size, lambda tensor: tf.concat([tensor] * times, axis=0)[:size])

    def repeated(self, times: int) -> LoadedStep:
        """Return the step at several times its batch, to be traced; see `part`.

        Of its batches texts alone have values, which no shape tells the size of. Others would take
        gigabytes, so there are specs.
        """
        size = (self.batch_size or 0) * times

        def resize(tensor: Any) -> Any:
            if tensor.dtype == tf.string:
                return tf.concat([tensor] * times, axis=0)
            return tf.TensorSpec([size, *tensor.shape[1:]], tensor.dtype)

        return self._resized(size, resize)

    def _resized(self, size: int, resize: Callable[[Any], Any]) -> LoadedStep:
        def changed(one: Any) -> Any:
            if not one.shape.rank or one.shape[0] != self.batch_size:
                return one
            if isinstance(one, tf.TensorSpec):
                return tf.TensorSpec([size, *one.shape[1:]], one.dtype, name=one.name)
            return resize(one)

        return replace(
            self,
            specs=tf.nest.map_structure(changed, self.specs),
            batches=tuple(tf.nest.map_structure(changed, batch) for batch in self.batches),
            batch_size=size,
        )


def step_on(found: Examples, what: str, **rest: Any) -> LoadedStep:
    """Return a step on examples: ``what`` was chosen, and ``rest`` is what else it is."""
    return LoadedStep(
        chosen=f"{what}, {found.origin}",
        specs=found.specs,
        batches=found.batches,
        dataset=found.dataset,
        takes_batch_size=found.takes_batch_size,
        **{"batch_size": leading_size(found.specs), **rest},
    )


def leading_size(specs: Any) -> int | None:
    """Return the first size of the first tensor that is no scalar: the batch, by convention."""
    for spec in tf.nest.flatten(specs):
        if spec.shape.rank:
            size = spec.shape[0]
            return None if size is None else int(size)
    return None


def numbered(base: str, count: int) -> list[str]:
    """Return names for ``count`` tensors that belong together."""
    return [base] if count == 1 else [f"{base}_{i}" for i in range(count)]


_NO_EXAMPLES_HINT = (
    "give the file example batches in `dataset` (a tf.data.Dataset) or in `inputs` (one batch: "
    "a tuple with an entry for each argument). Or give the step an input_signature"
)


def is_function(value: Any) -> bool:
    """Say whether it is a `tf.function`."""
    return hasattr(value, "get_concrete_function") and hasattr(value, "python_function")


def signature_of(function: Any) -> tuple[Any, ...] | None:
    """Return the specs that a function declares for its arguments, None if it declares none."""
    signature = getattr(function, "input_signature", None)
    return tuple(signature) if signature is not None else None


def _takes_nothing(function: Any) -> bool:
    try:
        return not inspect.signature(getattr(function, "python_function", function)).parameters
    except (TypeError, ValueError):  # Written in C.
        return False


def function_step(
    source: ModelSource, function: Any, label: str, found: Examples | None, mode: str
) -> LoadedStep:
    """Return a step that calls the function with what was found, or what its signature says.

    Raises:
        ModelError: there is neither.
    """
    signature = signature_of(function)
    if _takes_nothing(function):
        found = example_batches.Examples(specs=(), batches=((),), origin="which takes no inputs")
    elif found is None and signature is not None:
        found = example_batches.made_up(source, signature, "its input_signature")
    if found is None:
        raise ModelError(f"{source.file}: {label}: no example batches", hint=_NO_EXAMPLES_HINT)
    kind = "tf.function" if is_function(function) else type(function).__name__
    return _step(source, function, label, f"{label} ({kind})", found, mode)


def workload_step(source: ModelSource, workload: Workload, label: str) -> LoadedStep:
    """Return the step that an explicit workload describes.

    Raises:
        ModelError: its inputs cannot be used, or another mode is asked for.
    """
    if source.mode not in (None, workload.mode):
        raise ModelError(
            f"{source.file}: {label} has mode {workload.mode!r}, not {source.mode!r}",
            hint="leave --mode out",
        )
    where = f"the inputs of {label}"
    if isinstance(workload.inputs, example_batches.DATASETS):
        found = example_batches.from_dataset(source, workload.inputs, where)
    else:
        found = example_batches.from_values(
            source, workload.inputs, where, given=workload.batch_size
        )
    step = _step(source, workload.step, label, f"{label} (Workload)", found, workload.mode)
    size = workload.batch_size
    return step if source.batch_size or size is None else replace(step, batch_size=size)


def _step(
    source: ModelSource, function: Any, label: str, what: str, found: Examples, mode: str
) -> LoadedStep:
    # A tf.function would be traced at its own signature, which leaves sizes open.
    own = getattr(function, "python_function", function)
    found = found.changed(_as_arguments(own))
    try:
        names = _argument_names(own, found.specs)
    except TypeError as error:
        raise ModelError(
            f"{source.file}: {label} does not take its example batch: {error}",
            hint="a batch is a tuple with one entry for each argument, or a dict by their names",
        ) from None

    def step(arguments: tuple[Any, ...]) -> Any:
        return own(*arguments)

    return step_on(found, what, name=label, mode=mode, step=step, input_names=names)


def _as_arguments(function: Callable[..., Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what makes a tuple of arguments of a batch."""
    names: tuple[str, ...] = ()
    with contextlib.suppress(ValueError):  # Written in C: its arguments have no names.
        names = tuple(inspect.signature(function).parameters)

    def arguments(batch: Any) -> tuple[Any, ...]:
        if isinstance(batch, dict) and set(batch) == set(names):
            return tuple(batch[name] for name in names)
        is_one = not isinstance(batch, tuple) or (hasattr(batch, "_fields") and len(names) == 1)
        return (batch,) if is_one else tuple(batch)

    return arguments


def _argument_names(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, ...]:
    """Return names for all tensors of the arguments.

    Raises:
        TypeError: the function does not take that many.
    """
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given: list[str] = []
    with contextlib.suppress(ValueError):  # Written in C: its arguments have no names.
        signature = inspect.signature(function)
        signature.bind(*arguments)
        given = [p.name for p in signature.parameters.values() if p.kind in single]
    names: list[str] = []
    for i, argument in enumerate(arguments):
        base = given[i] if i < len(given) else f"input_{i}"
        names += numbered(base, len(tf.nest.flatten(argument)))
    return tuple(names)


_NO_INPUTS_HINT = (
    "give the file example batches in `dataset` (a tf.data.Dataset) or `inputs` (one batch), or "
    "describe the step in workload()"
)


def keras_step(source: ModelSource, model: Any, label: str, found: Examples | None) -> LoadedStep:
    """Return the model's step on what was found, or on batches made up for its inputs.

    Raises:
        ModelError: it cannot be trained, or its inputs are unknown or do not fit.
    """
    compiled = getattr(model, "compiled", False)
    path, mode = source.file, source.mode or ("train" if compiled else "infer")
    if mode == "train" and not compiled:
        raise ModelError(
            f"{path}: {label} is not compiled", hint="call model.compile(...), or use --mode infer"
        )
    if found is None:
        specs, origin = _declared_inputs(source, model, label)
        found = example_batches.made_up(source, specs, origin)
    alone = _is_x_alone(model, found.specs)
    features = found.specs if alone else found.specs[0]
    try:
        if mode == "train":
            found = _ready_to_train(model, found, features, alone=alone)
        else:
            found = found if alone else found.changed(lambda batch: batch[0])
            if not model.built:
                model(_symbolic(features))
    except Exception as error:
        batch = "its example batch" if found.batches else "a batch of the shapes of its inputs"
        raise ModelError(
            f"{path}: {label} does not take {batch}: {describe(error, path)}",
            hint=hint_for(error),
        ) from None

    train_step = model.train_step  # It may have another one by the time that it is traced.

    def train(batch: Any) -> Any:
        return train_step(batch)

    def infer(batch: Any) -> Any:
        return model(batch, training=False)

    state = "compiled" if compiled else "not compiled"
    return step_on(
        found,
        f"{label} ({state} {type(model).__name__})",
        name=model.name,
        mode=mode,
        step=train if mode == "train" else infer,
        batch_size=leading_size(features),
        input_names=_input_names(model, features, found.specs),
        model=model,
    )


def _is_x_alone(model: Any, batch: Any) -> bool:
    """Say whether a batch is x, and not (x,), (x, y) or (x, y, weights)."""
    inputs = getattr(model, "inputs", None) or ()
    # As many tensors as the model takes: none is left to be a target. Of several in one, that is x.
    is_x = 1 < len(inputs) == len(tf.nest.flatten(batch))
    return not isinstance(batch, tuple) or (is_x and len(batch) > 1)


def _declared_inputs(source: ModelSource, model: Any, label: str) -> tuple[Any, str]:
    """Return specs for the inputs of a model, and in words where they come from."""
    declared = getattr(model, "_inputs_struct", None)  # Functional: nested as the user made them.
    if declared is None:
        declared = getattr(model, "inputs", None)
        declared = declared[0] if isinstance(declared, list) and len(declared) == 1 else declared
    if declared is not None:
        return tf.nest.map_structure(_spec, declared), "its inputs"
    shapes = (model.get_build_config() or {}).get("input_shape") if model.built else None
    if shapes is None:
        raise ModelError(
            f"{source.file}: {label} ({type(model).__name__}) does not say what inputs it takes",
            hint=_NO_INPUTS_HINT,
        )
    return _specs_of_shapes(shapes), "the shapes it was built for"


def _spec(tensor: Any) -> Any:
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):
        raise ModelError(f"input {tensor.name!r} is not dense", hint="only dense inputs are read")
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _specs_of_shapes(shapes: Any) -> Any:
    """Turn nested shapes into specs with an open batch; what was built does not know dtypes."""
    if isinstance(shapes, dict):
        return {name: _specs_of_shapes(shape) for name, shape in shapes.items()}
    if all(size is None or isinstance(size, int) for size in shapes):
        return tf.TensorSpec([None, *shapes[1:]], keras.config.floatx())
    return [_specs_of_shapes(shape) for shape in shapes]


def _ready_to_train(model: Any, found: Examples, features: Any, *, alone: bool) -> Examples:
    """Build what training needs; targets are made up where some are needed and none are there.

    Raises:
        Exception: whatever the model raises for these inputs.
    """
    own_step = type(model).train_step is not keras.Model.train_step
    has_targets = not alone and len(found.specs) > 1
    # A train_step of the user's own may well need no targets, as that of a GAN.
    if has_targets or (own_step and found.batches) or (model.loss is None and not own_step):
        if alone and isinstance(features, tuple):  # Keras would take it for (x, y).
            found = found.changed(lambda batch: (batch,))
        _build(model, found.specs, own_step=own_step)
        return found
    origin = found.origin
    if found.batches:
        origin = f"{origin}, which has no targets, so all values made up"
    errors = []
    for specs in _guesses(model, features):
        try:
            _build(model, specs, own_step=own_step)
            if model.loss is None:  # Only its train_step knows what it takes.
                tf.function(model.train_step).get_concrete_function(specs)
        except Exception as error:
            errors.append(error)
        else:
            return replace(found, specs=specs, batches=(), origin=origin)
    raise errors[0]


def _guesses(model: Any, features: Any) -> Iterator[Any]:
    """Yield what a batch may look like, the likeliest first."""
    if model.loss is None:
        yield features
        if type(model).call is keras.Model.call:  # Only its parts are called, as in a GAN.
            return
    outputs = model(_symbolic(features))
    # By its name a loss wants classes, or a tensor like the output; some losses hide it.
    yield features, _targets(model, outputs, _wants_classes)
    yield features, _targets(model, outputs, lambda loss: not _wants_classes(loss))


def _build(model: Any, specs: Any, *, own_step: bool) -> None:
    try:
        model._symbolic_build(data_batch=specs)
    except Exception:
        if not own_step:  # A train_step of the user's own may use neither call() nor the loss.
            raise


def _targets(model: Any, outputs: Any, wants_classes: Callable[[Any], bool]) -> Any:
    """Return specs of targets, nested as the outputs."""
    flat = tf.nest.flatten(outputs)
    loss = model.loss
    if isinstance(loss, dict):
        names = sorted(outputs) if isinstance(outputs, dict) else model.output_names
        losses = [loss.get(name) for name in names]
    elif isinstance(loss, list | tuple):
        losses = list(loss)
    else:
        losses = [loss] * len(flat)
    specs = [
        tf.TensorSpec(output.shape[:-1], tf.int32)
        if wants_classes(loss) and len(output.shape) > 1
        else tf.TensorSpec(output.shape, keras.config.floatx())
        for output, loss in zip(flat, losses, strict=True)
    ]
    return tf.nest.pack_sequence_as(outputs, specs)


def _wants_classes(loss: Any) -> bool:
    names = (loss, getattr(loss, "__name__", ""), getattr(loss, "name", ""), type(loss).__name__)
    return any("sparse" in name.lower() for name in names if isinstance(name, str))


def _symbolic(specs: Any) -> Any:
    return tf.nest.map_structure(
        lambda spec: keras.KerasTensor(tuple(spec.shape), spec.dtype.name), specs
    )


def _input_names(model: Any, features: Any, batch: Any) -> tuple[str, ...]:
    count = len(tf.nest.flatten(features))
    named = tuple(tensor.name for tensor in getattr(model, "inputs", None) or ())
    names = list(named if len(named) == count else (f"input_{i}" for i in range(count)))
    others = len(tf.nest.flatten(batch)) - count
    return tuple(names + (numbered("target", others) if others else []))
