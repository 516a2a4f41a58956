"""From which bandwidth, latency and batch on a split would win, swept through the simulator.

Model: one figure is changed at a time, from a fraction of today's to a multiple, and at each value
the fastest of the splits is compared with the baseline. A faster *bandwidth* shortens what a copy
takes for its bytes, on the wire and of work at its ends; a lower *latency* what it takes whatever
its size; slower ones lengthen the wire's part alone. Both are those of links between devices, all
in proportion, and are named by the slowest of them; links of hosts stay. The *batch* changes ops
and tensors as `simulator/step_growth.py` says; without traces at several batches it is not swept.
The step time need not follow a figure steadily, so a grid is swept first; the outermost place where
a split begins to win is then narrowed down, and how often that changes along the grid is counted.

Where splits ran, what they measured is known better than what the simulator says: a split's
simulated steps are all multiplied by what its measured ratio was over the predicted one. So a
prediction that its measurement refuted does not come back as a break-even. That an error stays the
same factor at other links and batches is an assumption.

Left out: placements other than those given, which another figure might call for; memory; and that
a step on several devices takes a time to start, which no link changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Link
    from placement_advisor.simulator.simulator import Simulator
    from placement_advisor.simulator.step_growth import GrowingStep

# From a network of 1 GB/s to the fastest links within a machine it is a factor of 1,000.
LINK_REACH = 1024
# A batch of 32 becomes one of 2,048: few models train well on more, or fit.
BATCH_REACH = 64
# Judgement: finer than any link or batch that one could choose, and twenty simulations for each
# axis in either direction.
_POINTS_PER_OCTAVE = 2
# Costs are not known that well (docs/explanation/cost-model.md), and each halving costs a
# simulation.
_CROSSING_PRECISION = 0.01
# What a search finds where copies cost less than here. It is no candidate, and tried here alone.
FOR_FASTER_LINKS = "searched for faster links"
# Copies that take nothing: times are whole ns.
_NEXT_TO_NOTHING = 1e-9


class Axis(StrEnum):
    """What is swept."""

    BANDWIDTH = "bandwidth"
    LATENCY = "latency"
    BATCH = "batch"


class BreakEvenOutcome(StrEnum):
    """Where a split wins along an axis: from a value on, throughout what was swept, or nowhere.

    ``THROUGHOUT`` is said of the end that is least good for splits; see `Sweep.changes`.
    """

    CROSSES = "crosses"
    THROUGHOUT = "throughout"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestSplit:
    """The fastest split, and its step time over that of the baseline."""

    split: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """The best split at one value of an axis: bytes per second, nanoseconds, or samples."""

    value: int
    best: BestSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What one axis shows.

    ``points`` stand by value, ``here`` is the one at today's value. ``wins_from`` is the least
    bandwidth, largest latency or smallest batch found at which a split wins, ``loses_at`` the value
    beside it at which none does; both are None unless the outcome is ``CROSSES``. ``changes`` says
    how often winning and losing change along the points: more than once, and there are values
    beyond ``wins_from`` at which no split wins.
    """

    axis: Axis
    outcome: BreakEvenOutcome
    here: SweepPoint
    points: tuple[SweepPoint, ...]
    wins_from: SweepPoint | None
    loses_at: SweepPoint | None
    changes: int

    def splits(self) -> tuple[str, ...]:
        """Return the splits that are the best at a point, or where a split begins to win."""
        return tuple(dict.fromkeys(p.best.split for p in (*self.points, self.wins_from) if p))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """What would have to change for a split to win, all simulated.

    A split wins where its ratio to the baseline is below ``worthwhile_ratio``. ``free_copies`` is
    the best split if copies between devices took no time. ``corrections`` has the factor for each
    split by which its simulated steps are multiplied; it is empty where none was measured. An axis
    is None where it has no value: the latency if links have none, the bandwidth if it has no end,
    the batch if none is known or what the step is at another; ``no_batch`` says why then, None if
    there is nothing to say.
    """

    baseline: str
    worthwhile_ratio: float
    free_copies: BestSplit
    bandwidth: Sweep | None
    latency: Sweep | None
    batch: Sweep | None
    corrections: Mapping[str, float]
    no_batch: str | None = None

    def splits(self) -> set[str]:
        """Return the splits that are the best anywhere."""
        return {self.free_copies.split}.union(*(sweep.splits() for sweep in self.sweeps()))

    def best_at(self, batch: int) -> BestSplit | None:
        """Return the best split at a batch, if there winning or losing is not in question.

        That is, where the points at either side of it agree on it.
        """
        points = () if self.batch is None else self.batch.points
        beside = [pair for pair in pairwise(points) if pair[0].value <= batch <= pair[1].value]
        wins = {p.best.ratio < self.worthwhile_ratio for pair in beside for p in pair}
        return beside[0][1].best if len(wins) == 1 else None

    def sweeps(self) -> tuple[Sweep, ...]:
        """Return the axes that were swept, in the order of the fields."""
        return tuple(s for s in (self.bandwidth, self.latency, self.batch) if s is not None)


