"""What runs of some splits of a model say of its other splits, on recorded models.

    PYTHONPATH=tests python tests/benchmarks/belief.py RECORDING…

Recordings are those of `record_runs`. Printed are the errors of predicted ratios before any run,
after all others have run, and after those that always run; and how many measured ratios lie in the
range that goes with them. With ``--fit``, printed before are the standard deviations that make the
recorded ratios most likely; the others still are those of `placement_advisor.simulator.belief`.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from record_runs import ELSEWHERE, Recording

from placement_advisor.analysis.doubts import MEASURED_DOUBT
from placement_advisor.analysis.refine import middle
from placement_advisor.candidates.choose import ALWAYS_RUN
from placement_advisor.measurement.verdict import paired_ratios
from placement_advisor.simulator.belief import COMMON, FACTORS, REST, Belief, Seen
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.simulator.simulator import Simulator
from placement_advisor.testbed.trial import BASELINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from placement_advisor.simulator.sensitivity import PredictedRatio

    Floats = NDArray[np.float64]

# Where a fit begins, and how it goes on: factors up and down, ever nearer to 1.
_FIRST = 0.2
_STRIDES = (2.0, 1.5, 1.2, 1.1)
_LEAST, _MOST = 0.01, 1.5
# A ratio that is off by more tells of a mistake, and must not decide what all others are worth.
_CLIPPED = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A recorded model: its splits as seen, and what is asked of them."""

    name: str
    seen: dict[str, Seen]
    believed: Callable[[Sequence[Seen]], Belief]

    def after(self, others: Iterable[str], label: str) -> PredictedRatio:
        """Return what is predicted of a split when others have run."""
        seen = [self.seen[other] for other in others if other != label]
        return self.believed(seen).ratio(self.seen[label].placement)

    def off(self, label: str, found: PredictedRatio) -> float:
        """Return how far a prediction is off, in proportion."""
        return found.ratio / self.seen[label].ratio - 1

    def equations(self) -> tuple[Floats, Floats, Floats]:
        """Return effects, what no cost as it is explains, and the variance of what was measured."""
        belief = self.believed(())
        seen = self.seen.values()
        return (
            np.array([belief.effects(each.placement) for each in seen]),
            np.array(
                [math.log(each.ratio / belief.ratio(each.placement).ratio) for each in seen]
            ).clip(-_CLIPPED, _CLIPPED),
            np.array([each.deviation**2 for each in seen]),
        )


def model(recording: Recording) -> Model:
    """Return a recorded model with its splits."""
    cluster = recording.costing.cluster
    costs = recording.costing.costs.everywhere(cluster)
    simulator = Simulator(recording.traced.graph, costs, cluster)
    alone = recording.splits[BASELINE]
    sensitivity = Sensitivity(simulator, alone.placement, MEASURED_DOUBT)
    seen = {}
    for label, split in recording.splits.items():
        if label in (BASELINE, ELSEWHERE):
            continue
        ratio, deviation = middle(paired_ratios(alone.rounds, split.rounds))
        seen[label] = Seen(placement=split.placement, ratio=ratio, deviation=deviation)
    return Model(
        name=recording.name,
        seen=seen,
        believed=lambda runs: Belief(sensitivity, alone.placement, runs),
    )


def fitted(models: Sequence[Model]) -> dict[str, float]:
    """Return the standard deviations under which the recorded ratios are most likely."""
    equations = [each.equations() for each in models]

    def unlikely(deviations: Floats) -> float:
        total = 0.0
        for effects, off, variance in equations:
            spread = effects @ np.diag(np.square(deviations[:-1])) @ effects.T
            spread += np.diag(variance + deviations[-1] ** 2)
            total += np.linalg.slogdet(spread)[1] + off @ np.linalg.solve(spread, off)
        return total

    found = np.full(len(FACTORS) + 2, _FIRST)
    least = unlikely(found)
    for stride in _STRIDES:
        is_better = True
        while is_better:
            is_better = False
            for i in range(len(found)):
                for factor in (stride, 1 / stride):
                    other = found.copy()
                    other[i] = np.clip(other[i] * factor, _LEAST, _MOST)
                    value = unlikely(other)
                    if value < least - 1e-6:
                        found, least, is_better = other, value, True
    return dict(zip([*FACTORS, "common", "rest"], found.tolist(), strict=True))


def _print(what: str, found: Sequence[tuple[Model, str, PredictedRatio]]) -> None:
    off = np.array([each.off(label, ratio) for each, label, ratio in found])
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
    parser.add_argument("--fit", action="store_true", help="find standard deviations as well")
    options = parser.parse_args()
    models = [model(Recording.load(path)) for path in options.recordings]
    if options.fit:
        print({name: round(found, 3) for name, found in fitted(models).items()})
        now = {name: factor.deviation for name, factor in FACTORS.items()}
        print({**now, "common": COMMON, "rest": REST})
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
