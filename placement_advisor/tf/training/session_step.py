"""Places or splits the step of a program that runs; in a TF1 session, within the user's graph.

A split is verified before it takes the step's place.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.errors import BatchSplitError, ModelError, PlacementError
from placement_advisor.graph.placement import read_placement
from placement_advisor.tf import place, placed_step
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.load.session_step import Fetched, ancestors, leaves
from placement_advisor.tf.placed_step import PlacedStep, Runtime
from placement_advisor.tf.split_step import SplitStep
from placement_advisor.tf.trace import flat_step
from placement_advisor.tf.verifier import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.measurement.verification import Verification
    from placement_advisor.tf.load.capture import SessionRun
    from placement_advisor.tf.trace.bundle import Bundle
    from placement_advisor.tf.trace.tracer import TracedStep
    from placement_advisor.tf.training.trial import SplitPlan


_LOCAL = "/job:localhost/replica:0/task:0/device:"
# An analysis has verified more of them. A mistake that is a step late shows in the second.
_STEPS = 2
# Of a verified step. Judgement: what takes longer is better seen to fail.
_LIMIT_S = 600.0


class LiveSplit:
    """A step with a split of it: ``program`` is what runs, ``placement`` where, by real devices."""

    def __init__(self, live: TracedStep, plan: SplitPlan) -> None:
        """Split a step as a plan says. Nothing runs, and nothing moves.

        Raises:
            AdvisorError: it is not the graph that was analysed, a device is not here, or its batch
                cannot be split.
        """
        self.live = live
        self._here = place.devices_here()
        self.program: flat_step.FlatStep | SplitStep = live.flat
        if plan.samples is None:
            assert plan.placement is not None, "a plan has a placement or shares of the batch"
            self.placement = place.placed_here(plan.placement, live, {})
            return
        assert plan.single is not None, "shares of the batch are those of an analysis"
        read_placement(plan.single, live.graph, live.traced_as())
        self.program, self.placement = place.split_batch(
            live,
            groups=plan.groups(),
            ratios=plan.samples,
            within=plan.placement,
            family=plan.family if plan.placement is None else BATCH,
            real=place.real_devices(plan.devices, self._here, {}),
        )

    def verified(self) -> Verification:
        """Compare the split with the step on one device.

        Raises:
            AdvisorError: it computes something else, would train otherwise, or cannot run.
        """
        live = self.live
        whole = live.flat.bundle(live.batches())
        program = self.program
        bundle = program.bundle() if isinstance(program, SplitStep) else whole
        if bundle.split is not None and bundle.split.takes_statistics:
            raise BatchSplitError(
                "each share of the batch would be normalized by its own statistics, which is "
                "another training"
            )
        first = next(iter(self.placement.device_of.values()))
        alone = dict.fromkeys((op.name for op in live.graph.placed_ops), first)
        try:
            found = self._compared(bundle, whole, alone)
        except (tf.errors.OpError, ValueError) as error:
            raise PlacementError(f"the split cannot run: {run_failure(error).message}") from None
        if found.wrong:
            raise PlacementError(
                f"the split computes something else than your own step: {found.wrong} is off by "
                f"{found.relative_difference:.2g} of its size"
            )
        return found

    def _compared(self, bundle: Bundle, whole: Bundle, alone: Mapping[str, str]) -> Verification:
        runtime = Runtime(
            address="",
            logical_cpus=sum(device.startswith("CPU:") for device in self._here),
            on_gpus=any(device.startswith("GPU:") for device in self._here),
        )

        def put(bundle: Bundle, device_of: Mapping[str, str]) -> PlacedStep:
            devices = {op: _LOCAL + device for op, device in device_of.items()}
            placed = placed_step.placed_graph(bundle, devices, f"{_LOCAL}CPU:0")
            return PlacedStep(bundle, placed, runtime, _LIMIT_S)

        device_of = self.placement.device_of
        verifier = Verifier(put, whole, alone, _STEPS)
        verifier.begin()
        ready = put(bundle, device_of)
        try:
            return verifier.verify("split", bundle, device_of, ready)
        finally:
            ready.close()


T = TypeVar("T")
v1 = tf.compat.v1

_PREFIX = "placed_by_placement_advisor"
_COMPOSITE = tf.SparseTensor | tf.IndexedSlices | tf.RaggedTensor
_TABLES = ("HashTable", "MutableHashTable", "MutableDenseHashTable")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """What was added to the user's graph: the step, and what carries variables.

    ``moved`` are the ops of the variables that it carries.
    """

    outputs: dict[str, Any]
    done: Any
    go: Any
    back: Any
    moved: frozenset[str]


class SessionStep:
    """A verified split of what a session runs, in place of it."""

    def __init__(self, split: LiveSplit, target: SessionRun) -> None:
        """Take the split of what a session runs.

        Raises:
            ModelError: it cannot be put into the user's graph.
        """
        self.split = split
        assert target.variables is not None, "its variables were read"
        self.session, self._fetched, self._run = target.session, target.step, target.run
        self._left_alone: dict[int, tuple[Fetched, bool]] = {}  # With these, by their id.
        self._held = target.variables
        self._shapes = [tuple(spec.shape) for spec in tf.nest.flatten(split.live.loaded.specs)]
        self._placed = place.placed_graph_def(split.program, split.placement)
        table = next((n.name for n in self._placed.node if n.op.startswith(_TABLES)), None)
        if table is not None:
            raise ModelError(f"its step looks up in a table of the session ({table})")
        self._copy = self._added()

    def with_drawn(self, feeds: Any, run: Callable[..., Any]) -> Any:
        """Return what is fed, with what comes out of iterators in place of these."""
        drawn = self._fetched.drawn
        return {**feeds, **dict(zip(drawn, run(list(drawn)), strict=True))} if drawn else feeds

    def inputs(self, given: Any) -> Any | None:
        """Return a run as it was given, None if the split is not for such a batch.

        It is what is fetched and fed, and what runs the session.
        """
        fetches, feeds, _ = given
        fed = {self.session.graph.as_graph_element(key).name: feeds[key] for key in feeds}
        shapes = [np.shape(fed[tensor.name]) for tensor in self._fetched.inputs]
        is_composite = any(isinstance(leaf, _COMPOSITE) for leaf in leaves(fetches))
        return given if shapes == self._shapes and not is_composite else None

    def leaves_alone(self, other: Fetched) -> bool:
        """Whether another run of the session touches no variable that is elsewhere."""
        if id(other) not in self._left_alone:
            wanted = (getattr(each, "op", each) for each in other.wanted)
            touched = {op.name for op in ancestors(wanted, other.inputs)}
            self._left_alone[id(other)] = other, touched.isdisjoint(self._copy.moved)
        return self._left_alone[id(other)][1]

    def take(self) -> None:
        """Have the variables where the placement has them."""
        self._run(self._copy.go)

    def give_back(self) -> None:
        """Have the variables where the program has made them."""
        self._run(self._copy.back)

    def __call__(self, given: Any) -> Any:
        """Return what the session would have returned."""
        fetches, feeds, run = given
        return run(self._fetches(fetches), feeds)

    def _fetches(self, asked: Any) -> Any:
        """Return what is fetched of the copy, in the same structure."""
        if isinstance(asked, dict):
            return type(asked)((key, self._fetches(each)) for key, each in asked.items())
        if isinstance(asked, list | tuple):
            parts = [self._fetches(each) for each in asked]
            return type(asked)(*parts) if hasattr(asked, "_fields") else type(asked)(parts)
        element = self.session.graph.as_graph_element(asked)
        is_tensor = isinstance(element, tf.Tensor)
        return self._copy.outputs[element.name] if is_tensor else self._copy.done

    def _added(self) -> _Copy:
        """Add the step to the user's graph."""
        graph = self.session.graph
        is_finalized = graph.finalized
        if is_finalized:
            graph._unsafe_unfinalize()
        try:
            with (
                graph.as_default(),
                tf.device(None),
                v1.name_scope(None),
                tf.control_dependencies(None),
            ):
                return self._import(graph)
        finally:
            if is_finalized:
                graph.finalize()

    def _import(self, graph: Any) -> _Copy:
        placed, program = self._placed, self.split.program
        flat_step.suffix_functions(placed, f"_{_PREFIX}")
        device = {node.name: node.device for node in placed.node}
        shape = {node.name: node.attr["shape"].shape for node in placed.node}
        given = dict(zip(program.inputs, place.divided(program, self._fetched.inputs), strict=True))
        go, back, moved = [], [], set()
        for name, held in program.state.variables.items():
            own = graph.get_tensor_by_name(self._own_handle(held))
            given[name] = own
            if _is_there(own, device[name]):
                continue
            with tf.device(device[name]):
                twin = tf.raw_ops.VarHandleOp(
                    dtype=held.dtype,
                    shape=tf.TensorShape(shape[name]),
                    shared_name=f"{_PREFIX}/{name}",
                )
            given[name] = twin
            moved.add(own.op.name)
            go.append(_carries(own, twin, held.dtype))
            back.append(_carries(twin, own, held.dtype))
        outputs = [name for name in program.outputs if name.partition(":")[0] not in given]
        trimmed, read = place.without_given(placed, given)
        found = tf.graph_util.import_graph_def(
            trimmed,
            input_map={f"{name}:0": given[name] for name in read},
            return_elements=[*outputs, *program.targets],
            name=_PREFIX,
        )
        computed = dict(zip(outputs, found, strict=False))
        computed |= {f"{name}:0": tensor for name, tensor in given.items()}
        wanted = [each for each in self._fetched.wanted if isinstance(each, tf.Tensor)]
        return _Copy(
            outputs={
                asked.name: computed[name]
                for asked, name in zip(wanted, program.outputs, strict=False)
            },
            done=tf.group(*found[len(outputs) :]),
            go=tf.group(*go),
            back=tf.group(*back),
            moved=frozenset(moved),
        )

    def _own_handle(self, held: Any) -> str:
        """Return the name of the user's handle of a variable of the traced step."""
        variables = self.split.live.function.graph.variables
        name = next(each.name for each in variables if each.handle is held.handle)
        return next(each.handle for each in self._held if each.name == name.partition(":")[0])


def in_tf2(call: Callable[[], T]) -> T:
    """Return what a call returns in TensorFlow 2, wherever it is called.

    Eager execution cannot be switched on in a thread whose graph is in use.
    """

    def run() -> T:
        is_eager, is_tf2 = tf.executing_eagerly(), tf.__internal__.tf2.enabled()
        if not is_eager:
            v1.enable_v2_behavior()
        try:
            return call()
        finally:
            if not is_tf2:
                v1.disable_v2_behavior()
            elif not is_eager:
                v1.disable_eager_execution()

    with ThreadPoolExecutor(1) as outside:
        return outside.submit(run).result()


def _carries(source: Any, target: Any, dtype: Any) -> Any:
    with tf.device(source.device):
        value = tf.raw_ops.ReadVariableOp(resource=source, dtype=dtype)
    with tf.device(target.device):
        return tf.raw_ops.AssignVariableOp(resource=target, value=value)


def _is_there(handle: Any, device: str) -> bool:
    """Whether a variable of the user's graph is where the placement has it.

    One without a device stands on the first GPU, if there is any.
    """
    if not handle.device:
        return place.short_name(device) == "CPU:0" and not tf.config.list_physical_devices("GPU")
    return place.short_name(handle.device) == place.short_name(device)
