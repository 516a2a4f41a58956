"""How fast the user's input pipeline is when nothing waits for its batches but the clock."""

from __future__ import annotations

from dataclasses import dataclass

from placement_advisor.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTiming:
    """Batches of the user's dataset, taken one after the other with no step in between, measured.

    ``batch_ns`` has the time of each batch, warm-up left out. A pipeline that prefetches hands
    batches out in bursts, so that the mean and not the median tells its rate.
    ``transformations`` are the kinds of the dataset's transformations, source first, as TensorFlow
    calls them but for versions: ``TensorSliceDataset``, ``ParallelMapDataset``. They are empty
    where the dataset does not tell.
    """

    batch_ns: tuple[int, ...]
    transformations: tuple[str, ...]

    def samples_per_s(self, batch_size: int) -> float:
        """Return the rate, given the samples in a batch.

        Raises:
            ZeroDivisionError: the batches took no time.
        """
        return batch_size * len(self.batch_ns) * NS_PER_S / sum(self.batch_ns)
