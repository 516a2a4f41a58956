"""A training whose step is placed while it runs: what `advisor run` does.

The program runs as it is until its step is called again, as it does for an analysis (`Capture`).
There the step is traced, its graph is compared with the one that was analysed, and the placed step
is verified (`LiveSplit`). From its next call on it runs placed, on the program's own batches and
variables.

Variables are where the program has made them, or where the placement has them, and go from one
place to the other and back in a trial, in which both steps take turns. A function that was traced
while they were in one place fails while they are in the other. So while they are where the
placement has them, each `tf.function` that is called runs as a copy of itself, which is traced
there: what evaluates, and the program's own step for a batch that the split is not for.

Left out: functions that the program has made concrete itself, and steps that take their batches
from an iterator: how many they take is theirs to decide.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import AdvisorError, ModelError
from placement_advisor.processes.calls import is_user_code
from placement_advisor.tf.failures import first_line
from placement_advisor.tf.load import capture as captures
from placement_advisor.tf.load.captured_step import captured
from placement_advisor.tf.load.eager_step import EagerLoop
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.place import Runner, devices_here, packed, real_devices
from placement_advisor.tf.trace.tracer import trace_step
from placement_advisor.tf.training.recording import Recorder, finish
from placement_advisor.tf.training.session_step import LiveSplit, SessionStep, in_tf2
from placement_advisor.tf.training.trial import Bill, SplitPlan, TrainingTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from placement_advisor.measurement.verification import Verification
    from placement_advisor.tf.load.session_step import Fetched

# Those of a training that is under way; the first is the one in which the profiler sets itself up.
_PROFILED = (2, 12)
# Epochs may take less than a second each.
_BETWEEN_LINES_S = 60.0


def cut_cpu(count: int) -> None:
    """Cut this process's CPU into so many devices; TensorFlow takes it before anything else."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)


def mirror_from_first_layer(
    plan: SplitPlan, enter: Callable[[Any], Any], say: Callable[[str], None]
) -> None:
    """Have the scope of a `MirroredStrategy` entered before Keras makes a layer or an optimizer.

    Not earlier: whatever the script sets of devices has to be set then.
    """
    layer, optimizer = keras.Layer, keras.optimizers.Optimizer
    original, original_init = vars(layer)["__new__"], optimizer.__init__

    def begin() -> None:
        layer.__new__, optimizer.__init__ = original, original_init
        assert plan.samples is not None, "it splits the batch"
        names = plan.devices[: len(plan.samples)]
        if tf.distribute.has_strategy():
            say("trains as it is: it has a strategy of its own")
            return
        try:
            real = real_devices(names, devices_here(), {})
            enter(tf.distribute.MirroredStrategy([real[name] for name in names]).scope())
            say(
                f"{plan.label}: trains under a MirroredStrategy; no trial, so the saving is unknown"
            )
        except AdvisorError as error:
            say(f"trains as it is: {error.message}")

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        begin()
        return original.__func__(cls, *args, **kwargs)

    def init(made: Any, *args: Any, **kwargs: Any) -> None:
        begin()
        original_init(made, *args, **kwargs)

    layer.__new__, optimizer.__init__ = staticmethod(new), init


