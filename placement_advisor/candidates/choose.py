"""Which candidates are run for real: running costs seconds each, predicting milliseconds.

All candidates are predicted. Those that run are the baseline, those that people make by hand
(`towers`, `batch`, `mirrored`), the one that explains the others (`alternating`, what copies cost
at worst), and the best few by prediction, of those that are not bad on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.candidates import alternating, single, towers
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.families import BAD_ON_PURPOSE

if TYPE_CHECKING:
    from collections.abc import Mapping

ALWAYS_RUN = frozenset({single.FAMILY, towers.FAMILY, alternating.FAMILY, BATCH, MIRRORED})
# Predictions are off by a tenth and more (docs/cost-model.md), so the best by prediction alone is
# not enough; and every candidate lengthens each round of the trial by its own steps.
BEST_BY_PREDICTION = 3


def to_run(predicted_ns: Mapping[str, int]) -> tuple[str, ...]:
    """Return which of the candidates to run, in the order given.

    ``predicted_ns`` has the predicted step time of each candidate that can run, by label.
    """
    others = [n for n in predicted_ns if n != single.FAMILY and n not in BAD_ON_PURPOSE]
    best = sorted(others, key=predicted_ns.__getitem__)[:BEST_BY_PREDICTION]
    return tuple(label for label in predicted_ns if label in ALWAYS_RUN or label in best)
