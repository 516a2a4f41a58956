"""Which candidates are run for real: running costs seconds each, predicting milliseconds.

All candidates are predicted. Rounds time the baseline, what the user has written, those that people
make by hand (`towers`, `batch`, `mirrored`), and a few others that by prediction have the best
chance to win.
What is there to be understood takes no time from these: it runs if it is asked for by name, and
`alternating`, which shows what copies cost at worst, for a few rounds of its own at the end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from placement_advisor.candidates import alternating, single, towers, towers_forward_only
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.families import BAD_ON_PURPOSE
from placement_advisor.defaults import AS_WRITTEN
from placement_advisor.simulator.belief import NINE_IN_TEN, REST

if TYPE_CHECKING:
    from collections.abc import Mapping

ALWAYS_RUN = frozenset({single.FAMILY, AS_WRITTEN, towers.FAMILY, BATCH, MIRRORED})
TO_UNDERSTAND = BAD_ON_PURPOSE | {towers_forward_only.FAMILY}
RUN_BRIEFLY = alternating.FAMILY
# Predictions are off by a tenth and more (docs/cost-model.md), so the best by prediction alone is
# not enough; and every candidate lengthens each round of the trial by its own steps.
BEST_BY_PREDICTION = 3
# What is predicted to take so many times as long as the best is the faster one in fewer than one
# case in twenty: the errors of two predictions, less what they have in common.
_HOPELESS = math.exp(NINE_IN_TEN * math.sqrt(2) * REST)


def to_run(predicted_ns: Mapping[str, int]) -> tuple[str, ...]:
    """Return which of the candidates to time in rounds, in the order given.

    ``predicted_ns`` has the predicted step time of each candidate that can run, by label.
    """
    others = [n for n in predicted_ns if n not in ALWAYS_RUN and n not in TO_UNDERSTAND]
    by_chance = sorted(others, key=predicted_ns.__getitem__)
    limit_ns = _HOPELESS * min(predicted_ns.values(), default=0)
    # The first one runs in any case: that splits lose is not concluded from predictions.
    best = [
        label
        for place, label in enumerate(by_chance[:BEST_BY_PREDICTION])
        if not place or predicted_ns[label] <= limit_ns
    ]
    return tuple(label for label in predicted_ns if label in ALWAYS_RUN or label in best)
