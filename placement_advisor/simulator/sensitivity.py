"""Predicted ratios of placements have a range, as costs are known only within limits.

The ratio of two placements depends on what copies and launches cost relative to the ops. Both
are taken at their least and at their most, in all four combinations. Ratios that were
measured narrow the range for the splits that have not run: in logarithms, a measured ratio is
the simulated one plus an error common to all splits of the model plus an independent error,
both normal with mean zero. The common error is estimated by its posterior. Standard
deviations come from recorded models (docs/explanation/cost-model.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from placement_advisor.files.contract import Count, Ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.simulator.simulator import Simulator


Factor = Annotated[float, Ge(1.0), Le(1e9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostUncertainty:
    """How wrong costs may be, by factors: copies up to ``copies`` either way, launches likewise.

    ``ops`` is for the time of all ops of one placement against those of another.
    Launches that no run has shown may cost nothing at all: what splits gain by launching in several
    threads has been measured by nobody, and has to stay worth it without.
    """

    copies: Factor
    launches: Factor
    ops: Factor
    may_hide_launches: bool = False

    @property
    def ways(self) -> tuple[tuple[float, float], ...]:
        """What copies and launches may cost, in times of what they are taken to cost, together."""
        least = 0 if self.may_hide_launches else 1 / self.launches
        return tuple(product((1 / self.copies, self.copies), (least, self.launches)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRatio:
    """Step time over that of the baseline as simulated, and its ends.

    ``low`` and ``high`` are what it may be where costs are wrong by as much as ``doubt`` says, or,
    where ``runs`` splits had run by then, as far off as these were.
    """

    ratio: Ratio
    low: Ratio
    high: Ratio
    doubt: CostUncertainty
    runs: Count = 0


def predicted_ratio(ratios: Sequence[float], doubt: CostUncertainty) -> PredictedRatio:
    """Return a ratio by what it is with costs as they are, then in each of the doubt's ways."""
    return PredictedRatio(
        ratio=ratios[0], low=min(ratios) / doubt.ops, high=max(ratios) * doubt.ops, doubt=doubt
    )


class Sensitivity:
    """Ratios of placements to a baseline, under costs that may be wrong."""

    def __init__(self, simulator: Simulator, baseline: Placement, doubt: CostUncertainty) -> None:
        """Simulate the baseline on the simulator's cluster, and on what it may be in truth."""
        self._doubt = doubt
        self._simulators = self._on_all(simulator)
        self._baseline_ns = [max(1, each.step_ns(baseline)) for each in self._simulators]

    @property
    def doubt(self) -> CostUncertainty:
        """How wrong costs may be."""
        return self._doubt

    def if_wrong(self) -> Iterator[tuple[Simulator, int]]:
        """Yield a simulator of costs as they are, and of each way in which they may be wrong.

        With it comes the step time of the baseline there.
        """
        yield from zip(self._simulators, self._baseline_ns, strict=True)

    def ratio(self, placement: Placement, other: Simulator | None = None) -> PredictedRatio:
        """Return the ratio of a placement to the baseline.

        ``other`` is the simulator of another graph that the placement is of.

        Raises:
            PlacementError: it does not fit the graph and the cluster.
        """
        simulators = self._simulators if other is None else self._on_all(other)
        place = simulators[0].places_of(placement)
        ratios = [
            simulator.placed_step_ns(place) / baseline_ns
            for simulator, baseline_ns in zip(simulators, self._baseline_ns, strict=True)
        ]
        return predicted_ratio(ratios, self._doubt)

    def _on_all(self, simulator: Simulator) -> list[Simulator]:
        wrong = (
            simulator.on(simulator.cluster.scaled(copies=copies, launches=launches))
            for copies, launches in self._doubt.ways
        )
        return [simulator, *wrong]


# Standard deviations of logarithms: of what all splits of a model have in common, and of the rest.
COMMON, REST = 0.10, 0.12
# Nine in ten of what is normal lie within so many standard deviations.
NINE_IN_TEN = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRatio:
    """A placement that ran: its measured ratio, and the standard deviation of its logarithm."""

    placement: Placement
    ratio: float
    deviation: float


class PredictionCorrection:
    """What is believed of a model's splits, once some have run."""

    def __init__(self, sensitivity: Sensitivity, seen: Sequence[MeasuredRatio]) -> None:
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
