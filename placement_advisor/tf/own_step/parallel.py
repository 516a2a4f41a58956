"""The user's own training step with its batch shared out: what `make_parallel` does.

Where no inputs are given, the step is split when it is first called, at what it is called with: by
the user, or by ``fit``, which traces it and has no values then, but shapes.

Runs in the user's process, as `place` does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import VARIABLES, placed_on_devices
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.errors import BatchSplitError, PlacementError
from placement_advisor.tf.own_step.place import (
    Runner,
    as_users,
    check_is_step,
    devices_here,
    fitting,
    left_as_it_was,
    live_step,
    take_over,
    taking_over,
)
from placement_advisor.tf.own_step.real_devices import real_devices
from placement_advisor.tf.split.split_step import split_step
from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.graph.placement import Placement
    from placement_advisor.tf.split.split_step import SplitStep
    from placement_advisor.tf.trace.tracer import TracedStep

    Groups = Sequence[Sequence[str]]

_LABEL = "make_parallel"
_HOST = "CPU:0"


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
        with left_as_it_was(step) if is_model else nullcontext():
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
    specs: tuple[Any, ...] = tf.nest.map_structure(
        lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), tensors
    )
    return specs


def _split(live: TracedStep, **how: Any) -> Any:
    """Return the `tf.function` of replicas, a share of the batch for each group of devices.

    Raises:
        AdvisorError: the batch cannot be split, or the placement does not fit.
    """
    split, placement = split_batch(live, **how)
    run = Runner(live, split, split.specs, placement)
    run.take()
    return as_users(live, lambda given: run(split.divided(given)))


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
        placed = placed_on_devices(family, graph, devices, _HOST, "")
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
            f"{_LABEL}: variables={variables!r} goes with no placement, which says where each is",
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
