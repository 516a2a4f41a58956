"""A training whose step is placed while it runs: what `advisor run` does.

The program runs as it is until its step is called again, as it does for an analysis (`Capture`).
There the step is traced, its graph compared with the one that was analysed, and the placed step
verified on copies of all variables, as candidates of an analysis are. From its next call on it runs
placed, on the user's own batches and variables.

Variables are where the program has made them, or where the placement has them, and go from one to
the other and back in a trial, in which both steps take turns. Functions that were traced with one
place fail with the other. So while variables are at the placement's devices, each `tf.function`
that is called runs as a copy of itself, which is traced there.

Left out: functions that the program has made concrete by itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError, PlacementError
from placement_advisor.graph.placement import placed_ops, read_placement
from placement_advisor.measurement.anytime_interval import median_interval
from placement_advisor.measurement.verdict import paired_ratios
from placement_advisor.measurement.verification import VERIFIED_STEPS
from placement_advisor.tf.failures import run_failure
from placement_advisor.tf.load.capture import Capture, SessionRun, taken, with_batches
from placement_advisor.tf.load.captured_step import captured
from placement_advisor.tf.load.eager_ops import Loop
from placement_advisor.tf.own_step.parallel import split_batch
from placement_advisor.tf.own_step.place import Runner, devices_here, fitting
from placement_advisor.tf.own_step.real_devices import real_devices
from placement_advisor.tf.place import placer
from placement_advisor.tf.place.placed_step import PlacedStep, Runtime
from placement_advisor.tf.trace.tracer import trace_step
from placement_advisor.tf.verify.verifier import Verifier
from placement_advisor.units import NS_PER_S, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.measurement.measurement import Interval
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.tf.load.capture import Step
    from placement_advisor.tf.load.model_source import ModelSource
    from placement_advisor.tf.own_step.split_plan import SplitPlan
    from placement_advisor.tf.split.split_step import SplitStep
    from placement_advisor.tf.trace.flat_step import FlatStep
    from placement_advisor.tf.trace.tracer import TracedStep

_LOCAL = "/job:localhost/replica:0/task:0/device:"
# In so many turns each: as few as have an interval, and two more.
_TURNS = 10
_STEP_LIMIT_S = 600.0
_COPY = "_copy_at_the_placement"


def cut_cpu(count: int) -> None:
    """Cut this process's CPU into so many devices; TensorFlow takes it before anything else."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)


