"""The sample analysis with splits of the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sample_analysis import sample

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis

MS = 1_000_000


def with_batch() -> Analysis:
    """Return the sample with its towers as if they were replicas of 16 samples each.

    What `mirrored` has with the whole batch on every device was run as well.
    """
    analysis = sample()
    towers = next(c for c in analysis.candidates if c.name == "towers")
    batch = replace(
        towers, name="batch", by_layer=None, samples=(16, 16), weak_predicted_ns=60 * MS
    )
    mirrored = replace(batch, name="mirrored", weak_measured_ns=(70 * MS, 80 * MS, 90 * MS))
    return replace(analysis, candidates=(*analysis.candidates, batch, mirrored))
