"""The explicit contract between a model file and the advisor: what one step is.

A file that the advisor would read wrongly, or not at all, says it outright::

    def workload() -> placement_advisor.Workload:
        return placement_advisor.Workload(step=train_step, inputs=(images, labels))

Nothing here imports TensorFlow: a model file pays for this import only what it costs to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = ("train", "infer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step of a model, and what it is run on.

    ``step`` is a function or a `tf.function`; what it returns, and the variables that it changes,
    are what it computes. It is traced as a graph.

    ``inputs`` are its positional arguments as a tuple: arrays, tensors, or nested structures of
    them; anything but a tuple is the only argument. `tf.TensorSpec`s instead of values let the
    advisor make values up. A `tf.data.Dataset` holds several such inputs, of equal shapes.

    ``mode`` is "train" or "infer". ``batch_size`` is the number of samples in one step; None takes
    the leading size of the first input.

    Raises:
        TypeError: ``step`` cannot be called.
        ValueError: ``mode`` or ``batch_size`` is not one of the above.
    """

    step: Callable[..., Any]
    inputs: Any
    mode: str = "train"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.step):
            raise TypeError(f"step is a {type(self.step).__name__}, not a function")
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}, not one of {', '.join(map(repr, MODES))}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, not at least 1")
