"""Whether a tensor's part for a sample is that sample's own, where shares give another part.

A maximum over equal numbers hands its gradient to one of them. Which one is decided by the last
digit, and that by where in the batch a sample stands: for a text that says the same words twice,
one part of a gradient lies on other words, which are the same words. No rounding of variables shows
it, as both numbers move alike. So the whole batch is computed again with a share's samples in their
places and in those of all others: nothing is added up in another order, and what then changes in
their parts comes from the other samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.measurement.verification import farthest, largest
from placement_advisor.tf.split.merging import ROUNDING, merged, tensors_of
from placement_advisor.tf.verify.rounding import relative_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.candidates.batch_split.plan import SplitPlan
    from placement_advisor.candidates.batch_split.split_graph import Merge
    from placement_advisor.tf.trace.bundle import Bundle

# Judgement: shares that compute something else do so for most samples.
_FEW = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A tensor of which shares make something else than the whole batch does.

    ``name`` is that in the step's graph, ``whole`` its value for the whole batch, ``parts`` those
    of the shares; ``merge`` puts them together along ``axis``.
    """

    name: str
    whole: Any
    parts: Sequence[Any]
    merge: Merge
    axis: int


def own_samples(
    step: Bundle,
    plan: SplitPlan,
    known: Mapping[str, Any],
    shares: Sequence[int],
    tensors: Sequence[Differing],
) -> set[str]:
    """Return those that differ in few samples, and whose parts no other sample changes.

    ``known`` are values within the step that stay as they are.
    """
    few = [tensor for tensor in tensors if _differs_in_few(tensor, shares)]
    own = {tensor.name for tensor in few}
    (batch, *_) = step.batches
    places = np.arange(sum(shares))
    for replica, (stop, share) in enumerate(zip(accumulate(shares), shares, strict=True)):
        if not own:
            break
        start = stop - share
        samples = start + (places - start) % share
        repeated = tuple(
            np.asarray(value)[samples] if plan.is_copied(name) else value
            for name, value in zip(step.inputs, batch, strict=True)
        )
        names, states = [tensor.name for tensor in few], [step.variables]
        (found,) = tensors_of(replace(step, batches=(repeated,)), names, states, known)
        for tensor, value in zip(few, found, strict=True):
            ours, theirs = (
                parts_of(each, shares, tensor.axis)[replica] for each in (value, tensor.whole)
            )
            if relative_difference(ours, theirs) > ROUNDING:
                own.discard(tensor.name)
    return own


def parts_of(value: Any, shares: Sequence[int], axis: int) -> list[Any]:
    """Return each share's part of a tensor with the same number of rows for each sample."""
    rows = value.shape[axis] // sum(shares)
    return np.split(value, [stop * rows for stop in accumulate(shares)][:-1], axis)


def _differs_in_few(tensor: Differing, shares: Sequence[int]) -> bool:
    size = sum(shares)
    if tensor.whole.shape[tensor.axis] % size:
        return False
    weights = [share / size for share in shares]
    put_together = dict(merged(tensor.parts, weights, tensor.axis))[tensor.merge]
    least = ROUNDING * largest(tensor.whole)
    samples = (parts_of(each, [1] * size, tensor.axis) for each in (put_together, tensor.whole))
    return sum(farthest(*pair) > least for pair in zip(*samples, strict=True)) < _FEW * size
