"""Places the user's own training step, or shares out its batch, in the user's process.

This is the work of `placement_advisor.place` and `make_parallel`: the step's state moves to
the placement's devices, and back where it was.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph, ops

from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import VARIABLES, placed_on_devices
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.errors import BatchSplitError, ModelError, PlacementError
from placement_advisor.graph.placement import Placement, read_placement
from placement_advisor.tf import placed_step
from placement_advisor.tf.load import example_batches, loaded_step
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.split_step import SplitStep, split_step
from placement_advisor.tf.trace import flat_step
from placement_advisor.tf.trace.tracer import TracedStep, owned_variables, trace_step
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.tf.trace.bundle import Table

    Groups = Sequence[Sequence[str]]


_ITSELF = re.compile(r"(GPU|CPU):\d+")
_KINDS = ("GPU", "CPU")


def real_devices(
    names: Sequence[str], here: Sequence[str], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Return the device of this process, like ``GPU:0``, for each of a placement's devices.

    ``names`` are the placement's devices in order, ``here`` this process's, ``chosen`` what the
    user said for some of them.

    Raises:
        PlacementError: a device is not here, or there are too few.
    """
    for name, device in chosen.items():
        if name not in names:
            raise PlacementError(
                f"devices: the placement has no {name!r}; it has {', '.join(names)}"
            )
        _check_here(short_name(device), here, f"devices: {name!r} is to be {device!r}")
    found = {name: short_name(device) for name, device in chosen.items()}
    for name in names:
        if name not in found and is_real(name):
            _check_here(name, here, f"the placement uses {name!r}")
            found[name] = name
    others = [name for name in names if name not in found]
    for kind in _KINDS:
        free = [d for d in here if d.startswith(f"{kind}:") and d not in found.values()]
        if len(free) >= len(others):
            return found | dict(zip(others, free, strict=False))
    taken = sum(device.startswith("CPU:") for device in found.values())
    raise PlacementError(
        f"the placement's {', '.join(others)} need {len(others)} GPUs or CPUs; "
        f"this process has {', '.join(here)}",
        hint=f"say which to use with devices={{...}}, or {_more_cpus(taken + len(others))}",
    )


def is_real(name: str) -> bool:
    """Whether a placement's device stands for itself."""
    return _ITSELF.fullmatch(name) is not None


def short_name(device: str) -> str:
    """Return ``GPU:1`` for ``/GPU:1``, ``/device:GPU:1`` and TensorFlow's full names."""
    return re.sub(r".*/(device:)?", "", device).upper()


def _check_here(device: str, here: Sequence[str], what: str) -> None:
    if device not in here:
        hint = "say which of them to use with devices={...}"
        if device.startswith("CPU:") and is_real(device):
            hint += f", or {_more_cpus(int(device.removeprefix('CPU:')) + 1)}"
        raise PlacementError(f"{what}; this process has {', '.join(here)}", hint=hint)


def _more_cpus(count: int) -> str:
    """Return what to do to have so many logical CPUs: what TensorFlow takes in no other order."""
    return (
        f"cut this process's CPU into {count}, before anything else uses TensorFlow: "
        'tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], '
        f"[tf.config.LogicalDeviceConfiguration()] * {count})"
    )


def _carried(variable: Any, handle: Any | None, device: str) -> Any:
    """Have a variable hold its value by another handle, made on the device if there is none.

    Whenever it is interrupted, the variable has its value.
    """
    left, dtype = variable.handle, variable.dtype
    if left is handle:
        return handle
    with tf.device(device):
        value = tf.identity(tf.raw_ops.ReadVariableOp(resource=left, dtype=dtype))
        if handle is None:
            handle = tf.Variable(value, shape=variable.shape, dtype=dtype).handle
        else:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        # The one attribute that says where a variable lives; there is no public way to set it.
        variable._handle = handle
    if dtype != tf.variant:
        with tf.device(left.device):
            tf.raw_ops.AssignVariableOp(resource=left, value=tf.constant([], dtype))
    return handle


