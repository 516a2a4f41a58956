"""Acting on a placement: the user's own step, placed, in the user's own process.

This is only the door: TensorFlow is imported when `place` is called, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.placement import Placement


def place(
    step: Any,
    placement: Placement | str | Path,
    *inputs: Any,
    devices: Mapping[str, str] | None = None,
) -> Any:
    """Return the user's own step as a `tf.function` whose ops run where the placement says.

    ``step`` is a function or `tf.function`, a Keras model, or a `Workload`. ``placement`` is a
    `Placement` of the step's op graph, or the path of a file that `advisor analyze` wrote
    (``placements/towers.json``). ``inputs`` are the step's arguments, those of a Keras model x and
    y: values or `tf.TensorSpec`s, of the shapes that the placement was made for. Without any, they
    are those that the step or model declares, as in the analysis.

    What is returned takes and returns what the step does; for a compiled Keras model that is
    ``train_step(data)``, which ``fit`` then uses as well. It works on the step's own variables:
    those that the placement puts elsewhere are *moved* there, and go on living in the same
    `tf.Variable` objects. Functions that were traced before hold the old, emptied ones and fail:
    trace them anew. What the step computes does not change.

    ``GPU:1`` and ``CPU:0`` stand for themselves; other devices of a placement, such as the
    stand-ins ``worker:0``, are the GPUs of this process in order if it has enough, else its CPUs.
    ``devices`` says otherwise: ``{"worker:0": "GPU:0", "worker:1": "GPU:2"}``.

    Fusing ops across devices is turned off in this process (TensorFlow's remapper).

    Example::

        model = build_model()
        train_step = placement_advisor.place(model, "advisor-out/placements/towers.json", x, y)
        for batch in dataset.batch(32, drop_remainder=True):
            print(train_step(batch)["loss"])

    Raises:
        AdvisorError: the step cannot be traced; the placement was made for another graph; a
            device is missing; or a variable cannot be moved. Nothing has changed then.
    """
    from placement_advisor.tf.place import placed_step

    if isinstance(placement, str):
        placement = Path(placement)
    return placed_step(step, placement, inputs, devices or {})
