"""What is known of a model on devices before it runs: candidates, predictions, bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import Bound
from placement_advisor.candidates import batch_towers, searched
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.families import BAD_ON_PURPOSE, FAMILIES, SPLITS, propose
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.errors import BatchSplitError
from placement_advisor.graph.placement import Placement
from placement_advisor.measurement.compare import WORTHWHILE_RATIO
from placement_advisor.measurement.failure import Failure, FailureKind
from placement_advisor.measurement.laws import of_schedule
from placement_advisor.simulator.break_even import break_even
from placement_advisor.simulator.engine import Simulator
from placement_advisor.simulator.peak import shortages
from placement_advisor.simulator.sensitivity import Sensitivity
from placement_advisor.solvers.bounds.bound import bound_step
from placement_advisor.solvers.bounds.doubted import least_ratio_if_wrong
from placement_advisor.solvers.certificate import Certificate
from placement_advisor.solvers.step.latency import FAMILY as SEARCHED
from placement_advisor.solvers.step.latency import least_step
from placement_advisor.testbed.trial import BASELINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.analysis.prices import Prices
    from placement_advisor.analysis.recorder import Recorder
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.cost.collectives import CollectiveTimes
    from placement_advisor.cost.table import CostTable
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster
    from placement_advisor.measurement.measurement import BrokenLaw
    from placement_advisor.simulator.break_even import BreakEven
    from placement_advisor.simulator.schedule import Schedule
    from placement_advisor.simulator.sensitivity import PredictedRatio
    from placement_advisor.solvers.effort import Effort
    from placement_advisor.tf.answers import TracedSplit

# Where copies cost so much of what they cost here, a split is looked for that may win there.
# Judgement: a link of the next class (10 times), and next to free (1,000 times, as far as the
# break-even goes), for a unit of effort each, which is about a second. More places between would
# find splits that win sooner, and lengthen each analysis by as much.
_FASTER = (0.1, 0.001)
_UNITS_FOR_FASTER = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedSplit:
    """A step whose batch is split.

    ``costs`` has those of each graph on each device and host, ``weak_costs`` of those of weak
    scaling.
    ``collectives`` is None where none was timed: links are taken to carry them as all else.
    """

    traced: TracedSplit
    costs: Mapping[str, Mapping[str, CostTable]]
    weak_costs: Mapping[str, Mapping[str, CostTable]]
    collectives: CollectiveTimes | None = None


class Forecast:
    """The candidates for a graph on a cluster, and what is predicted for each.

    ``proposed`` has what each family that was asked for answers; ``predicted``, ``ratios`` and
    ``broken_laws`` grow with `predict`. What is predicted is kept at once.
    ``splits`` has what each split of the batch is of, by family; ``weak_step_ns`` its simulated
    step with the whole batch for every replica.
    """

    def __init__(
        self,
        graph: OpGraph,
        prices: Prices,
        families: Sequence[str],
        effort: Effort,
        recorder: Recorder,
        splits: Mapping[tuple[str, ...], PricedSplit | BatchSplitError],
    ) -> None:
        """Find the candidates, and make ready to simulate them with costs that may be wrong.

        ``splits`` has the step with its batch split, by the families that are of it, or says why
        there is none.
        """
        self._graph, self._prices, self._recorder = graph, prices, recorder
        self.cluster = prices.cluster
        self.simulator = Simulator(graph, prices.costs, prices.cluster)
        self._layer_of = searched.layers_of(graph)
        self.splits: dict[str, TracedSplit] = {}
        self._within: Placement | None = None
        self._split_simulators: dict[str, Simulator] = {}
        self.weak_step_ns: dict[str, int] = {}
        known = propose(tuple(FAMILIES), graph, prices.costs, prices.cluster)
        alone = known[BASELINE]
        assert isinstance(alone, Placement)
        if SEARCHED in families:
            known |= self._search(known, effort)
        for of, split in splits.items():
            known |= self._split(of, split)
        share = min(effort.units, _UNITS_FOR_FASTER)
        self._effort_for_faster_links = replace(effort, units=share)
        self.proposed = {
            label: answer
            for label, answer in known.items()
            if label == BASELINE or answer.family in families
        }
        self.predicted: dict[str, Schedule] = {}
        self.broken_laws: dict[str, tuple[BrokenLaw, ...]] = {}
        self.ratios: dict[str, PredictedRatio] = {}
        self._sensitivity = Sensitivity(self.simulator, alone, prices.doubt)
        own = [*self._of_whole_batch().values()]
        recorder.placements(graph, self.cluster, own)
        if self._within is not None:
            recorder.placements(graph, self._pair(), [self._within])

    @property
    def placements(self) -> dict[str, Placement]:
        """The candidates that there are, by label, the single device first."""
        return {n: p for n, p in self.proposed.items() if isinstance(p, Placement)}

    def predict(self, label: str) -> None:
        """Simulate a candidate and have the prediction kept."""
        placement = self.placements[label]
        simulator = self._split_simulators.get(label)
        schedule = (simulator or self.simulator).schedule(placement)
        self.predicted[label] = schedule
        self.broken_laws[label] = of_schedule(schedule)
        if label != BASELINE:
            self.ratios[label] = self._sensitivity.ratio(placement, simulator)
        self._recorder.prediction(label, schedule, self.ratios.get(label))

    def too_large(self, label: str) -> Failure | None:
        """Return why a predicted candidate does not fit, None if it does."""
        short = shortages(self.predicted[label].peak_memory, self.cluster.devices)
        message = "; ".join(map(str, short))
        return Failure(kind=FailureKind.DOES_NOT_FIT, message=message) if short else None

    def bound(self) -> Bound:
        """Return what no placement can beat, and have the certificate of it kept."""
        prices = self._prices
        lower = bound_step(self._graph, prices.costs, prices.cluster, self.simulator)
        certificate = Certificate(
            graph_fingerprint=self._graph.fingerprint,
            cluster=prices.cluster,
            costs=prices.costs,
            source=prices.source,
            bound=lower,
        )
        self._recorder.bound(self._graph, certificate)
        bound = Bound(
            lower=lower,
            single_ns=self.predicted[BASELINE].step_ns,
            source=prices.source,
            doubt=prices.doubt,
            ratio_if_wrong=None,
        )
        if not bound.proves_single:
            return bound
        ratio = least_ratio_if_wrong(self._graph, prices.costs, self._sensitivity)
        return replace(bound, ratio_if_wrong=ratio)

    def break_even(
        self, batch_size: int | None, candidates: Sequence[Candidate]
    ) -> BreakEven | None:
        """Sweep what would have to change for a split to win, of those that fit and did not fail.

        ``candidates`` have what was measured, by which predictions are corrected.
        """
        own, failed = self._of_whole_batch(), {c.name for c in candidates if c.failure is not None}
        if BASELINE in failed or self.too_large(BASELINE) is not None:
            return None
        baseline = own.pop(BASELINE)
        splits = [
            *(
                placement
                for name, placement in own.items()
                if name not in failed and len(set(placement.device_of.values())) > 1
            ),
            *self._for_faster_links(),
        ]
        labels = [split.label for split in splits]
        return break_even(
            self._graph,
            self.cluster,
            self.simulator,
            baseline=baseline,
            splits=tuple(splits),
            batch_size=batch_size,
            worthwhile_ratio=WORTHWHILE_RATIO,
            corrections=_corrections(labels, candidates),
        )

    def _of_whole_batch(self) -> dict[str, Placement]:
        """Return the candidates that place the step as it was traced."""
        return {n: p for n, p in self.placements.items() if n not in SPLITS}

    def _split(
        self, families: tuple[str, ...], split: PricedSplit | BatchSplitError
    ) -> dict[str, Placement | NotApplicable]:
        """Return the candidates of families that split the batch."""
        if isinstance(split, BatchSplitError):
            reason = split.message
            return {name: NotApplicable(family=name, reason=reason) for name in families}
        found: dict[str, Placement | NotApplicable] = {}
        for name in families:
            if name not in split.traced.graphs:
                uneven = (
                    "MirroredStrategy gives all devices the same number of samples, not "
                    f"{_sum(split.traced.samples)}"
                )
                found[name] = NotApplicable(family=name, reason=uneven)
                continue
            found[name] = placement = self._placed(name, split.traced.graphs, split.traced.samples)
            if isinstance(placement, NotApplicable):
                continue
            self.splits[name] = split.traced
            cluster = self.cluster
            if name == MIRRORED and split.collectives is not None:
                cluster = split.collectives.on(cluster)
            graph, weak = split.traced.graphs[name], split.traced.weak
            self._split_simulators[name] = Simulator(
                graph.graph, split.costs[name], cluster, collective_of=graph.collective_of
            )
            placed = self._placed(name, weak, split.traced.samples)
            assert isinstance(placed, Placement)
            alike = Simulator(weak[name].graph, split.weak_costs[name], cluster)
            self.weak_step_ns[name] = alike.step_ns(placed)
        return found

    def _placed(
        self, name: str, graphs: Mapping[str, SplitGraph], samples: tuple[int, ...]
    ) -> Placement | NotApplicable:
        """Return the placement of a step whose batch is split."""
        devices = self.cluster.device_names()
        if name == batch_towers.FAMILY:
            within = batch_towers.within_a_pair(self._graph, self._prices.costs, self.cluster)
            if isinstance(within, NotApplicable):
                return within
            self._within = within
            return batch_towers.on_pairs(graphs[name], within, devices, samples)
        rationales = {
            BATCH: f"one update of the variables on {devices[0]}",
            MIRRORED: "variables and updates on every device",
        }
        rationale = f"{_sum(samples)} samples side by side, {rationales[name]}"
        return graphs[name].placed(devices[: len(samples)], label=name, rationale=rationale)

    def _for_faster_links(self) -> Iterator[Placement]:
        """Yield what a search finds where copies cost less than here: splits that may win then."""
        for factor in _FASTER:
            cluster = self.cluster.scaled(copies=factor, launches=1)
            found = least_step(
                self._graph,
                cluster,
                self.simulator.on(cluster),
                tuple(self._of_whole_batch().values()),
                self._layer_of,
                self._effort_for_faster_links,
            )
            if not found.excess_bytes and len(set(found.placement.device_of.values())) > 1:
                yield replace(found.placement, label="searched for faster links")

    def _search(
        self, known: dict[str, Placement | NotApplicable], effort: Effort
    ) -> dict[str, Placement | NotApplicable]:
        graph, cluster, simulator = self._graph, self.cluster, self.simulator
        starts = _placements(known)
        alone = simulator.schedule(starts[0])
        if shortages(alone.peak_memory, cluster.devices):
            costs = self._prices.costs
            smallest = searched.propose_smallest(
                graph,
                costs,
                cluster,
                lambda part: _placements(propose(tuple(FAMILIES), graph, costs, part)),
                self._layer_of,
                effort,
            )
            return {SEARCHED: smallest}
        dearer = self._prices.doubt.copies
        best, cautious = searched.propose_both(
            graph, cluster, simulator, starts, self._layer_of, effort, dearer
        )
        return {SEARCHED: best, searched.CAUTIOUS: cautious}

    def _pair(self) -> Cluster:
        """Return a pair of the devices."""
        return replace(self.cluster, devices=self.cluster.devices[: batch_towers.GROUP])


def _corrections(labels: Sequence[str], candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return the measured over the predicted ratio of each split; nothing if none was measured.

    A split that did not run gets the median of those that did and are not bad on purpose.
    """
    seen = {
        c.name: c.comparison.ratio.median / c.predicted_ratio.ratio
        for c in candidates
        if c.name in labels and c.comparison and c.predicted_ratio and c.predicted_ratio.ratio
    }
    others = [seen[c.name] for c in candidates if c.name in seen and c.family not in BAD_ON_PURPOSE]
    if not seen:
        return {}
    middle = median(others or seen.values())
    return {label: seen.get(label, middle) for label in labels}


def _sum(samples: tuple[int, ...]) -> str:
    return " + ".join(map(str, samples))


def _placements(known: dict[str, Placement | NotApplicable]) -> tuple[Placement, ...]:
    return tuple(answer for answer in known.values() if isinstance(answer, Placement))
