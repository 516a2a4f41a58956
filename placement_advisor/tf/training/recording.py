"""Records some steps of a training, and reports compute, copies by route and what to run next.

A Keras callback does this for `fit`, and a context manager for a loop that the user wrote.
"""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import AdvisorError, ModelError
from placement_advisor.machine.presets import read_hardware
from placement_advisor.profile.device_trace import DeviceUse
from placement_advisor.profile.read_profile import read_profile
from placement_advisor.profile.recorded_ops import GRAPH
from placement_advisor.tf.failures import first_line
from placement_advisor.tf.load.example_batches import spec_of
from placement_advisor.tf.place import live_step
from placement_advisor.tf.run.runner import profiler_options
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from placement_advisor.profile.totals import DeviceTotals, ProfileTotals, RouteTotals
    from placement_advisor.tf.trace.tracer import TracedStep


class Recorder:
    """Records the steps from ``first`` to ``last``; ``failure`` says why it did not.

    ``recorded`` counts steps. Outside of what it records a step costs a count and a comparison.

    Raises:
        ValueError: there are no such steps.
    """

    def __init__(self, log_dir: str | Path, steps: tuple[int, int]) -> None:
        """Record into a log folder."""
        self.log_dir = Path(log_dir)
        self.first, self.last = steps
        if not 1 <= self.first <= self.last:
            raise ValueError(f"steps are {steps!r}, not (first, last) counted from 1")
        self.begun = self.recorded = 0
        self.failure: str | None = None
        self._mark: Any = None
        self._is_on = False

    @property
    def is_done(self) -> bool:
        """Whether all has been recorded that will be."""
        return self.begun >= self.last and not self._is_on

    def begin(self) -> bool:
        """Count a step that begins; return whether it is recorded."""
        self.begun += 1
        if not self.first <= self.begun <= self.last:
            return False
        if self.begun == self.first:
            self._start()
        if self._is_on:
            self._mark = tf.profiler.experimental.Trace("train", step_num=self.begun, _r=1)
            self._mark.__enter__()
        return self._is_on

    def end(self) -> None:
        """End the step that began last."""
        if self._mark is None:
            return
        mark, self._mark = self._mark, None
        mark.__exit__(None, None, None)
        self.recorded += 1
        if self.begun >= self.last:
            self.stop()

    def stop(self) -> None:
        """Write what was recorded, if it is not written yet."""
        if not self._is_on:
            return
        self._is_on, self._mark = False, None
        _wait_for_devices()
        tf.profiler.experimental.stop()

    def _start(self) -> None:
        _wait_for_devices()
        try:
            tf.profiler.experimental.start(str(self.log_dir), options=profiler_options())
        except tf.errors.OpError as error:
            self.failure = f"the profiler did not start: {error.message}"
        else:
            self._is_on = True


def _wait_for_devices() -> None:
    """Wait until nothing runs that was started before: on GPUs steps end later than they return."""
    if tf.executing_eagerly():  # A session waits by itself.
        tf.test.experimental.sync_devices()


def traced_like(step: Any, inputs: tuple[Any, ...]) -> TracedStep:
    """Trace a function or a Keras model for inputs of these specs.

    Raises:
        ModelError: it cannot be traced, or a model not be made without its strategy.
    """
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(_traced, step, inputs).result()


def _traced(step: Any, inputs: tuple[Any, ...]) -> TracedStep:
    if getattr(step, "_distribute_strategy", None) not in (None, tf.distribute.get_strategy()):
        step = _without_strategy(step)
    return live_step(step, inputs)


def _without_strategy(model: Any) -> Any:
    try:
        again = type(model).from_config(model.get_config())
        again.compile_from_config(model.get_compile_config())
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"{model.name} needs the strategy that made it: {reason}",
            hint="trace it from a file that makes it without: advisor trace model.py",
        ) from None
    return again


_MOST_ROUTES = 3


def finish(recorder: Recorder, trace: Callable[[], TracedStep]) -> Iterator[str]:
    """Write the graph of what was recorded, and yield the lines to print.

    A training that took days must not end here, whatever fails: it is told instead.
    """
    if not recorder.recorded:
        why = recorder.failure or (
            f"training ended after step {recorder.begun}, before step {recorder.first}"
        )
        yield f"placement-advisor recorded nothing: {why}"
        return
    step, note = None, None
    try:
        step = trace()
        step.graph.save(recorder.log_dir / GRAPH)
    except Exception as error:
        step, note = None, f"no {GRAPH}: {_first_line(error)}"
    try:
        yield from _lines(recorder, step)
    except Exception as error:
        yield f"recorded in {recorder.log_dir}, and not read: {_first_line(error)}"
    if note is not None:
        yield note


def _first_line(error: Exception) -> str:
    if isinstance(error, AdvisorError):
        first = error.message.splitlines()[0]
        return f"{first} ({error.hint})" if error.hint else first
    return f"{type(error).__name__}: {first_line(error)}"