class PlacedRun(captures.Capture):
    """A program whose step is placed once it is seen; ``bill`` says what came of it."""

    def __init__(
        self,
        script: Path,
        plan: SplitPlan,
        *,
        trial_steps: int,
        profile: Path | None,
        say: Callable[[str], None],
    ) -> None:
        """Wait for a script's step of a plan, or for another one of the same graph.

        ``trial_steps`` are timed each way, none without a trial. Some placed steps are recorded
        into the log folder ``profile``, if there is one. ``say`` is given what the user is told.
        """
        super().__init__(lambda file: is_user_code(file, script), lambda _: None)
        self.bill = Bill(label=plan.label, is_tried=trial_steps > 0)
        self._source = ModelSource(path=str(script), step=plan.step)
        self._plan, self._say, self._said_s = plan, say, time.monotonic()
        self._trial = TrainingTrial(trial_steps) if trial_steps else None
        self._recorder = None if profile is None else Recorder(profile, _PROFILED)
        self._is_busy = False
        self._unfit: set[int] = set()  # Steps that cannot be placed, by their id.
        self._key: Any = None
        self._model: Any = None
        # What was made ready, and what takes the place of the script's own step: both or the first.
        self._ready: _PlacedStep | SessionStep | None = None
        self._step: _PlacedStep | SessionStep | None = None
        self._is_placed = False  # Whether variables are where the placement has them.
        self._is_between = False  # Whether a move has begun and not ended.
        self._copies: dict[int, tuple[Any, Any]] = {}  # Of functions, with these, by their id.
        self._moving_s = 0.0

    def put_back(self) -> None:
        """Have variables where the program has made them, for whatever comes next."""
        was_between = self._is_between
        if self._ready is not None and self._is_placed:
            self._move(self._ready, is_placed=False)
        if was_between:  # Copies were traced with some of them in either place.
            self._copies.clear()
            self._is_between = False

    def settle(self) -> None:
        """Say what the program was trained with, once it has ended."""
        self.put_back()
        self.unhook()
        self._say(self.bill.told())
        if self._recorder is None or self._ready is None:
            return
        self._recorder.stop()
        if self.bill.is_own_kept:
            self._say("recorded nothing: no split step ran after the trial")
            return
        live = self._ready.split.live
        for line in finish(self._recorder, lambda: live):
            self._say(line)

    def chosen(self) -> captures.Step | None:
        """Return the step of the plan if it was seen, else the dearest that may be it."""
        steps = [step for step in self.steps.values() if id(step) not in self._unfit]
        asked = [step for step in steps if self._plan.step in step.names and step.trains]
        return max(asked or steps, key=lambda step: (step.trains, step.total_s), default=None)

    def _hook_steps(self) -> None:
        super()._hook_steps()
        self._hook(captures.SESSION, "make_callable", self._callable_made)
        self._hook(tf.saved_model, "save", self._saved)
        self._hook(captures.FUNCTION, "get_concrete_function", self._made_concrete)
        self._hook(keras.callbacks.CallbackList, "on_epoch_end", self._epoch_ended)

    def _configure(self, config: Any) -> None:
        super()._configure(config)
        # Of what the process's CPU was cut into, a session takes one device by itself.
        config.device_count["CPU"] = len(tf.config.list_logical_devices("CPU"))

    def _callable_made(self, original: Any, session: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(session, *args, **kwargs)
        return lambda *given, **named: self._other_run(session, lambda: made(*given, **named))

    def _saved(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.put_back()
        self._trace_as_copies()  # Functions are exported that were traced.
        return original(*args, **kwargs)

    def _made_concrete(self, original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Whoever asks for it keeps it: it holds variables where they are now.
        if tf.executing_eagerly() and not self._is_elsewhere():
            self.put_back()
        return original(function, *args, **kwargs)

    def _trace_as_copies(self) -> None:
        """Have functions traced themselves for what their copies were called with."""
        for function, copy in self._copies.values():
            for traced in copy._list_all_concrete_functions():
                given, named = traced.structured_input_signature
                with suppress(Exception):  # It says so to whoever calls it.
                    function.get_concrete_function(*given, **named)

    def _epoch_ended(self, original: Any, *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        is_due = time.monotonic() - self._said_s >= _BETWEEN_LINES_S
        if self._step is not None and self._trial is None and is_due:
            self._said_s = time.monotonic()
            self._say(self.bill.told(so_far=True))

    def _is_elsewhere(self) -> bool:
        return self._is_busy or super()._is_elsewhere()

    def _is_enough(self, step: captures.Step, now_s: float) -> bool:
        if id(step) in self._unfit:
            return False
        if self._plan.step in step.names and step.trains and step.calls > 1:
            return True
        return super()._is_enough(step, now_s)

    def _stand_still(self) -> None:
        """Make ready what runs in place of the script's own step, from its next call on."""
        step = self.chosen()
        assert step is not None, "it was called"
        began_s = time.monotonic()
        self._is_busy = True  # What is traced and verified is none of the program's.
        try:
            ready, found = self._made_ready(step)
        except Exception as error:
            self._refuse(step, error)
            return
        finally:
            self._is_busy = False
        self._recording.end()
        self._ready = self._step = ready
        self.bill.why_not = None
        self._key = next(key for key, each in self.steps.items() if each is step)
        self._model = step.target if isinstance(step.target, keras.Model) else None
        for each in self.steps.values():
            each.batches.clear()
        self.order.clear()
        self.bill.ready_s = time.monotonic() - began_s
        self._say(
            f"{self._plan.label} for {_named(step)}: {_in_words(found)}; ready after "
            f"{self.bill.ready_s:.1f} s"
        )

    def _refuse(self, step: captures.Step, error: Exception) -> None:
        """Say why the step trains as it is, and look for no other, unless it may be another one."""
        if isinstance(error, AdvisorError):
            why, hint = error.message, error.hint
        else:
            why, hint = f"{type(error).__name__}: {first_line(error)}", None
        self.bill.why_not = why
        self._unfit.add(id(step))
        if any(each.trains and id(each) not in self._unfit for each in self.steps.values()):
            return
        self._say(f"{_named(step)} trains as it is: {why}")
        if hint and "devices={" in hint:  # That is an argument of `place`.
            hint = "advisor run --devices N cuts this machine's CPU into N"
        if hint:
            self._say(f"hint: {hint}")
        if self._plan.step is None or self._plan.step in step.names:
            self.unhook()

    def _made_ready(self, step: captures.Step) -> tuple[_PlacedStep | SessionStep, Verification]:
        if not isinstance(step.target, captures.SessionRun):
            split = self._split_of(step)
            found = split.verified()
            ready: _PlacedStep | SessionStep = _PlacedStep(split)
        else:
            step.target.read()

            def verified() -> tuple[LiveSplit, Verification]:
                split = self._split_of(step)
                return split, split.verified()

            split, found = in_tf2(verified)
            ready = SessionStep(split, step.target)
        # Here what cannot be done is found out.
        try:
            ready.take()
        except BaseException:
            with suppress(Exception):
                ready.give_back()  # What has moved.
            raise
        ready.give_back()
        return ready, found

    def _split_of(self, step: captures.Step) -> LiveSplit:
        if isinstance(step.target, EagerLoop):
            raise ModelError(
                "it runs op by op, so that nothing can run in its place",
                hint="make a tf.function of the step",
            )
        loaded = captured(self, self._source)
        if loaded.name != step.name:
            raise ModelError(f"it is one of several calls up to an update ({loaded.name})")
        if loaded.is_eager:
            raise ModelError("it runs eagerly (run_eagerly), with what it does in Python")
        return LiveSplit(trace_step(Path(self._source.path), loaded), self._plan)

    def _keras_call(self, key: object, model: Any, step: str, inner: Any, given: Any) -> Any:
        if self._step is None:
            return super()._keras_call(key, model, step, inner, given)
        if self._is_elsewhere():
            return inner(given)
        if key is not self._key:
            if model is self._model and step == "train_step":  # It was compiled again.
                self._give_up("your model has a different training step by now")
            return inner(given)
        began_s, count = time.perf_counter(), model.steps_per_execution
        if self._trial is not None and not self._trial.is_placed:
            return self._own_turn(self._trial, count, lambda: inner(given))
        batches = captures.taken(given, count)
        return self._run(batches, lambda: inner(iter(batches)), began_s)

    def _function_call(self, original: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self._step is None:
            if captures.has_iterator((args, kwargs)):
                return original(function, *args, **kwargs)
            return super()._function_call(original, function, *args, **kwargs)
        if id(function) != self._key or self._is_elsewhere() or not tf.executing_eagerly():
            return original(self._version(function), *args, **kwargs)

        def own() -> Any:
            return original(self._version(function), *args, **kwargs)

        return self._run([(args, kwargs)], own, time.perf_counter())

    def _session_call(
        self,
        key: Any,
        session: Any,
        step: Fetched,
        fetches: Any,
        feeds: Any,
        own: Callable[..., Any],
    ) -> Any:
        placed = self._step
        if placed is None:
            return super()._session_call(key, session, step, fetches, feeds, own)
        if not isinstance(placed, SessionStep) or session is not placed.session:
            return own()
        if key != self._key:
            self.bill.other_steps += step.trains
            return own() if placed.leaves_alone(step) else self._other_run(session, own)
        with self._lock:
            began_s = time.perf_counter()
            if self._trial is None or self._trial.is_placed:
                feeds = placed.with_drawn(feeds, own)
            return self._run([(fetches, feeds, own)], lambda: own(fetches, feeds), began_s)

    def _other_run(self, session: Any, own: Callable[[], Any]) -> Any:
        """Return what a run returns that finds variables where the program has made them."""
        placed = self._step
        if not isinstance(placed, SessionStep) or session is not placed.session:
            return own()
        with self._lock:
            self.put_back()
            return own()

    def _gradient(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._step is not None:
            return original(*args, **kwargs)
        return super()._gradient(original, *args, **kwargs)

    def _session_closed(self, original: Any, session: Any) -> None:
        if isinstance(self._step, SessionStep) and session is self._step.session:
            self._is_placed = False  # Its variables end with it.
            self._give_up(None)
        for key, step in list(self.steps.items()):
            if isinstance(step.target, captures.SessionRun) and step.target.session is session:
                del self.steps[key]
        original(session)

    def _given_way(self, strategy: str) -> None:
        self.bill.in_place_of = strategy
        self._say(
            f"your {strategy} gives way to one replica: num_replicas_in_sync is 1, so a batch that "
            "is multiplied by it is smaller"
        )

    def _version(self, function: Any) -> Any:
        """Return a function as it can be called where variables are now."""
        if not self._is_placed:
            return function
        if id(function) not in self._copies:
            copy = function._clone(None)
            copy._jit_compile = False  # XLA takes what is on one device.
            self._copies[id(function)] = function, copy
        return self._copies[id(function)][1]

    def _run(self, batches: Sequence[Any], own: Callable[[], Any], began_s: float) -> Any:
        """Return what a call of the step returns, wherever it runs.

        What came with the split since ``began_s`` is part of its step.
        """
        placed, trial, count = self._step, self._trial, len(batches)
        assert placed is not None, "it was made ready"
        if trial is not None and not trial.is_placed:
            return self._own_turn(trial, count, own)
        if self._is_between:  # Somebody pressed Ctrl-C in a move, and goes on.
            self.put_back()
        inputs = [found for batch in batches if (found := placed.inputs(batch)) is not None]
        if len(inputs) < count:
            if isinstance(placed, SessionStep):  # Its own step finds variables in their own place.
                self.put_back()
            self.bill.other_steps += count
            return self._within_step(own)
        if not self._is_placed:
            before_s = self._moving_s
            self._move(placed, is_placed=True)
            self._moving_s = before_s  # `began_s` has this one.
        self.bill.placed_steps += count

        def run() -> Any:
            return [placed(each) for each in inputs][-1]

        if trial is None:
            return self._recorded(run)
        returned = self._timed(trial, count, began_s, run)
        self._decide(trial)
        return returned

    def _own_turn(self, trial: TrainingTrial, count: int, own: Callable[[], Any]) -> Any:
        self.put_back()
        returned = self._timed(trial, count, time.perf_counter(), own)
        self.bill.own_steps += count
        self._decide(trial)
        return returned

    def _timed(
        self, trial: TrainingTrial, count: int, began_s: float, run: Callable[[], Any]
    ) -> Any:
        returned = self._within_step(run)
        if tf.executing_eagerly():  # A session waits by itself.
            tf.test.experimental.sync_devices()
        # A turn begins with a move, and with a step that does not count. Others are the split's.
        moving_s = self._moving_s if trial.is_placed else 0.0
        trial.took((time.perf_counter() - began_s + moving_s) / count)
        self._moving_s = 0.0
        return returned

    def _recorded(self, run: Callable[[], Any]) -> Any:
        if self._recorder is None or self._recorder.is_done:
            return self._within_step(run)
        self._recorder.begin()
        try:
            return self._within_step(run)
        finally:
            self._recorder.end()

    def _within_step(self, run: Callable[[], Any]) -> Any:
        """Return what a step returns, in which nothing is seen."""
        self._within.step = True
        try:
            return run()
        finally:
            self._within.step = False

    def _move(self, placed: _PlacedStep | SessionStep, *, is_placed: bool) -> None:
        """Have variables where the placement has them, or where the program has made them.

        An interrupt leaves some of them there: then all go back before anything else runs.
        """
        began_s = time.perf_counter()
        self._is_busy = self._is_between = True
        try:
            if is_placed:
                # What a session's own variables hold counts until the placed step has run.
                self._is_placed = not isinstance(placed, SessionStep)
                placed.take()
                self._is_placed = True
            else:
                placed.give_back()
                self._is_placed = False
            self._is_between = False
        finally:
            self._is_busy = False
        took_s = time.perf_counter() - began_s
        self._moving_s += took_s
        if self._trial is None:
            self.bill.moving_s += took_s

    def _decide(self, trial: TrainingTrial) -> None:
        """Go on with the faster step, once the trial is over."""
        if not trial.is_over:
            return
        self._trial, self.bill.trial = None, trial
        self._say(self.bill.decision())
        if trial.speedup <= 1:
            self._give_up(None)

    def _give_up(self, why: str | None) -> None:
        """Train as the program does from here on."""
        self.put_back()
        self._step = None
        if self._recorder is not None:
            self._recorder.stop()
        self.unhook()
        if why is not None:
            self._say(f"trains as it is from here on: {why}")


class _PlacedStep:
    """A verified split of a Keras model's step, or of a `tf.function`, in place of it."""

    def __init__(self, split: LiveSplit) -> None:
        self.split = split
        live = split.live
        self.runner = Runner(live, split.program, split.placement)
        self.take, self.give_back = self.runner.take, self.runner.give_back
        self._batch = live.loaded.step.batch  # type: ignore[attr-defined]
        self._returned = live.function.structured_outputs
        self._run: Any = None

    def inputs(self, given: Any) -> tuple[Any, ...] | None:
        """Return the tensors of a batch, None if the split is not for such a batch."""
        found: tuple[Any, ...] | None = self._batch.alike(given)
        return found

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Return what the program's own step returns."""
        if self._run is None:  # Not as a function that is called: those are the program's.
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
            run = tf.function(self._computed, autograph=False)
            self._run = run.get_concrete_function(*specs)
        return packed(self._returned, self._run(*inputs))

    def _computed(self, *inputs: Any) -> list[Any]:
        return self.runner(inputs)


def _named(step: captures.Step) -> str:
    return step.call if step.where is None else f"{step.call} at {step.where.name}"


def _in_words(found: Verification) -> str:
    left = ""
    if found.unverified:
        left = f", {len(found.unverified)} of them too close to rounding to tell"
    return (
        f"the same as your own step ({found.steps} steps, {found.variables} variables{left}, "
        f"largest difference {found.relative_difference:.1g})"
    )
