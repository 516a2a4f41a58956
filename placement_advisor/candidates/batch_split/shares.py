"""Samples of a batch for each replica, in proportion to ratios."""

from __future__ import annotations

from math import floor, isfinite
from typing import TYPE_CHECKING

from placement_advisor.errors import BatchSplitError

if TYPE_CHECKING:
    from collections.abc import Sequence


def shares_of(batch: int, ratios: Sequence[float]) -> tuple[int, ...]:
    """Return whole numbers of samples in proportion to the ratios; they make up the batch.

    What rounding leaves goes to those who lost most by it, the first of them on ties.

    Raises:
        BatchSplitError: a ratio that is not positive, or a share of no sample.
    """
    for ratio in ratios:
        if not (isfinite(ratio) and ratio > 0):
            raise BatchSplitError(
                f"{ratio:g} of {_text(ratios)} is not a positive number",
                hint="leave out a device that should get no samples",
            )
    if batch < len(ratios):
        raise BatchSplitError(
            f"a batch of {batch} has less than one sample for each of {len(ratios)} devices",
            hint="take a larger batch or fewer devices",
        )
    exact = [batch * ratio / sum(ratios) for ratio in ratios]
    shares = [floor(each) for each in exact]
    by_loss = sorted(range(len(ratios)), key=lambda i: shares[i] - exact[i])
    for i in by_loss[: batch - sum(shares)]:
        shares[i] += 1
    if 0 in shares:
        raise BatchSplitError(
            f"at {_text(ratios)} the share of device {shares.index(0)} in a batch of {batch} "
            "rounds to no sample",
            hint="take a larger batch, or leave that device out",
        )
    return tuple(shares)


def _text(ratios: Sequence[float]) -> str:
    return ":".join(f"{ratio:g}" for ratio in ratios)