def _lines(recorder: Recorder, step: TracedStep | None) -> Iterator[str]:
    ops = None if step is None else step.graph
    read = read_profile(
        recorder.log_dir, graph=ops, ask_xprof=False, working=lambda what, done, total: None
    )
    yield f"compute  {_compute(read.totals, recorder)}"
    yield f"copies   {_copies(read.totals)}"
    yield f"next     {_next(recorder.log_dir, step)}"


def _compute(totals: ProfileTotals, recorder: Recorder) -> str:
    step_ns = sorted(totals.step_ns)[len(totals.step_ns) // 2] if totals.step_ns else None
    parts = [_device(device, step_ns) for device in totals.devices]
    of = f" of a step of {format_ns(step_ns)}" if step_ns is not None else ""
    until = recorder.first + recorder.recorded - 1
    return f"{', '.join(parts)}{of} (steps {recorder.first} to {until})"


def _device(device: DeviceTotals, step_ns: int | None) -> str:
    if device.per_step is None or not step_ns:
        return f"{device.device} {format_ns(device.total[DeviceUse.COMPUTE].time_ns)} in all"
    time_ns = device.per_step[DeviceUse.COMPUTE].time_ns
    return f"{device.device} {format_ns(time_ns)} ({format_share(time_ns / step_ns)})"


def _copies(totals: ProfileTotals) -> str:
    if not totals.routes:
        if any(device.device.startswith("GPU") for device in totals.devices):
            return "none"
        return "none seen: CPUs of one process hand tensors on as pointers"
    routes = sorted(totals.routes, key=lambda route: -route.exposed_ns)
    shown = [_route(route) for route in routes[:_MOST_ROUTES]]
    more = len(routes) - len(shown)
    return "; ".join(shown) + (f"; and {more} more routes" if more else "")


def _route(route: RouteTotals) -> str:
    ends = f"{route.route.source} → {route.route.target}"
    size = "of unknown size" if route.of_unknown_size else format_bytes(route.size_bytes)
    return (
        f"{ends} {route.count} copies, {size}, exposed {format_ns(route.exposed_ns)} "
        f"of {format_ns(route.time_ns)}"
    )


def _next(log_dir: Path, step: TracedStep | None) -> str:
    logs = shlex.quote(str(log_dir))
    profile = f"advisor profile {logs}"
    if step is not None:
        profile += f" --graph {shlex.quote(str(log_dir / GRAPH))}"
    script = getattr(sys.modules["__main__"], "__file__", None)
    model = shlex.quote(script) if script and script.endswith(".py") else "model.py"
    hardware = _hardware()
    first = "" if hardware else "advisor calibrate -o devices.toml && "
    analyze = f"advisor analyze {model} --hardware {hardware or 'devices.toml'} --costs {logs}"
    if step is not None and step.loaded.batch_size is not None:
        # Without it the file's own batch counts, whose ops take other times.
        analyze += f" --batch-size {step.loaded.batch_size}"
    return f"{profile}; for a verdict: {first}{analyze}"


def _hardware() -> str | None:
    """Return the GPUs of this process as `--hardware` calls them, None if it does not know them."""
    names = []
    for gpu in tf.config.list_physical_devices("GPU"):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "")
        names.append(name.removeprefix("NVIDIA ").removeprefix("Tesla ").replace(" ", "-"))
    if not names or len(set(names)) > 1:
        return None
    # A verdict is about two devices at least.
    text = f"{max(2, len(names))}x{names[0]}"
    try:
        read_hardware(text)
    except AdvisorError:
        return None
    return text


