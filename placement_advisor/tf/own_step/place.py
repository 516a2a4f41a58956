"""The user's own training step, placed: what `placement_advisor.place` does.

The step is found, traced and made flat as `advisor analyze` does it, so that the placement fits op
by op; then its graph gets its devices and becomes a function of the user's own process. Its state
moves to where the placement says; see `variable_devices`.

Runs in the user's process, unlike everything else that imports TensorFlow.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError, PlacementError
from placement_advisor.graph.placement import Placement, placed_ops, read_placement
from placement_advisor.tf.load import example_batches
from placement_advisor.tf.load.function_step import function_step, workload_step
from placement_advisor.tf.load.keras_step import keras_step
from placement_advisor.tf.own_step.placed_function import placed_function
from placement_advisor.tf.own_step.real_devices import is_real, real_devices, short_name
from placement_advisor.tf.own_step.variable_devices import MovedState
from placement_advisor.tf.place import placer
from placement_advisor.tf.trace.tracer import owned_variables, trace_step
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.tf.load.loaded_step import LoadedStep
    from placement_advisor.tf.split.split_step import SplitStep
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.tracer import TracedStep

_PREFIX, _HOST = "/device:", "CPU:0"
# On a train_step of ours.
_MARK = "_placed_by_placement_advisor"
_OTHER_GRAPH_HINT = (
    "give place() the inputs that the analysis had: of the same shapes and types, and the same "
    "first batch where they hold text; or analyse the model again"
)


def live_step(step: Any, inputs: tuple[Any, ...]) -> TracedStep:
    """Load and trace a step as the analysis does, so that a placement fits it op by op.

    Raises:
        ModelError: it cannot be traced, or its inputs do not fit.
    """
    path = Path(getattr(sys.modules["__main__"], "__file__", None) or "<interactive>")
    if isinstance(step, keras.Model):
        _give_back(step)
    return trace_step(path, _loaded(path, step, inputs))


def live_model_step(model: Any, inputs: tuple[Any, ...]) -> TracedStep:
    """Trace a Keras model's step as `live_step` does, and leave the model as it was."""
    with left_as_it_was(model):
        return live_step(model, inputs)


@contextmanager
def left_as_it_was(model: Any) -> Iterator[None]:
    """Give a Keras model back at the end what tracing its step changes.

    A tracer gives a model that was placed its own step again; the user's training goes on.
    """
    train_step = vars(model).get("train_step")
    try:
        yield
    finally:
        if train_step is not None:
            model.train_step = train_step


def placed_step(
    step: Any, placement: Placement | Path, inputs: tuple[Any, ...], devices: Mapping[str, str]
) -> Any:
    """Return the placed `tf.function`; see `placement_advisor.place`.

    Raises:
        AdvisorError: the step cannot be traced, or the placement does not fit it or this process.
    """
    live = live_step(step, inputs)
    placement, names = fitting(placement, live)
    real = real_devices(names, devices_here(), devices)
    specs = dict(zip(live.flat.inputs, tf.nest.flatten(live.loaded.specs), strict=True))
    run = Runner(live, live.flat, specs, placement.renamed(real))
    run.take()
    return taking_over(live, as_users(live, run))


def devices_here() -> list[str]:
    """Return the devices of this process by their short names."""
    return [short_name(device.name) for device in tf.config.list_logical_devices()]


class Runner:
    """Runs a step of this process on its live state, each op on its device.

    Its variables have to be there: `take` moves them, `give_back` puts them where they were.
    """

    def __init__(
        self,
        live: TracedStep,
        step: FlatStep | SplitStep,
        specs: Mapping[str, Any],
        placement: Placement,
    ) -> None:
        """Place a step; ``specs`` has its inputs by name. Nothing moves yet.

        Raises:
            PlacementError: a variable cannot be moved.
        """
        self._step, self._specs = step, specs
        self._placed = placed_graph_def(step, placement)
        graph, model = live.function.graph, live.loaded.model
        owners = {id(variable.handle): variable for variable, _ in owned_variables(graph, model)}
        device_of = {node.name: node.device for node in self._placed.node}
        self._state = MovedState(step.state, device_of, owners)
        self._run: Callable[[Sequence[Any]], list[Any]] | None = None
        self._was_remapping = True

    def take(self) -> None:
        """Have the variables where the placement has them.

        TensorFlow's remapper, which fuses ops wherever they were put, is off until they go back.
        """
        self._state.go()
        self._was_remapping = _set_remapping(is_on=False)
        if self._run is None:
            self._run = placed_function(
                self._placed,
                self._specs,
                self._step.outputs,
                self._step.targets,
                self._state.handles(),
            )

    def give_back(self) -> None:
        """Have the variables where they were."""
        self._state.go_back()
        _set_remapping(is_on=self._was_remapping)

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """Run the step on a list of inputs, and return a list of outputs."""
        assert self._run is not None, "take comes first"
        return self._run(given)


def _set_remapping(*, is_on: bool) -> bool:
    """Turn the remapper on or off; return whether it was on."""
    was_on = tf.config.optimizer.get_experimental_options().get("remapping", True)
    tf.config.optimizer.set_experimental_options({"remapping": is_on})
    return bool(was_on)


