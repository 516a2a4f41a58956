"""A Keras callback that records some steps of a training with `fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.errors import ModelError
from placement_advisor.tf.training.recorder import Recorder
from placement_advisor.tf.training.step_graph import step_graph
from placement_advisor.tf.training.summary import finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from placement_advisor.tf.training.step_graph import StepGraph

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
        self._batch_seen = None if batch is None else tf.nest.map_structure(_spec, batch)
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
                "PlacementProfiler: the model is compiled with steps_per_execution="
                f"{self.model.steps_per_execution}: steps cannot be told apart",
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
        print("", *finish(self._recorder, self._graph), sep="\n", flush=True)

    def _see(self, batch: Any) -> None:
        """Keep the shapes of a batch; replicas are traced one after the other, all alike."""
        if self._batch_seen is None:
            self._batch_seen = tf.nest.map_structure(_spec, batch)

    def _graph(self) -> StepGraph:
        """Return the graph of the model's step.

        Raises:
            ModelError: it cannot be traced, or its batch is not known.
        """
        batch = self._batch_seen
        if batch is None:
            raise ModelError("the batch was not seen", hint=_GIVE_BATCH)
        if any(spec.shape.rank is None for spec in tf.nest.flatten(batch)):
            raise ModelError("the shape of the batch is open", hint=_GIVE_BATCH)
        if any(None in spec.shape[1:] for spec in tf.nest.flatten(batch) if spec.shape.rank):
            raise ModelError("a size of the batch is open behind the first", hint=_GIVE_BATCH)
        size = None
        if any(None in spec.shape.as_list() for spec in tf.nest.flatten(batch)):
            replicas = self.model.distribute_strategy.num_replicas_in_sync
            if not self._samples or self._samples % replicas:
                raise ModelError("the size of the batch is open", hint=_GIVE_BATCH)
            size = int(self._samples) // replicas
        specs = tf.nest.map_structure(lambda spec: _of_size(spec, size), batch)
        return step_graph(self.model, specs if isinstance(specs, tuple) else (specs,))


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


def _spec(value: Any) -> Any:
    tensor = value if isinstance(value, tf.TypeSpec | tf.Tensor) else tf.convert_to_tensor(value)
    if not isinstance(tensor, tf.Tensor | tf.TensorSpec):
        return tf.TensorSpec(None)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _of_size(spec: Any, size: int | None) -> Any:
    sizes = [size if known is None else known for known in spec.shape.as_list()[:1]]
    return tf.TensorSpec([*sizes, *spec.shape[1:]], spec.dtype)
