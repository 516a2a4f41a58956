"""What a step whose batch is split computes, put together from runs of the unsplit step alone.

A replica that normalizes by its batch computes on its share what the unsplit step computes on a
batch that is this share over and over: mean and variance are the same. So there is a run for each
share, from the same state, and what replicas put together is the mean of what these compute,
weighted by samples; of what holds a part for each sample, each run gives its share. The step then
runs once more, is given these in place of what it computes, and updates the variables.

The samples of a share may be put in another order: a sum over them is the same then, and rounded
as differently as a split rounds it.

Left out: shares that differ in size, variances that are estimated with one sample less, and
replicas that go on with what was put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.measurement.verification import AppliedUpdate, StepResults
from placement_advisor.tf.trace.update_inputs import tensor_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.tf.place.placed_step import PlacedStep
    from placement_advisor.tf.trace.bundle import Split


def results_of_shares(
    step: PlacedStep,
    split: Split,
    samples: Sequence[int],
    steps: int,
    values: Mapping[str, Any] | None,
    order_seed: int | None = None,
) -> StepResults:
    """Return what replicas that take statistics of their own samples compute together.

    ``step`` is the unsplit one, ``values`` take the place of its initial state. ``samples`` are
    those of each share, which may be the whole batch. With a seed the samples of each come in an
    order that is drawn.
    """
    bundle, size = step.bundle, sum(samples)
    orders = _orders(samples, order_seed)
    names = [tensor_name(name) for name, _ in split.finished]
    before = state = values or bundle.variables
    outputs: list[Any] = []
    given: dict[str, tuple[AppliedUpdate, ...]] = {}
    for number in range(steps):
        batch = bundle.batches[number % len(bundle.batches)]
        parts, start = [], 0
        for share, order in zip(samples, orders, strict=True):
            step.reset(state)
            step.put(_with_samples(batch, size, np.resize(start + order, size)))
            parts.append(step.tensors(names))
            start += share
        feeds = {
            name: _joined([part[i] for part in parts], axis, samples, orders)
            for i, (name, (_, axis)) in enumerate(zip(names, split.finished, strict=True))
        }
        step.reset(state)
        step.put(batch)
        computed, added = step.step(number, feeds)
        outputs += computed
        given = {name: (*given.get(name, ()), *added[name]) for name in added}
        state = step.state()
    return StepResults(outputs=tuple(outputs), before=before, state=state, given=given)


def _orders(samples: Sequence[int], seed: int | None) -> list[Any]:
    """Return the order of each share's samples: as they are, or one that is drawn."""
    if seed is None:
        return [np.arange(share) for share in samples]
    random = np.random.default_rng(seed)
    return [random.permutation(share) for share in samples]


def _with_samples(batch: Sequence[Any], size: int, rows: Any) -> list[Any]:
    """Return a batch of these samples."""
    return [a[rows] if a.ndim and a.shape[0] == size else a for a in map(np.asarray, batch)]


def _places(order: Any, length: int) -> Any:
    """Return where the parts of each sample are, by sample, in a tensor that was made in order."""
    each = length // len(order)
    return (np.argsort(order)[:, None] * each + np.arange(each)).ravel()


def _joined(
    parts: Sequence[Any], axis: int | None, samples: Sequence[int], orders: Sequence[Any]
) -> Any:
    """Return what replicas put together; each part is that of a batch of one share repeated."""
    arrays, total = [np.asarray(part) for part in parts], sum(samples)
    if axis is not None:
        sizes = [
            array.shape[axis] * share // total for array, share in zip(arrays, samples, strict=True)
        ]
        rows = [_places(order, size) for order, size in zip(orders, sizes, strict=True)]
        return np.concatenate([a.take(r, axis) for a, r in zip(arrays, rows, strict=True)], axis)
    if arrays[0].dtype.kind not in "iufc":
        return arrays[0]
    mean = sum(
        a.astype(np.float64) * share / total for a, share in zip(arrays, samples, strict=True)
    )
    is_integer = arrays[0].dtype.kind in "iu"
    return np.asarray(np.rint(mean) if is_integer else mean).astype(arrays[0].dtype)
