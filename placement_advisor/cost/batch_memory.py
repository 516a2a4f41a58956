"""What a step holds on one device against its batch, and the batches that a device's memory allows.

Model: variables stay whatever the batch, activations grow with it, so the peak of a device is a
line over its samples. A peak is the greatest of several such lines (at small batches an update can
hold more than the activations do), so the two largest batches tell most about larger ones. Left
out: what is held while shares are merged, and all that `simulator.memory` leaves out; both come on
top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.cost.batch import split_step, whole_tiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.cost.batch import BatchTime, SplitStep


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMemory:
    """The peak of a device as a line over its batch; neither part is negative."""

    fixed_bytes: int
    per_sample_bytes: float

    def peak_bytes(self, batch: int) -> int:
        """Return what a step of so many samples holds."""
        return round(self.fixed_bytes + self.per_sample_bytes * batch)

    def largest_batch(self, memory_bytes: int | None) -> int | None:
        """Return the most samples that fit; None for no limit that is known."""
        if memory_bytes is None:
            return None
        if memory_bytes < self.fixed_bytes:
            return 0
        if not self.per_sample_bytes:
            return None
        return int((memory_bytes - self.fixed_bytes) / self.per_sample_bytes)


def fit_batch_memory(peak_bytes: Mapping[int, int]) -> BatchMemory:
    """Return the line through the peaks of the two largest batches, by number of samples.

    One batch alone gives its peak for any batch.

    Raises:
        ValueError: no batch.
    """
    *smaller, most = sorted(peak_bytes)
    slope = 0.0
    if smaller:
        grown_bytes = peak_bytes[most] - peak_bytes[smaller[-1]]
        slope = max(0.0, grown_bytes / (most - smaller[-1]))
        # A peak that grows faster than the batch has no fixed part.
        slope = min(slope, peak_bytes[most] / most)
    return BatchMemory(fixed_bytes=round(peak_bytes[most] - slope * most), per_sample_bytes=slope)


def best_batch(cards: Sequence[BatchTime], most: Sequence[int | None]) -> SplitStep | None:
    """Return the step with most samples per second that fits the cards, merging left out.

    ``most`` are the samples that each card's memory holds. None where one is not known: throughput
    may then grow with the batch without end.

    While all cards are done together, throughput changes with the batch in one direction, so it is
    greatest where some card is full; the others get what they compute meanwhile. Each gets a
    multiple of `TILE`, unless it holds less.
    """
    limits = [whole_tiles(limit) for limit in most if limit is not None]
    if len(limits) < len(most):
        return None
    full_ns = [card.step_ns(limit) for card, limit in zip(cards, limits, strict=True) if limit]
    steps = [
        split_step(
            cards,
            [
                whole_tiles(card.largest_batch(step_ns, limit))
                for card, limit in zip(cards, limits, strict=True)
            ],
        )
        for step_ns in full_ns
    ]
    return max(steps, key=lambda step: step.most_samples_per_s, default=None)