class StepsRecorded:
    """Runs steps and records some; see `placement_advisor.record_steps`."""

    def __init__(self, log_dir: str | Path, steps: tuple[int, int]) -> None:
        """Record into a log folder."""
        self._recorder = Recorder(log_dir, steps)
        self._called: tuple[Callable[..., Any], tuple[Any, ...], bool] | None = None

    def __enter__(self) -> StepsRecorded:
        return self

    def __call__(self, step: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        """Run one step on its inputs and return what it returns."""
        if self._recorder.begin() and self._called is None:
            self._called = step, tf.nest.map_structure(_spec, inputs), bool(named)
        try:
            return step(*inputs, **named)
        finally:
            self._recorder.end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder.stop()
        if error is None:
            print(*finish(self._recorder, self._trace), sep="\n", flush=True)

    def _trace(self) -> TracedStep:
        assert self._called is not None, "a step was recorded"
        step, inputs, has_named = self._called
        if has_named or not all(
            isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(inputs)
        ):
            raise ModelError(
                "the graph needs a step whose tensors are positional arguments",
                hint="call it so: record(train_step, x, y)",
            )
        return traced_like(step, inputs)


def _spec(value: Any) -> Any:
    """Return the spec of a tensor, or of what becomes one; anything else as it is."""
    try:
        return spec_of(tf.convert_to_tensor(value))
    except (TypeError, ValueError):
        return value


_GIVE_BATCH = "give the callback a batch: PlacementProfiler(log_dir, batch=(x, y))"


class PlacementProfiler(keras.callbacks.Callback):  # type: ignore[misc]
    """Records steps of your own training, on the devices that you have, and says what to run next.

    ``steps`` are the first and the last step to record, counted from 1 over all epochs; the first
    of them is the one in which the profiler sets itself up, and does not count. ``log_dir`` then
    holds the profile, for `advisor profile` and for `--costs` of `advisor analyze`, and the graph
    of the step, ``graph.json.gz``, for `--graph`. After the epoch three lines are printed.

    The graph is that of one device's step, of the batch that it gets. The callback sees the shapes
    of batches while Keras traces the step; of a batch whose size is open there, it takes the size
    from the model's loss. ``batch``, as `fit` hands it to the model, spares it that.

    Example::

        model.fit(x, y, callbacks=[placement_advisor.keras.PlacementProfiler("logs", (10, 20))])

    Raises:
        ValueError: there are no such steps.
    """

    def __init__(
        self, log_dir: str | Path, steps: tuple[int, int] = (10, 20), *, batch: Any = None
    ) -> None:
        """Record into a log folder."""
        super().__init__()
        self._recorder = Recorder(log_dir, steps)
        self._batch_seen = None if batch is None else tf.nest.map_structure(_batch_spec, batch)
        self._give_back: Callable[[], None] | None = None
        self._samples_before: float | None = None
        self._samples: float | None = None
        self._is_told = False

    def set_model(self, model: Any) -> None:
        """Look at the batch when Keras traces the model's step."""
        super().set_model(model)
        if not self._is_told and self._batch_seen is None and self._give_back is None:
            self._give_back = _watch_step(model, self._see)

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuse what would be told wrongly.

        Raises:
            ModelError: a call of the step function is several steps.
        """
        if not self._is_told and getattr(self.model, "steps_per_execution", 1) > 1:
            raise ModelError(
                f"PlacementProfiler: steps_per_execution={self.model.steps_per_execution} in "
                "model.compile hides where a step ends",
                hint="compile it with steps_per_execution=1 while you record",
            )

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step."""
        if self._recorder.begin() and self._samples is None:
            self._samples_before = _samples_counted(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step."""
        self._recorder.end()
        if self._samples_before is not None:
            counted = _samples_counted(self.model)
            if counted is not None:
                self._samples = counted - self._samples_before
            self._samples_before = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell what was recorded, once all is."""
        if self._recorder.is_done:
            self._tell()

    def on_train_end(self, logs: Any = None) -> None:
        """Tell what was recorded."""
        self._recorder.stop()
        self._tell()

    def _tell(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        if self._give_back is not None:
            self._give_back()
        # The progress bar has left its line open.
        print("", *finish(self._recorder, self._trace), sep="\n", flush=True)

    def _see(self, batch: Any) -> None:
        """Keep the shapes of a batch; replicas are traced one after the other, all alike."""
        if self._batch_seen is None:
            self._batch_seen = tf.nest.map_structure(_batch_spec, batch)

    def _trace(self) -> TracedStep:
        """Return the model's step, traced.

        Raises:
            ModelError: it cannot be traced, or its batch is not known.
        """
        batch = self._batch_seen
        if batch is None:
            raise ModelError("the batch was not seen", hint=_GIVE_BATCH)
        shapes = [spec.shape for spec in tf.nest.flatten(batch)]
        if any(shape.rank is None for shape in shapes):
            raise ModelError("the shape of the batch is open", hint=_GIVE_BATCH)
        if any(None in shape[1:] for shape in shapes if shape.rank):
            raise ModelError("a size of the batch is open behind the first", hint=_GIVE_BATCH)
        size = None
        if not all(shape.is_fully_defined() for shape in shapes):
            replicas = self.model.distribute_strategy.num_replicas_in_sync
            if not self._samples or self._samples % replicas:
                raise ModelError("the size of the batch is open", hint=_GIVE_BATCH)
            size = int(self._samples) // replicas
        specs = tf.nest.map_structure(lambda spec: _of_size(spec, size), batch)
        return traced_like(self.model, specs if isinstance(specs, tuple) else (specs,))


def _watch_step(model: Any, see: Callable[[Any], None]) -> Callable[[], None]:
    """Have each batch seen with which the model's step is traced; return what ends that."""
    own = vars(model).get("train_step")
    train_step = model.train_step

    def watched(data: Any) -> Any:
        see(data)
        return train_step(data)

    model.train_step = watched
    # A step that an earlier fit has traced would not be seen.
    model.train_function = None

    def give_back() -> None:
        if vars(model).get("train_step") is not watched:
            return
        if own is None:
            del model.train_step
        else:
            model.train_step = own

    return give_back


def _samples_counted(model: Any) -> float | None:
    """Return how many samples the model's loss is a mean of by now, None if it does not count."""
    for metric in model.metrics:
        if metric.name == "loss" and hasattr(metric, "count"):
            return float(tf.convert_to_tensor(metric.count.value))
    return None


def _batch_spec(value: Any) -> Any:
    tensor = value if isinstance(value, tf.TypeSpec | tf.Tensor) else tf.convert_to_tensor(value)
    if not isinstance(tensor, tf.Tensor | tf.TensorSpec):
        return tf.TensorSpec(None)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _of_size(spec: Any, size: int | None) -> Any:
    shape = [size if known is None else known for known in spec.shape]
    return tf.TensorSpec(shape, spec.dtype)
