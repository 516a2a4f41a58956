"""What runs of some splits of a model say of its other splits, on recorded models.

    PYTHONPATH=tests python tests/benchmarks/belief.py RECORDING…

Recordings are those of `record_runs`. Printed are the errors of predicted ratios before any run,
after all others have run, and after those that always run; and how many measured ratios lie in the
range that goes with them. Printed before are the standard deviations that make the recorded ratios
most likely; predictions have those of `placement_advisor.simulator.sensitivity`.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from record_runs import ELSEWHERE, Recording

from placement_advisor.analysis.runs import median_and_deviation
from placement_advisor.analysis.target_costs import MEASURED_UNCERTAINTY
from placement_advisor.candidates.families import ALWAYS_RUN
from placement_advisor.defaults import BASELINE
from placement_advisor.measurement.measurement import paired_ratios
from placement_advisor.simulator.sensitivity import (
    COMMON,
    REST,
    MeasuredRatio,
    PredictionCorrection,
    Sensitivity,
)
from placement_advisor.simulator.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.simulator.sensitivity import PredictedRatio

_TRIED = [n / 100 for n in range(1, 31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A recorded model with its splits as seen, by label."""

    seen: dict[str, MeasuredRatio]
    sensitivity: Sensitivity

    def after(self, others: Iterable[str], label: str) -> PredictedRatio:
        """Return what is predicted of a split when others have run."""
        seen = [self.seen[other] for other in others if other != label]
        return PredictionCorrection(self.sensitivity, seen).ratio(self.seen[label].placement)


def model(recording: Recording) -> Model:
    """Return a recorded model with its splits."""
    cluster = recording.costing.cluster
    costs = recording.costing.costs.everywhere(cluster)
    simulator = Simulator(recording.traced.graph, costs, cluster)
    alone = recording.splits[BASELINE]
    seen = {}
    for label, split in recording.splits.items():
        if label not in (BASELINE, ELSEWHERE):
            ratio, deviation = median_and_deviation(paired_ratios(alone.rounds, split.rounds))
            seen[label] = MeasuredRatio(placement=split.placement, ratio=ratio, deviation=deviation)
    return Model(
        seen=seen, sensitivity=Sensitivity(simulator, alone.placement, MEASURED_UNCERTAINTY)
    )


def most_likely(models: Sequence[Model]) -> tuple[float, float]:
    """Return the deviations, in common and of the rest, under which the ratios are most likely."""
    known = [
        (
            np.array([math.log(seen.ratio / each.after((), n).ratio) for n, seen in items]),
            np.array([seen.deviation**2 for _, seen in items]),
        )
        for each in models
        if (items := each.seen.items())
    ]

    def unlikely(deviations: tuple[float, float]) -> float:
        common, rest = deviations
        total = 0.0
        for off, variance in known:
            spread = np.diag(variance + rest**2) + common**2
            total += np.linalg.slogdet(spread)[1] + off @ np.linalg.solve(spread, off)
        return total

    return min(product(_TRIED, _TRIED), key=unlikely)


def _print(what: str, found: Sequence[tuple[Model, str, PredictedRatio]]) -> None:
    off = np.array([ratio.ratio / each.seen[label].ratio - 1 for each, label, ratio in found])
    inside = sum(r.low <= each.seen[label].ratio <= r.high for each, label, r in found)
    width = median(ratio.high / ratio.low for _, _, ratio in found)
    print(
        f"{what:<28} {len(off):>4}  median {np.median(abs(off)):6.1%}  "
        f"p90 {np.quantile(abs(off), 0.9):6.1%}  bias {np.median(off):+6.1%}  "
        f"in range {inside / len(off):4.0%}, ends {width:.2f}x apart"
    )


def main() -> None:
    """Print what comes out for some recordings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recordings", type=Path, nargs="+")
    options = parser.parse_args()
    models = [model(Recording.load(path)) for path in options.recordings]
    print(f"most likely: {most_likely(models)}, as they are: {(COMMON, REST)}")
    splits = [(each, label) for each in models for label in each.seen]
    usual = [(each, label) for each, label in splits if label not in ALWAYS_RUN]
    _print("before any run", [(m, label, m.after((), label)) for m, label in splits])
    _print("after all others", [(m, label, m.after(m.seen, label)) for m, label in splits])
    _print("those not always run: before", [(m, label, m.after((), label)) for m, label in usual])
    _print(
        "after those always run",
        [(m, label, m.after(ALWAYS_RUN & m.seen.keys(), label)) for m, label in usual],
    )


if __name__ == "__main__":
    main()
