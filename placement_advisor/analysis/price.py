"""What a step and the splits of its batch cost: assumed, recorded elsewhere, or measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from placement_advisor.analysis.doubts import MEASURED_DOUBT, assumed_doubt
from placement_advisor.analysis.durations import Stage
from placement_advisor.analysis.prices_elsewhere import Prices
from placement_advisor.candidates import references
from placement_advisor.candidates.batch_split.plan import SPLIT, share_folder
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis, CostSource, CostTable
from placement_advisor.errors import BatchSplitError
from placement_advisor.files.contract import ByName, Positive, Text, What
from placement_advisor.testbed.cost_measurement import (
    CostMeasurement,
    calibration_of,
    measure_costs,
    measure_shares,
    split_costs,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.analysis.apparatus import Apparatus
    from placement_advisor.analysis.course import Course
    from placement_advisor.analysis.prices_elsewhere import Elsewhere
    from placement_advisor.analysis.subject import Subject
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import TracedSplit

SharesCost = Annotated[Mapping[Positive, CostTable] | Text, What("costs by samples, or a text")]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The prices of a step, and of it with its batch split.

    ``splits`` go by the families that are of them; an error says why there is none.
    """

    prices: Prices
    splits: Mapping[tuple[str, ...], PricedSplit | BatchSplitError]


def assume_prices(subject: Subject, elsewhere: Elsewhere | None) -> Priced:
    """Return what all costs by assumption, here or ``elsewhere``.

    Raises:
        AdvisorError: the profile that was recorded elsewhere is not one of this model.
    """
    if elsewhere is not None:
        prices = elsewhere.prices(subject.traced)
    else:
        cluster = assumed_cluster(subject.options.devices)
        costs = roofline_by_place(subject.graph, cluster)
        prices = Prices(
            cluster=cluster,
            costs=costs,
            source=CostSource.ASSUMED,
            doubt=assumed_doubt(costs, cluster),
        )
    call = subject.traced.python_call
    if call is not None and prices.source is CostSource.ASSUMED:
        unknown = f"{call} calls Python, and how long that takes is not known: nothing ran"
        prices = replace(prices, notes=(*prices.notes, unknown))
    return priced_as(subject, prices)


