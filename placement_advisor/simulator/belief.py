"""By how much splits of one model take longer than simulated, as those have shown that ran.

Model: in logarithms, a measured ratio is the simulated one, plus an amount that all splits of the
model have in common, plus a rest of its own. Both are normal around nothing. What has run gives the
common amount by the posterior of a normal mean. Standard deviations are judged by recorded models
(`tests/benchmarks/belief.py`).

Left out: splits of the batch, which are other graphs, neither teach nor learn. That one kind of
cost is off and others are not, which is what runs do not tell well enough
(docs/decisions/0030-runs-correct-predictions.md).

Source: Gelman et al., Bayesian Data Analysis (2013), section 2.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placement_advisor.simulator.sensitivity import PredictedRatio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.sensitivity import Sensitivity

# Standard deviations of logarithms: of what all splits of a model have in common, and of the rest.
COMMON, REST = 0.10, 0.12
# Nine in ten of what is normal lie within so many standard deviations.
NINE_IN_TEN = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A placement that ran: its measured ratio, and the standard deviation of its logarithm."""

    placement: Placement
    ratio: float
    deviation: float


class Belief:
    """What is believed of a model's splits, once some have run."""

    def __init__(self, sensitivity: Sensitivity, seen: Sequence[Seen]) -> None:
        """Learn from what has been seen; ``sensitivity`` is that of the ratios."""
        self._sensitivity, self._runs = sensitivity, len(seen)
        weights = [1 / (each.deviation**2 + REST**2) for each in seen]
        self._variance = 1 / (1 / COMMON**2 + sum(weights))
        self._mean = self._variance * sum(
            weight * math.log(each.ratio / self._simulated(each.placement))
            for weight, each in zip(weights, seen, strict=True)
        )

    def ratio(self, placement: Placement) -> PredictedRatio:
        """Return what the ratio of a placement is believed to be.

        Nine in ten of such ratios are meant to lie between its ends.

        Raises:
            PlacementError: it does not fit the graph and the cluster.
        """
        ratio = self._simulated(placement) * math.exp(self._mean)
        ends = math.exp(NINE_IN_TEN * math.sqrt(self._variance + REST**2))
        return PredictedRatio(
            ratio=ratio,
            low=ratio / ends,
            high=ratio * ends,
            doubt=self._sensitivity.doubt,
            runs=self._runs,
        )

    def _simulated(self, placement: Placement) -> float:
        return self._sensitivity.ratio(placement).ratio