def break_even(
    simulator: Simulator,
    *,
    baseline: Placement,
    splits: Sequence[Placement],
    growing: GrowingStep | AdvisorError | None,
    worthwhile_ratio: float,
    corrections: Mapping[str, float],
) -> BreakEven | None:
    """Return where the best of some splits begins to win; None without splits, or without links.

    ``growing`` is the step that is simulated at other batches, or why it is not known there, None
    without a batch; ``corrections`` are the factors of splits by label, all or none.

    Raises:
        PlacementError: a placement does not fit the graph and the cluster.
    """
    cluster = simulator.cluster
    links = cluster.device_links()
    if not splits or not links:
        return None
    here = simulator.places_of(baseline)
    places = {split.label: simulator.places_of(split) for split in splits}

    def best(simulator: Simulator) -> BestSplit:
        """Return the fastest split; of equally fast ones the first."""
        times_ns = {
            label: simulator.placed_step_ns(place) * corrections.get(label, 1)
            for label, place in places.items()
        }
        split = min(times_ns, key=times_ns.__getitem__)
        baseline_ns = max(1, simulator.placed_step_ns(here))
        return BestSplit(split=split, ratio=times_ns[split] / baseline_ns)

    def on(change: Callable[[Link], Link]) -> BestSplit:
        return best(simulator.on(cluster.with_device_links(change)))

    bandwidth = min(link.bandwidth_bytes_per_s for link in links)
    latency_ns = max(link.latency_ns for link in links)

    def at_bandwidth(value: int) -> BestSplit:
        factor = round(bandwidth) / value
        return on(lambda link: link.with_bytes_scaled(factor))

    def at_latency(value: int) -> BestSplit:
        return on(lambda link: link.with_latency_scaled(value / latency_ns))

    def sweep(axis: Axis, now: int, best_at: Callable[[int], BestSplit]) -> Sweep:
        reach = BATCH_REACH if axis is Axis.BATCH else LINK_REACH
        return _sweep(axis, now, reach, best_at, worthwhile_ratio)

    sweep_batch = None
    if growing is not None and not isinstance(growing, AdvisorError):
        step = growing
        try:
            sweep_batch = sweep(
                Axis.BATCH, step.growth.batch, lambda value: best(step.simulator(value))
            )
        except AdvisorError as error:  # At 64 times the batch, a step may take years.
            growing = error
    is_finite = bandwidth < math.inf
    return BreakEven(
        baseline=baseline.label,
        worthwhile_ratio=worthwhile_ratio,
        free_copies=on(
            lambda link: link.with_latency_scaled(0).with_bytes_scaled(_NEXT_TO_NOTHING)
        ),
        bandwidth=sweep(Axis.BANDWIDTH, round(bandwidth), at_bandwidth) if is_finite else None,
        latency=sweep(Axis.LATENCY, latency_ns, at_latency) if latency_ns else None,
        batch=sweep_batch,
        corrections=corrections,
        no_batch=growing.message if isinstance(growing, AdvisorError) else None,
    )


def _sweep(
    axis: Axis, here: int, reach: int, best_at: Callable[[int], BestSplit], worthwhile: float
) -> Sweep:
    """Sweep from ``here / reach`` to ``here * reach`` and narrow the outermost crossing down."""

    def at(value: int) -> SweepPoint:
        return SweepPoint(value=value, best=best_at(value))

    def wins(point: SweepPoint) -> bool:
        return point.best.ratio < worthwhile

    points = tuple(at(value) for value in _grid(here, reach))
    # From the end that is least good for splits.
    outward = points[::-1] if axis is Axis.LATENCY else points
    first = next((i for i, point in enumerate(outward) if wins(point)), None)
    outcome, wins_from, loses_at = BreakEvenOutcome.NOWHERE, None, None
    if first == 0:
        outcome = BreakEvenOutcome.THROUGHOUT
    elif first is not None:
        outcome = BreakEvenOutcome.CROSSES
        loses_at, wins_from = outward[first - 1], outward[first]
        while (middle := _between(loses_at.value, wins_from.value)) is not None:
            point = at(middle)
            loses_at, wins_from = (loses_at, point) if wins(point) else (point, wins_from)
    return Sweep(
        axis=axis,
        outcome=outcome,
        here=next(point for point in points if point.value == here),
        points=points,
        wins_from=wins_from,
        loses_at=loses_at,
        changes=sum(wins(one) != wins(other) for one, other in pairwise(points)),
    )


def _grid(here: int, reach: int) -> list[int]:
    """Return values about ``here``, evenly spaced by factor, ``here`` among them."""
    steps = _POINTS_PER_OCTAVE * round(math.log2(reach))
    return sorted(
        {
            max(1, round(here * 2 ** (step / _POINTS_PER_OCTAVE)))
            for step in range(-steps, steps + 1)
        }
    )


def _between(one: int, other: int) -> int | None:
    """Return the value halfway by factor, None if they are next to each other or near enough."""
    low, high = sorted((one, other))
    if high <= low * (1 + _CROSSING_PRECISION):
        return None
    middle = round(math.sqrt(low * high))
    return middle if low < middle < high else low + 1 if high - low > 1 else None