def priced_as(subject: Subject, prices: Prices) -> Priced:
    """Return these prices of the step, with those that follow of the splits of its batch."""
    splits = {
        families: split
        if isinstance(split, BatchSplitError)
        else priced_as_unsplit(split, prices, subject.graph)
        for families, split in subject.splits.items()
    }
    return Priced(prices=prices, splits=splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """What was measured on one device, and of collectives: all that prices here rest on.

    ``shares`` has what shares of the batch cost by their samples, or says why they did not run, by
    the program that splits the batch. ``collectives`` is None where none was timed.
    """

    costing: CostMeasurement
    shares: ByName[SharesCost]
    collectives: CollectiveTimes | None


def measure_prices(subject: Subject, apparatus: Apparatus, course: Course) -> MeasuredCosts:
    """Start the testbed, and run the model and shares of its batch on the first device.

    Raises:
        TestbedError: it does not start, or the model does not run there.
    """
    testbed, watcher = apparatus.testbed, course.watcher
    course.begin(Stage.CALIBRATE)
    watcher.working("starting devices", 0, 1)
    testbed.start()
    calibration = calibration_of(testbed, watcher)
    course.begin(Stage.MEASURE)
    watcher.working("measuring op times on one device", 0, 1)
    costing = measure_costs(apparatus.trial, subject.plan, subject.traced, calibration)
    collectives = _start_mirrored(apparatus, watcher)
    shares: dict[str, SharesCost] = {}
    for program, split in _traced_splits(subject):
        watcher.working("measuring op times on shares of the batch", 0, 1)
        _add_programs(apparatus, program, split)
        tables = measure_shares(apparatus.trial, split, costing)
        shares[program] = tables.message if isinstance(tables, BatchSplitError) else tables
    return MeasuredCosts(costing=costing, shares=shares, collectives=collectives)


def start_again(subject: Subject, apparatus: Apparatus, course: Course) -> None:
    """Start the testbed with all that runs there, where costs were measured before.

    Raises:
        TestbedError: it does not start.
    """
    watcher = course.watcher
    course.begin(Stage.CALIBRATE)
    watcher.working("starting devices", 0, 1)
    apparatus.testbed.start()
    apparatus.trial.enter(references.on_device(subject.graph, subject.plan.devices[0].name))
    _start_mirrored(apparatus, watcher)
    for program, split in _traced_splits(subject):
        _add_programs(apparatus, program, split)


def priced_by(subject: Subject, measured: MeasuredCosts) -> Priced:
    """Return the prices of the step and of the splits of its batch, by what was measured."""
    costing = measured.costing
    splits: dict[tuple[str, ...], PricedSplit | BatchSplitError] = {}
    for families, split in subject.splits.items():
        if isinstance(split, BatchSplitError):
            splits[families] = split
            continue
        tables = measured.shares[families[0]]
        if isinstance(tables, str):
            splits[families] = BatchSplitError(tables)
            continue
        here, weak = (
            {name: table.everywhere(costing.cluster) for name, table in costs.items()}
            for costs in split_costs(split, tables, costing, measured.collectives)
        )
        splits[families] = PricedSplit(
            traced=split, costs=here, weak_costs=weak, collectives=measured.collectives
        )
    prices = Prices(
        cluster=costing.cluster,
        costs=costing.costs.everywhere(costing.cluster),
        source=CostSource.MEASURED,
        doubt=MEASURED_DOUBT,
    )
    return Priced(prices=prices, splits=splits)


def priced_as_unsplit(split: TracedSplit, prices: Prices, graph: OpGraph) -> PricedSplit:
    """Return what a split of the batch costs, by what the unsplit step of ``graph`` does.

    An op that was recorded there takes as many times what figures of devices say of it as it did in
    the recording.
    """
    is_recorded = prices.source is CostSource.RECORDED
    figures = roofline_by_place(graph, prices.cluster) if is_recorded else {}

    def price(step: SplitGraph) -> Mapping[str, CostTable]:
        by_figures = roofline_by_place(step.graph, prices.cluster)
        return _as_recorded(step, by_figures, prices, figures) if is_recorded else by_figures

    here, weak = (
        {name: price(step) for name, step in graphs.items()}
        for graphs in (split.graphs, split.weak)
    )
    return PricedSplit(traced=split, costs=here, weak_costs=weak)


def _as_recorded(
    step: SplitGraph,
    by_figures: Mapping[str, CostTable],
    prices: Prices,
    figures: Mapping[str, CostTable],
) -> dict[str, CostTable]:
    # Devices that are alike share a table.
    of_tables: dict[tuple[int, int], CostTable] = {}
    found = {}
    for place, table in by_figures.items():
        unsplit = prices.costs[place]
        alike = id(table), id(unsplit)
        if alike not in of_tables:
            costs = dict(table.costs)
            for name, (_, op) in step.source.items():
                recorded = unsplit.costs.get(op)
                if name in costs and recorded and recorded.basis is CostBasis.MEASURED:
                    whole_ns = figures[place].time_ns(op)
                    share = costs[name].time_ns / whole_ns if whole_ns else 1
                    costs[name] = replace(costs[name], time_ns=round(recorded.time_ns * share))
            of_tables[alike] = CostTable(costs=costs)
        found[place] = of_tables[alike]
    return found


def _traced_splits(subject: Subject) -> Iterator[tuple[str, TracedSplit]]:
    """Yield the splits of the batch that there are, with the program that each is."""
    for families, split in subject.splits.items():
        if not isinstance(split, BatchSplitError):
            yield families[0], split


def _start_mirrored(apparatus: Apparatus, watcher: ProgressReporter) -> CollectiveTimes | None:
    if apparatus.mirrored is None:
        return None
    watcher.working("measuring collectives", 0, 1)
    return apparatus.mirrored.start()


def _add_programs(apparatus: Apparatus, program: str, split: TracedSplit) -> None:
    """Have the testbed know a split of the batch and its shares."""
    testbed, folder = apparatus.testbed, apparatus.bundles / program
    testbed.add_program(program, folder / SPLIT, split.graphs[program].graph)
    for samples, share in split.shares.items():
        name = share_folder(samples)
        testbed.add_program(name, folder / name, share.graph)