class PlacedRun(Capture):
    """A program whose step is placed once it is seen."""

    def __init__(
        self,
        is_users: Callable[[str], bool],
        source: ModelSource,
        plan: SplitPlan,
        *,
        trial_steps: int,
        say: Callable[[str], None],
    ) -> None:
        """Wait for the step of a plan; ``trial_steps`` are timed each way, none without a trial."""
        super().__init__(is_users, lambda _: None, plan.step)
        self._source, self._plan, self._say = source, plan, say
        self._trial_steps = trial_steps
        self._key: Any = None
        self._split: _Split | None = None
        self._trial: Trial | None = None
        self._is_there = False
        self.bill = Bill(label=plan.label)

    def _hook_steps(self, put: Callable[[Any, str, Any], None]) -> None:
        super()._hook_steps(put)
        epochs = keras.callbacks.CallbackList
        put(epochs, "on_epoch_end", self._epoch_hook(epochs.on_epoch_end))

    def _epoch_hook(self, original: Any) -> Any:
        def on_epoch_end(callbacks: Any, *args: Any, **kwargs: Any) -> None:
            original(callbacks, *args, **kwargs)
            if self.bill.placed_steps and self._trial is None:
                self._say(self.bill.told())

        return on_epoch_end

    def _stand_still(self) -> None:
        """Make the step ready that runs in place of the script's own, from the next call on."""
        self._within.step = True  # What tracing and verifying call is none of the program's.
        try:
            step = self.chosen()
            assert step is not None
            self._key = next(key for key, each in self.steps.items() if each is step)
            began_s = time.monotonic()
            self._split = _Split(self._traced(step), self._plan)
            found = self._split.verified()
            self.bill.where = _where(step)
            self._say(
                f"{self._plan.label}: {_where(step)}: {_verified_in_words(found)}; ready after "
                f"{time.monotonic() - began_s:.1f} s"
            )
            if self._trial_steps:
                self._trial = Trial(self._trial_steps)
        except AdvisorError as error:
            self._split = None
            self.bill.why_not = error.message
            self._say(f"trains as it is: {error.message}")
            if error.hint:
                self._say(f"hint: {error.hint}")
            self.unhook()
        finally:
            self._within.step = False

    def _traced(self, step: Step) -> TracedStep:
        if isinstance(step.target, SessionRun):
            raise ModelError("a step of a TF1 session is not placed while it runs")
        if isinstance(step.target, Loop):
            raise ModelError(
                "its step runs op by op, so there is nothing to put in its place",
                hint="make a tf.function of the step",
            )
        loaded = captured(self, self._source)
        if loaded.name != step.name:
            raise ModelError(f"its step is several calls ({loaded.name})")
        return trace_step(Path(self._source.path), loaded)

    def _keras_call(self, key: object, model: Any, step: str, inner: Any, given: Any) -> Any:
        if self._split is None:
            return super()._keras_call(key, model, step, inner, given)
        if key is not self._key or self._is_elsewhere():
            return inner(given)
        batches = taken(given, model.steps_per_execution)
        return self._called(batches, lambda: inner(iter(batches)))

    def _function_call(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if self._split is None:
            return super()._function_call(original, function, args, kwargs)
        if id(function) != self._key or self._is_elsewhere() or not tf.executing_eagerly():
            return original(self._version(function), *args, **kwargs)
        given, changed = with_batches((args, kwargs))
        own_args, own_kwargs = changed or (args, kwargs)
        return self._called(
            [given], lambda: original(self._version(function), *own_args, **own_kwargs)
        )

    def _version(self, function: Any) -> Any:
        """Return a function as it can be called where variables are."""
        if not self._is_there:
            return function
        copy = getattr(function, _COPY, None)
        if copy is None:
            copy = function._clone(None)
            setattr(function, _COPY, copy)
        return copy

    def _called(self, batches: Sequence[Any], own: Callable[[], Any]) -> Any:
        """Return what one call of the step returns, wherever it runs."""
        assert self._split is not None
        given = [self._split.tensors(batch) for batch in batches]
        if any(each is None for each in given):
            self.bill.other_steps += len(batches)
            return self._timed(own)[0]
        is_placed = self._trial is None or self._trial.is_placed
        if is_placed != self._is_there:
            self._move(is_there=is_placed)
        if not is_placed:
            self.bill.own_steps += len(batches)
            returned, seconds = self._timed(own)
        else:
            self.bill.placed_steps += len(batches)
            returned, seconds = self._timed(lambda: [self._split(each) for each in given][-1])
        if self._trial is not None:
            self._trial.took(seconds / len(batches))
            if self._trial.is_over:
                self._decide(self._trial)
        return returned

    def _timed(self, run: Callable[[], Any]) -> tuple[Any, float]:
        """Return what a step returns, and in a trial how long it took to its end."""
        self._within.step = True
        began_s = time.perf_counter()
        try:
            returned = run()
            if self._trial is not None:
                tf.test.experimental.sync_devices()
        finally:
            self._within.step = False
        return returned, time.perf_counter() - began_s

    def _move(self, *, is_there: bool) -> None:
        assert self._split is not None
        self._within.step = True
        try:
            if is_there:
                self._split.runner.take()
            else:
                self._split.runner.give_back()
        finally:
            self._within.step = False
        self._is_there = is_there

    def _decide(self, trial: Trial) -> None:
        """Go on with the faster one."""
        self._trial, self.bill.trial = None, trial
        self._say(self.bill.decision())
        if not trial.is_placed_faster:
            self._move(is_there=False)
            self._split = None
            self.unhook()


class _Split:
    """A split of the program's step, ready to run on its state."""

    def __init__(self, live: TracedStep, plan: SplitPlan) -> None:
        """Place a step as a plan says. Nothing moves yet.

        Raises:
            AdvisorError: it is not the graph that was analysed, a device is not here, or its batch
                cannot be split so that it stays the same training.
        """
        self._live = live
        here = devices_here()
        if plan.samples is None:
            assert plan.placement is not None
            placement, names = fitting(plan.placement, live)
            self._placement = placement.renamed(real_devices(names, here, {}))
            self._program: FlatStep | SplitStep = live.flat
            self._divided: Callable[[Sequence[Any]], Sequence[Any]] = lambda given: given
            specs = dict(zip(live.flat.inputs, tf.nest.flatten(live.loaded.specs), strict=True))
        else:
            assert plan.single is not None
            read_placement(plan.single, live.graph, live.traced_as())
            real = real_devices(plan.devices, here, {})
            split, self._placement = split_batch(
                live,
                groups=plan.groups(),
                ratios=plan.samples,
                within=plan.placement,
                family=plan.family if plan.placement is None else BATCH,
                real=real,
            )
            self._program, self._divided, specs = split, split.divided, split.specs
        self.runner = Runner(live, self._program, specs, self._placement)
        self._batch = live.loaded.step.batch
        self._returned = live.function.structured_outputs

    def verified(self) -> Verification:
        """Compare the placed step with the step on one device, on copies of all variables.

        Raises:
            PlacementError: it computes something else, or cannot run.
        """
        live = self._live
        devices = devices_here()
        runtime = Runtime(
            address="",
            logical_cpus=sum(device.startswith("CPU:") for device in devices),
            on_gpus=any(device.startswith("GPU:") for device in devices),
        )

        def place(bundle: Any, device_of: Any) -> PlacedStep:
            placed = {op: _LOCAL + device for op, device in device_of.items()}
            graph = placer.placed_graph(bundle, placed, f"{_LOCAL}CPU:0")
            return PlacedStep(bundle, graph, runtime, _STEP_LIMIT_S)

        whole = live.flat.bundle(live.batches())
        bundle = whole if self._program is live.flat else self._program.bundle()
        if bundle.split is not None and bundle.split.takes_statistics:
            raise BatchSplitError(
                "each share of the batch would be normalized by its own statistics, which is "
                "another training"
            )
        first = next(iter(self._placement.device_of.values()))
        alone = dict.fromkeys((op.name for op in placed_ops(live.graph)), first)
        device_of = self._placement.device_of
        try:
            verifier = Verifier(place, whole, alone)
            verifier.begin(VERIFIED_STEPS)
            ready = place(bundle, device_of)
            try:
                found = verifier.verify("split", bundle, device_of, ready, VERIFIED_STEPS)
            finally:
                ready.close()
        except (tf.errors.OpError, ValueError) as error:
            raise PlacementError(f"its step cannot run so: {run_failure(error).message}") from None
        if found.wrong:
            raise PlacementError(
                f"its step computes something else than your own: {found.wrong} is off by "
                f"{found.relative_difference:.2g} of its change"
            )
        return found

    def tensors(self, given: Any) -> list[Any] | None:
        """Return the tensors of a batch, None if they are none that the step was placed for."""
        return self._batch.alike(given)

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Return what the program's own step returns."""
        computed = iter(self.runner(self._divided(tensors)))
        leaves = tf.nest.flatten(self._returned, expand_composites=True)
        results = [None if leaf is None else next(computed) for leaf in leaves]
        return tf.nest.pack_sequence_as(self._returned, results, expand_composites=True)


class Trial:
    """The script's own step and the placed one by turns, in pairs whose order changes.

    A turn begins with a step that is not counted.
    """

    def __init__(self, steps: int) -> None:
        """Have so many steps counted each way, at least one a turn."""
        self._steps = max(1, round(steps / _TURNS))
        self._turns = max(1, round(steps / self._steps))
        self.own: list[list[int]] = []
        self.placed: list[list[int]] = []
        self._turn: list[int] | None = None

    @property
    def is_placed(self) -> bool:
        """Whether the turn is the placed step's."""
        done = len(self.own) + len(self.placed)
        return done % 4 in (1, 2)  # Own, placed, placed, own.

    @property
    def is_over(self) -> bool:
        """Whether all turns are done."""
        return len(self.own) == len(self.placed) == self._turns

    def took(self, seconds: float) -> None:
        """Take down a step of the turn."""
        if self._turn is None:
            self._turn = []
            return
        self._turn.append(round(seconds * NS_PER_S))
        if len(self._turn) == self._steps:
            (self.placed if self.is_placed else self.own).append(self._turn)
            self._turn = None

    @property
    def own_ns(self) -> float:
        """What a step of the script's own takes."""
        return median(ns for turn in self.own for ns in turn)

    @property
    def placed_ns(self) -> float:
        """What a placed step takes."""
        return median(ns for turn in self.placed for ns in turn)

    @property
    def ratios(self) -> list[float]:
        """The placed step's time over that of the script's own, by turns."""
        return paired_ratios(self.own, self.placed)

    @property
    def interval(self) -> Interval | None:
        """The median of these with its interval, None after few turns."""
        return median_interval(self.ratios)

    @property
    def is_placed_faster(self) -> bool:
        """Whether the placed step is the faster one."""
        return median(self.ratios) < 1


@dataclass(slots=True, kw_only=True)
class Bill:
    """What a training was run with, and what that has brought."""

    label: str
    where: str = ""
    why_not: str | None = None
    trial: Trial | None = None
    placed_steps: int = 0
    own_steps: int = 0
    other_steps: int = 0

    def decision(self) -> str:
        """Say which step goes on, and why."""
        trial = self.trial
        assert trial is not None
        goes_on = self.label if trial.is_placed_faster else "your own step"
        return f"{goes_on} goes on: {self._compared(trial)}"

    def _compared(self, trial: Trial) -> str:
        found = trial.interval
        interval = "" if found is None else f", {found.low:.2f}-{found.high:.2f}"
        return (
            f"{format_ns(trial.placed_ns)} a step with {self.label}, "
            f"{format_ns(trial.own_ns)} with your own ({median(trial.ratios):.2f} of it"
            f"{interval}; {sum(map(len, trial.own))} steps each, in turns, on your data)"
        )

    def as_json(self) -> dict[str, Any]:
        """Return what an analysis keeps of it: the last training that was run with it."""
        trial = self.trial
        interval = None if trial is None else trial.interval
        return {
            "candidate": self.label,
            "why_not": self.why_not,
            "placed_steps": self.placed_steps,
            "own_steps": self.own_steps + self.other_steps,
            "trial": None
            if trial is None
            else {
                "placed_step_ns": round(trial.placed_ns),
                "own_step_ns": round(trial.own_ns),
                "ratio": median(trial.ratios),
                "ci95": None if interval is None else [interval.low, interval.high],
                "goes_on": self.label if trial.is_placed_faster else "own",
            },
        }

    def told(self) -> str:
        """Say all of it in a line."""
        if self.why_not is not None:
            return f"trained as it is: {self.why_not}"
        if not self.placed_steps:
            return "trained as it is: it ended before its step was seen again"
        said = f"{self.placed_steps:,} steps with {self.label}, {self.own_steps:,} with your own"
        if self.other_steps:
            said += f", {self.other_steps:,} of other shapes with your own"
        if self.trial is None:
            return f"{said}; too few for a trial, or none was asked for"
        if not self.trial.is_placed_faster:
            return f"{said}; {self.label} was not faster ({self._compared(self.trial)})"
        saved_s = self.placed_steps * (self.trial.own_ns - self.trial.placed_ns) / NS_PER_S
        return f"{said}; about {saved_s:,.1f} s saved ({self._compared(self.trial)})"


def _where(step: Step) -> str:
    return next((name for name in reversed(step.names)), step.call)


def _verified_in_words(found: Verification) -> str:
    left = ""
    if found.unverified:
        left = f", {len(found.unverified)} of them too close to rounding to tell"
    return (
        f"computes what your own step does ({found.steps} steps, {found.variables} variables"
        f"{left}, largest difference {found.relative_difference:.1g})"
    )
