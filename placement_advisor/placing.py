"""The user's own step, placed, made parallel or recorded, in the user's own process.

This is only the door: TensorFlow is imported when one of these is called, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.tf.training.recording import StepsRecorded


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
    from placement_advisor.tf.place import place_user_step

    if isinstance(placement, str):
        placement = Path(placement)
    return place_user_step(step, placement, inputs, devices or {})


def make_parallel(
    fn: Any,
    devices: Sequence[str] | Sequence[Sequence[str]],
    ratios: Sequence[float] | None = None,
    *,
    inputs: Any = (),
    placement: Placement | str | Path | None = None,
    variables: str = "first",
) -> Any:
    """Return the user's own step as a function that computes shares of the batch side by side.

    ``fn`` is a function or `tf.function`, a Keras model, or a `Workload`; ``devices`` are devices
    of this process (``["GPU:0", "GPU:1"]``). Each device computes its share of the samples, in
    proportion to ``ratios`` (even without any), gradients included; the first device holds the
    variables, merges what the others computed, weighted by samples, and makes the one update. With
    ``variables="spread"`` each device does that for those of some layers, with ``"host"`` the CPU.

    ``inputs`` are the step's arguments as for `place`: values or `tf.TensorSpec`s, the batch
    first. Without any, they are those of the first call, in which the step is split then: for a
    compiled Keras model the first batch of ``fit``, with sample weights if there are any. What is
    returned takes and returns what the step does, for batches of that size; a compiled Keras
    model's ``fit`` uses it from now on.

    With a ``placement`` of the step (as for `place`), shares go to *groups* of devices, and within
    each the step is laid out as it says: ``[["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]]`` for one that
    has two devices. The first group holds the variables.

    It computes what the step computes, up to rounding. Three things it does not: batch
    normalization sees the samples of its replica only; random numbers (dropout) are others; and
    what looks at samples together otherwise is refused. How tensors are merged is told from a step
    on the first batch, which changes no variable.

    Example::

        @tf.function
        def train_step(x, y): ...

        train_step = placement_advisor.make_parallel(train_step, ["GPU:0", "GPU:1"], ratios=[3, 2])
        loss = train_step(x, y)

    Raises:
        AdvisorError: the step cannot be traced; its batch cannot be split, or not so; a device is
            missing; the placement does not fit the step or the groups. Nothing has changed then.
            Without ``inputs`` the first call raises what is wrong with the step, or that the size
            of its batch is not known.
    """
    from placement_advisor.tf.place import parallel_step

    groups = [[each] if isinstance(each, str) else list(each) for each in devices]
    given = [1.0] * len(groups) if ratios is None else list(ratios)
    if isinstance(placement, str):
        placement = Path(placement)
    return parallel_step(fn, tuple(inputs), groups, given, placement, variables)


def record_steps(log_dir: str | Path, steps: tuple[int, int] = (10, 20)) -> StepsRecorded:
    """Return a context manager that records some steps of a training loop of your own.

    ``steps`` are the first and the last one to record, counted from 1; the first of them is the one
    in which the profiler sets itself up, and does not count. ``log_dir`` then holds what
    `placement_advisor.keras.PlacementProfiler` writes, and at the end of the block the same three
    lines are printed. The step is traced once more for its graph.

    Example::

        with placement_advisor.record_steps("logs", steps=(10, 20)) as record:
            for x, y in dataset:
                loss = record(train_step, x, y)

    Raises:
        ValueError: there are no such steps.
    """
    from placement_advisor.tf.training.recording import StepsRecorded

    return StepsRecorded(log_dir, steps)
