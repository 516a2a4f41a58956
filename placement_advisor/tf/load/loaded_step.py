"""What a loader hands to the tracer: one step, and what it is traced and run on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.tf.answers import CapturedCall


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
    chosen: str
    step: Callable[..., Any]
    specs: Any
    batches: tuple[Any, ...]
    batch_size: int | None
    input_names: tuple[str, ...]
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
        def holds_samples(one: Any) -> bool:
            return bool(one.shape.rank) and one.shape[0] == self.batch_size

        def of_tensor(tensor: Any) -> Any:
            return resize(tensor) if holds_samples(tensor) else tensor

        def of_spec(spec: Any) -> Any:
            if not holds_samples(spec):
                return spec
            return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype, name=spec.name)

        return replace(
            self,
            specs=tf.nest.map_structure(of_spec, self.specs),
            batches=tuple(tf.nest.map_structure(of_tensor, batch) for batch in self.batches),
            batch_size=size,
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