def _copied(table: Table, device: str) -> Any:
    keys, values = table.content()
    with tf.device(device):
        handle = tf.raw_ops.AnonymousHashTable(
            key_dtype=table.key_dtype, value_dtype=table.value_dtype
        )
        tf.raw_ops.LookupTableImportV2(
            table_handle=handle,
            keys=tf.constant(keys, table.key_dtype),
            values=tf.constant(values, table.value_dtype),
        )
    return handle


def _is_on(handle: Any, device: str) -> bool:
    return short_name(handle.device) == short_name(device)


def without_given(placed: Any, given: Collection[str]) -> tuple[Any, set[str]]:
    """Return a placed GraphDef without the ops that are given, and which of these it reads."""
    trimmed = tf.compat.v1.GraphDef(versions=placed.versions, library=placed.library)
    # A called function waits for its arguments; what is given is there.
    needless = {f"^{name}" for name in given}
    read = set()
    for node in placed.node:
        if node.name in given:
            continue
        kept = trimmed.node.add()
        kept.CopyFrom(node)
        if not needless.isdisjoint(node.input):
            kept.input[:] = [reference for reference in node.input if reference not in needless]
        read |= {_op(reference) for reference in kept.input}.intersection(given)
    return trimmed, read


def _op(tensor: str) -> str:
    return tensor.partition(":")[0]


_PREFIX, _HOST = "/device:", "CPU:0"
# On a train_step of ours.
_MARK = "_placed_by_placement_advisor"
_OTHER_GRAPH_HINT = (
    "give place() inputs of the same shapes and types as the analysis had. If they hold text, "
    "give the same first batch; or analyse the model again"
)


def live_step(step: Any, inputs: tuple[Any, ...]) -> TracedStep:
    """Load and trace a step as the analysis does, so that a placement fits it op by op.

    Raises:
        ModelError: it cannot be traced, or its inputs do not fit.
    """
    path = Path(getattr(sys.modules["__main__"], "__file__", None) or "<interactive>")
    with _own_train_step(step):
        return trace_step(path, _loaded(path, step, inputs))


@contextmanager
def _own_train_step(step: Any) -> Iterator[None]:
    """Give a Keras model that was placed its own train_step meanwhile; its training goes on."""
    placed = vars(step).get("train_step") if isinstance(step, keras.Model) else None
    if not hasattr(placed, _MARK):
        yield
        return
    del step.train_step
    try:
        yield
    finally:
        step.train_step = placed


def place_user_step(
    step: Any, placement: Placement | Path, inputs: tuple[Any, ...], devices: Mapping[str, str]
) -> Any:
    """Return the placed `tf.function`; see `placement_advisor.place`.

    Raises:
        AdvisorError: the step cannot be traced, or the placement does not fit it or this process.
    """
    live = live_step(step, inputs)
    run = Runner(live, live.flat, placed_here(placement, live, devices))
    run.take()
    return taking_over(live, as_users(live, run))


def placed_here(
    placement: Placement | Path, live: TracedStep, devices: Mapping[str, str]
) -> Placement:
    """Return a placement of a step by the devices of this process; ``devices`` chooses some.

    Raises:
        AdvisorError: it does not fit the step, or a device is not here.
    """
    placement, names = fitting(placement, live)
    return placement.renamed(real_devices(names, devices_here(), devices))


