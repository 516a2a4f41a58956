"""How far costs are off for one model, as splits of it have shown that ran.

Model: all costs of a kind are off by one factor (`_FACTORS`). The logarithms of these factors are
normal, around none before any run. In logarithms, a measured ratio is the simulated one, plus those
of the factors, each times what the simulated ratio does with it, plus an amount that all splits of
the model have in common, plus what is left of each. That is a linear model with normal terms, whose
posterior has a closed form. Standard deviations are those that make the ratios of recorded models
most likely (`tests/benchmarks/belief.py`).

Left out: splits of the batch, which are other graphs, neither teach nor learn; what a simulated
ratio does with a factor is taken once, around the costs as they are.

Source: Bishop, Pattern Recognition and Machine Learning (2006), section 3.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.simulator.sensitivity import PredictedRatio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Link
    from placement_advisor.simulator.sensitivity import Sensitivity
    from placement_advisor.simulator.simulator import Simulator

    Floats = NDArray[np.float64]

# Over this factor up and down, what a simulated ratio does with a cost is taken.
_REACH = 1.4
# Nine in ten of what is normal lie within so many standard deviations.
NINE_IN_TEN = 1.645
# Standard deviations of the logarithms of what no factor explains: of all splits of a model
# together, and of each alone.
COMMON, REST = 0.07, 0.08


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Costs that are off together: ``deviation`` is that of the factor's logarithm.

    ``change`` returns a cluster where they are multiplied.
    """

    deviation: float
    change: Callable[[Cluster, float], Cluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A placement that ran: its measured ratio, and the standard deviation of its logarithm."""

    placement: Placement
    ratio: float
    deviation: float


def _copies(change: Callable[[Link, float], Link]) -> Callable[[Cluster, float], Cluster]:
    return lambda cluster, factor: replace(
        cluster, links=tuple(change(link, factor) for link in cluster.links)
    )


def _wire(link: Link, factor: float) -> Link:
    return replace(link.scaled(factor), sender=link.sender, receiver=link.receiver)


def _quantum(cluster: Cluster, factor: float) -> Cluster:
    dispatch = cluster.dispatch
    quantum_ns = round(dispatch.quantum_ns * factor)
    return replace(cluster, dispatch=replace(dispatch, quantum_ns=quantum_ns))


def _remote(cluster: Cluster, factor: float) -> Cluster:
    scaled = cluster.scaled(copies=factor, launches=1)
    return replace(cluster, devices=scaled.devices, dispatch=scaled.dispatch)


FACTORS: Mapping[str, Factor] = {
    "wire": Factor(deviation=0.6, change=_copies(_wire)),
    "sending": Factor(
        deviation=0.15,
        change=_copies(lambda link, factor: replace(link, sender=link.sender.scaled(factor))),
    ),
    "receiving": Factor(
        deviation=0.25,
        change=_copies(lambda link, factor: replace(link, receiver=link.receiver.scaled(factor))),
    ),
    "launches": Factor(
        deviation=0.15, change=lambda cluster, factor: cluster.scaled(copies=1, launches=factor)
    ),
    "quantum": Factor(deviation=0.6, change=_quantum),
    "remote": Factor(deviation=1.0, change=_remote),
}


class Belief:
    """What is believed of the factors, and what that says of placements."""

    def __init__(self, sensitivity: Sensitivity, baseline: Placement, seen: Sequence[Seen]) -> None:
        """Learn from what has been seen.

        ``sensitivity`` is that of the ratios to the baseline.
        """
        self._sensitivity, self._runs = sensitivity, len(seen)
        self._simulator, _ = next(sensitivity.if_wrong())
        self._alone = _logarithm(self._simulator, baseline)
        self._around = [
            tuple(
                (changed, _logarithm(changed, baseline))
                for changed in (
                    self._simulator.on(each.change(self._simulator.cluster, factor))
                    for factor in (_REACH, 1 / _REACH)
                )
            )
            for each in FACTORS.values()
        ]
        spreads = [*(each.deviation for each in FACTORS.values()), COMMON]
        self._mean: Floats = np.zeros(len(spreads))
        self._covariance: Floats = np.diag(np.square(spreads))
        if seen:
            self._learn(seen)

    def ratio(self, placement: Placement) -> PredictedRatio:
        """Return what the ratio of a placement is believed to be.

        Nine in ten of such ratios are meant to lie between its ends.

        Raises:
            PlacementError: it does not fit the graph and the cluster.
        """
        simulated, effects = self._simulated(placement), self.effects(placement)
        ratio = math.exp(simulated + float(effects @ self._mean))
        variance = float(effects @ self._covariance @ effects) + REST**2
        ends = math.exp(NINE_IN_TEN * math.sqrt(variance))
        return PredictedRatio(
            ratio=ratio,
            low=ratio / ends,
            high=ratio * ends,
            doubt=self._sensitivity.doubt,
            runs=self._runs,
        )

    def simulator(self, caution: float) -> Simulator:
        """Return one with costs as they are believed to be.

        Each factor is ``caution`` standard deviations above where it is most likely.
        """
        cluster = self._simulator.cluster
        deviations = np.sqrt(np.maximum(np.diag(self._covariance), 0))
        logarithms = self._mean + caution * deviations
        for factor, logarithm in zip(FACTORS.values(), logarithms[:-1], strict=True):
            cluster = factor.change(cluster, math.exp(logarithm))
        return self._simulator.on(cluster)

    def effects(self, placement: Placement) -> Floats:
        """Return what the logarithm of a ratio gains with that of each factor, and in common.

        Raises:
            PlacementError: the placement does not fit the graph and the cluster.
        """
        found = []
        for (more, more_alone), (less, less_alone) in self._around:
            moved = _logarithm(more, placement) - more_alone
            moved -= _logarithm(less, placement) - less_alone
            found.append(moved / (2 * math.log(_REACH)))
        return np.array([*found, 1.0])

    def _learn(self, seen: Sequence[Seen]) -> None:
        effects = np.array([self.effects(each.placement) for each in seen])
        off = np.array([math.log(each.ratio) - self._simulated(each.placement) for each in seen])
        left = np.diag([each.deviation**2 + REST**2 for each in seen])
        spread = self._covariance @ effects.T
        gain = np.linalg.solve(effects @ spread + left, spread.T).T
        self._mean = gain @ off
        self._covariance = self._covariance - gain @ spread.T

    def _simulated(self, placement: Placement) -> float:
        return _logarithm(self._simulator, placement) - self._alone


def _logarithm(simulator: Simulator, placement: Placement) -> float:
    """Return that of the step time, of one that takes none as of a nanosecond."""
    return math.log(max(1, simulator.step_ns(placement)))