def placed_graph_def(step: FlatStep | SplitStep, placement: Placement) -> Any:
    """Return the graph of a step with devices of this process, which the placement names."""
    return placer.on_devices(
        step.graph_def(),
        step.inputs,
        {name: loop.members for name, loop in step.loops.items()},
        {op: _PREFIX + device for op, device in placement.device_of.items()},
        _PREFIX + _HOST,
    )


def check_is_step(step: Any) -> None:
    """Raise a ModelError for what cannot be a step."""
    if not callable(step) and not isinstance(step, Workload):
        raise ModelError(
            f"a {type(step).__name__} is no step",
            hint="give it a function, a tf.function, a Keras model or a Workload",
        )


def _loaded(path: Path, step: Any, inputs: tuple[Any, ...]) -> LoadedStep:
    """Return the step as the analysis would load it."""
    label = str(getattr(step, "__name__", None) or getattr(step, "name", type(step).__name__))
    if isinstance(step, Workload):
        if inputs:
            raise ModelError("a Workload has its inputs", hint="give it alone")
        return workload_step(path, step, "the workload", mode=None, batch_size=None)
    found = None
    if inputs:
        found = example_batches.from_values(path, inputs, "the inputs given to place()", None)
    if isinstance(step, keras.Model):
        # Several tensors in one would be taken for x and y.
        if found is not None and len(inputs) == 1 and not isinstance(inputs[0], tuple):
            found = found.changed(lambda batch: batch[0])
        return keras_step(path, step, label, found, mode=None, batch_size=None)
    check_is_step(step)
    return function_step(path, step, label, found, mode="train", batch_size=None)


def fitting(placement: Placement | Path, live: TracedStep) -> tuple[Placement, tuple[str, ...]]:
    """Return the placement, checked against the step, and its devices in order."""
    graph = live.graph
    if isinstance(placement, Placement):
        names = _numbered(set(placement.device_of.values()))
        unknown = placement.device_of.keys() - {op.name for op in placed_ops(graph)}
        if unknown:
            raise PlacementError(
                f"{placement.label}: made for another graph: this one has no op {min(unknown)!r}",
                hint=f"{_OTHER_GRAPH_HINT}; if only names differ, save the placement with the "
                "graph that it was made for, and give the file: it holds under other names",
            )
    else:
        placement, file = read_placement(placement, graph, live.traced_as())
        names = file.devices
    placement.check(graph, names)
    return placement, names


def _numbered(used: set[str]) -> tuple[str, ...]:
    """Return the devices in order, with those before them that stay idle: 0 is before 1."""
    last: dict[str, int] = {}
    others = []
    for name in sorted(used):
        kind, _, number = name.rpartition(":")
        if kind and number.isdecimal() and not is_real(name):
            last[kind] = max(last.get(kind, 0), int(number))
        else:
            others.append(name)
    return (*others, *(f"{kind}:{i}" for kind in last for i in range(last[kind] + 1)))


def as_users(live: TracedStep, run: Callable[[Sequence[Any]], list[Any]]) -> Any:
    """Return a tf.function that runs a runner, and takes and returns what the user's step does."""
    specs, returned = live.loaded.specs, live.function.structured_outputs
    # A Keras step takes one batch, which may well be a tuple.
    is_one = live.loaded.model is not None

    def placed(*arguments: Any) -> Any:
        flat = _checked(arguments[0] if is_one and len(arguments) == 1 else arguments, specs)
        return packed(returned, run(flat))

    return tf.function(placed, autograph=False)


def packed(returned: Any, computed: Iterable[Any]) -> Any:
    """Return what was computed in the structure that a step returns."""
    tensors = iter(computed)
    leaves = tf.nest.flatten(returned, expand_composites=True)
    results = [None if leaf is None else next(tensors) for leaf in leaves]
    return tf.nest.pack_sequence_as(returned, results, expand_composites=True)


def _checked(batch: Any, specs: Any) -> list[Any]:
    """Return the tensors of a batch, each of the shape that the placement is for."""
    try:
        tf.nest.assert_same_structure(batch, specs)
    except (TypeError, ValueError) as error:
        raise PlacementError(f"the placed step takes other arguments: {error}") from None
    tensors = []
    for value, spec in zip(tf.nest.flatten(batch), tf.nest.flatten(specs), strict=True):
        tensor = tf.convert_to_tensor(value, spec.dtype)
        if not tensor.shape.is_compatible_with(spec.shape):
            raise PlacementError(
                f"the placed step is for inputs of shape {spec.shape}, not {tensor.shape}",
                hint="leave out a last batch that is smaller (drop_remainder=True), or analyse "
                "and place the step at the other shape",
            )
        tensors.append(tf.ensure_shape(tensor, spec.shape))
    return tensors


def taking_over(live: TracedStep, step: Any) -> Any:
    """Return a step of ours; if it trains a Keras model, that uses it from now on."""
    if live.loaded.model is not None and live.loaded.mode == "train":
        take_over(live.loaded.model, step)
    return step


def take_over(model: Any, step: Any) -> None:
    """Let a Keras model's own methods train with a step of ours, and trace all others anew.

    What `fit` compiles with XLA ignores devices inside, so it does not.
    """

    def train_step(data: Any) -> Any:
        return step(data)

    setattr(train_step, _MARK, True)
    model.train_step, model.jit_compile = train_step, False
    model.train_function = model.test_function = model.predict_function = None


def _give_back(model: Any) -> None:
    """Give a model that was placed before its own train_step again."""
    if hasattr(vars(model).get("train_step"), _MARK):
        del model.train_step
