"""How fast the user's input pipeline delivers batches, timed alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTiming:
    """The time of each batch, warm-up left out, and the kinds of the transformations.

    ``transformations`` are those of the `tf.data` pipeline, source first, as TensorFlow calls them:
    ``TensorSliceDataset``, ``MapDataset``, ``BatchDatasetV2``, ``PrefetchDataset``.
    """

    batch_ns: tuple[int, ...]
    transformations: tuple[str, ...]