def divided(step: flat_step.FlatStep | SplitStep, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs of a step, which may be split, made of those of the user's own."""
    return step.divided(inputs) if isinstance(step, SplitStep) else inputs


def devices_here() -> list[str]:
    """Return the devices of this process by their short names."""
    return [short_name(device.name) for device in tf.config.list_logical_devices()]


@dataclass(slots=True)
class _Moving:
    """A variable with both of its handles; that of the device is made when it first goes there."""

    variable: Any
    device: str
    own: Any
    there: Any | None = None


class Runner:
    """Runs a step of this process on its live state, each op on its device.

    Its variables have to be there: `take` moves them, `give_back` puts them where they were.
    """

    def __init__(
        self, live: TracedStep, step: flat_step.FlatStep | SplitStep, placement: Placement
    ) -> None:
        """Place a step. Nothing moves yet; what is there already stays as it is.

        Raises:
            PlacementError: a variable cannot be moved.
        """
        self._step = step
        self._placed = placed_graph_def(step, placement)
        self._device_of = {node.name: node.device for node in self._placed.node}
        self._specs: Mapping[str, Any] = (
            step.specs
            if isinstance(step, SplitStep)
            else dict(zip(step.inputs, tf.nest.flatten(live.loaded.specs), strict=True))
        )
        graph, model = live.function.graph, live.loaded.model
        owners = {id(variable.handle): variable for variable, _ in owned_variables(graph, model)}
        self._moving: dict[str, _Moving] = {}
        for name, held in step.state.variables.items():
            device = self._device_of[name]
            if _is_on(held.handle, device):
                continue
            if id(held.handle) not in owners:
                raise PlacementError(
                    f"variable {name!r} is on {short_name(held.handle.device)} and cannot move "
                    f"to {short_name(device)}: nothing says which object owns it",
                    hint=f"create it under tf.device({device!r})",
                )
            self._moving[name] = _Moving(owners[id(held.handle)], device, held.handle)
        self._run: Callable[[Sequence[Any]], list[Any]] | None = None
        self._was_remapping = True

    def take(self) -> None:
        """Have the variables where the placement has them.

        TensorFlow's remapper, which fuses ops wherever they were put, is off until they go back.
        """
        for each in self._moving.values():
            each.there = _carried(each.variable, each.there, each.device)
        self._was_remapping = _set_remapping(is_on=False)
        if self._run is None:
            self._run = self._function(self._handles())

    def give_back(self) -> None:
        """Have the variables where they were."""
        for each in self._moving.values():
            _carried(each.variable, each.own, each.own.device)
        _set_remapping(is_on=self._was_remapping)

    def _handles(self) -> dict[str, Any]:
        """Return the handles of variables, which have gone there, and of tables, by name."""
        state = self._step.state
        handles = {name: held.handle for name, held in state.variables.items()}
        handles |= {name: each.there for name, each in self._moving.items()}
        for name, table in state.tables.items():
            where = self._device_of[name]
            is_there = _is_on(table.handle, where)
            handles[name] = table.handle if is_there else _copied(table, where)
        return handles

    def _function(self, handles: Mapping[str, Any]) -> Callable[[Sequence[Any]], list[Any]]:
        """Return what runs the placed graph on a list of inputs, and returns a list of outputs."""
        # Under their old names TensorFlow has the bodies of loops and conditionals as traced.
        flat_step.suffix_functions(self._placed, f"_placed_{ops.uid()}")
        for function in self._placed.library.function:
            context.context().add_function_def(function)
        trimmed, read = without_given(self._placed, {*self._specs, *handles})
        outputs = self._step.outputs
        effects: dict[str, list[str]] = {}
        for target in self._step.targets:
            effects.setdefault(self._device_of[target], []).append(target)

        def body(*given: Any) -> list[Any]:
            graph = ops.get_default_graph()
            feeds = dict(zip(self._specs, given, strict=True))
            feeds |= {name: graph.capture(handle) for name, handle in handles.items()}
            tensors = tf.graph_util.import_graph_def(
                trimmed,
                input_map={f"{name}:0": tensor for name, tensor in feeds.items() if name in read},
                return_elements=[name for name in outputs if _op(name) not in feeds],
                name="",
            )
            computed = iter(tensors)
            for where, names in effects.items():
                done = [graph.get_operation_by_name(name) for name in names]
                with tf.device(where), tf.control_dependencies(done):
                    graph.control_outputs.append(tf.no_op())
            return [feeds[_op(n)] if _op(n) in feeds else next(computed) for n in outputs]

        graph = func_graph.func_graph_from_py_func(
            "placed_step",
            body,
            args=(),
            kwargs={},
            signature=tuple(self._specs.values()),
            add_control_dependencies=False,
        )
        function = concrete_function.ConcreteFunction.from_func_graph(graph, None, attrs={})
        return lambda given: function._call_flat(list(given), function.captured_inputs)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the step on the inputs of the user's own, and return a list of outputs."""
        assert self._run is not None, "take comes first"
        return self._run(divided(self._step, inputs))


def _set_remapping(*, is_on: bool) -> bool:
    """Turn the remapper on or off; return whether it was on."""
    was_on = tf.config.optimizer.get_experimental_options().get("remapping", True)
    tf.config.optimizer.set_experimental_options({"remapping": is_on})
    return bool(was_on)


def placed_graph_def(step: flat_step.FlatStep | SplitStep, placement: Placement) -> Any:
    """Return the graph of a step with devices of this process, which the placement names."""
    return placed_step.on_devices(
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


def label_of(step: Any) -> str:
    """Return what a model or step calls itself, its type's name if it has none."""
    return str(getattr(step, "__name__", None) or getattr(step, "name", type(step).__name__))


def _loaded(path: Path, step: Any, inputs: tuple[Any, ...]) -> loaded_step.LoadedStep:
    """Return the step as the analysis would load it."""
    source, label = ModelSource(path=str(path)), label_of(step)
    if isinstance(step, Workload):
        if inputs:
            raise ModelError("a Workload has its inputs", hint="give it alone")
        return loaded_step.workload_step(source, step, "the workload")
    found = None
    if inputs:
        found = example_batches.from_values(source, inputs, "the inputs given to place()")
    if isinstance(step, keras.Model):
        # Several tensors in one would be taken for x and y.
        if found is not None and len(inputs) == 1 and not isinstance(inputs[0], tuple):
            found = found.changed(lambda batch: batch[0])
        return loaded_step.keras_step(source, step, label, found)
    check_is_step(step)
    return loaded_step.function_step(source, step, label, found, "train")


def fitting(placement: Placement | Path, live: TracedStep) -> tuple[Placement, tuple[str, ...]]:
    """Return the placement, checked against the step, and its devices in order."""
    graph = live.graph
    if isinstance(placement, Placement):
        names = _numbered(set(placement.device_of.values()))
        unknown = placement.device_of.keys() - {op.name for op in graph.placed_ops}
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


_LABEL = "make_parallel"
_HOST_DEVICE = "CPU:0"


def parallel_step(
    step: Any,
    inputs: tuple[Any, ...],
    groups: Groups,
    ratios: Sequence[float],
    within: Placement | Path | None,
    variables: str,
) -> Any:
    """Return the step of replicas; see `placement_advisor.make_parallel`.

    Raises:
        AdvisorError: the step cannot be traced, or its batch not be split, or the placement within
            groups does not fit. Without inputs, the first call raises what is wrong with the step.
    """
    check_is_step(step)
    _check_groups(groups, ratios, within)
    family = _family(variables, within)
    real = real_devices([device for group in groups for device in group], devices_here(), {})
    split = partial(_split, groups=groups, ratios=ratios, within=within, family=family, real=real)
    if not inputs and not isinstance(step, Workload):
        return _when_called(step, split)
    live = live_step(step, inputs)
    return taking_over(live, split(live))


def _when_called(step: Any, split: Callable[[TracedStep], Any]) -> Any:
    """Return a function that splits the step at what it is first called with, and calls that."""
    is_model = isinstance(step, keras.Model)
    made: list[Any] = []

    def made_for(inputs: tuple[Any, ...]) -> Any:
        return split(live_step(step, inputs))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def called(*given: Any) -> Any:
        if is_model and len(given) == 1 and isinstance(given[0], tuple):
            given = given[0]
        if not made:
            # Where `fit` traces its own graph; `tf.init_scope` would stop gradient tapes as well.
            with ThreadPoolExecutor(1) as outside:
                made.append(outside.submit(made_for, _known(given)).result())
        return made[0](*given)

    if is_model and step.compiled:
        take_over(step, called)
    return called


def _known(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call as inputs: values, or specs where a graph is being traced.

    Raises:
        BatchSplitError: not all sizes are known.
    """
    tensors: tuple[Any, ...] = tf.nest.map_structure(tf.convert_to_tensor, given)
    flat = tf.nest.flatten(tensors)
    if not any(map(tf.is_symbolic_tensor, flat)):
        return tensors
    open_shape = next((t.shape for t in flat if not t.shape.is_fully_defined()), None)
    if open_shape is not None:
        raise BatchSplitError(
            f"{_LABEL}: the first call has a tensor of shape {open_shape}, whose size is not known",
            hint="let all batches have one size (drop_remainder=True), or give inputs=..., and "
            "batches of their size",
        )
    specs: tuple[Any, ...] = tf.nest.map_structure(example_batches.spec_of, tensors)
    return specs


def _split(live: TracedStep, **how: Any) -> Any:
    """Return the `tf.function` of replicas, a share of the batch for each group of devices.

    Raises:
        AdvisorError: the batch cannot be split, or the placement does not fit.
    """
    split, placement = split_batch(live, **how)
    run = Runner(live, split, placement)
    run.take()
    return as_users(live, run)


def split_batch(
    live: TracedStep,
    *,
    groups: Groups,
    ratios: Sequence[float],
    within: Placement | Path | None,
    family: str,
    real: Mapping[str, str],
) -> tuple[SplitStep, Placement]:
    """Return a step with a share of the batch for each group of devices, and where its ops go.

    ``real`` has the device of this process for each that was named.

    Raises:
        AdvisorError: the batch cannot be split, or the placement does not fit.
    """
    try:
        if live.loaded.batch_size is None:
            raise BatchSplitError("its inputs hold no batch")
        split = split_step(live, shares_of(live.loaded.batch_size, ratios))
    except BatchSplitError as error:
        message = f"{_LABEL}: {live.loaded.name}: {error.message}"
        raise BatchSplitError(message, hint=error.hint) from None
    graph = split.graphs[BATCH]
    if within is None:
        devices = [real[device] for (device,) in groups]
        placed = placed_on_devices(family, graph, devices, _HOST_DEVICE, "")
        assert not isinstance(placed, NotApplicable)
        return split, replace(placed, label=_LABEL)
    layout, names = fitting(within, live)
    _check_layout(groups, names)
    layouts = [dict(zip(names, (real[d] for d in group), strict=True)) for group in groups]
    return split, graph.laid_out(layout, layouts, label=_LABEL, rationale="")


def _family(variables: str, within: Placement | Path | None) -> str:
    family = next((name for name, place in VARIABLES.items() if place == variables), None)
    if family is None:
        known = ", ".join(map(repr, VARIABLES.values()))
        raise PlacementError(f"{_LABEL}: variables={variables!r}: there are {known}")
    if within is not None and family != BATCH:
        raise PlacementError(
            f"{_LABEL}: variables={variables!r} cannot be used with a placement, which says where "
            "each variable is",
            hint="leave one of them out",
        )
    return family


def _check_groups(groups: Groups, ratios: Sequence[float], within: Placement | Path | None) -> None:
    if len(groups) < 2:  # noqa: PLR2004 - what a split is
        raise PlacementError(f"{_LABEL} needs two devices or more")
    devices = [device for group in groups for device in group]
    twice = next((name for i, name in enumerate(devices) if name in devices[:i]), None)
    if twice is not None:
        raise PlacementError(f"{_LABEL}: {twice} is given twice")
    if len(ratios) != len(groups):
        raise PlacementError(f"{_LABEL}: {len(ratios)} ratios for {len(groups)} devices")
    wide = next((group for group in groups if len(group) != 1), None)
    if within is None and wide is not None:
        raise PlacementError(
            f"{_LABEL}: {', '.join(wide)}: a share for several devices needs a placement",
            hint="placement=... says what of the step goes where among them",
        )


def _check_layout(groups: Groups, names: Sequence[str]) -> None:
    wrong = next((group for group in groups if len(group) != len(names)), None)
    if wrong is not None:
        raise PlacementError(
            f"{_LABEL}: {', '.join(wrong)}: the placement is for {', '.join(names)}",
            hint="give as many devices for each share as the placement has",
        )
