"""The costs of a step and its batch splits: assumed, recorded elsewhere, or measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from placement_advisor.analysis import target_costs
from placement_advisor.analysis.progress import AnalysisProgress, Stage
from placement_advisor.candidates import references
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.plan import SPLIT, share_folder
from placement_advisor.candidates.families import PER_DEVICE
from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.cost.table import CostBasis, CostSource, CostTable
from placement_advisor.errors import BatchSplitError
from placement_advisor.files.contract import ByName, Positive, Text, What
from placement_advisor.testbed import cost_measurement
from placement_advisor.testbed.benchmark import Benchmark, ProgressReporter
from placement_advisor.testbed.mirrored_testbed import MirroredTestbed
from placement_advisor.testbed.testbed import STEP, ProcessLauncher, Testbed
from placement_advisor.tf.answers import TracedSplit

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.tracing import AnalysisRequest
    from placement_advisor.candidates.batch_split.split_graph import SplitGraph
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.processes.children import Child


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedSession:
    """A testbed with a trial on it, and the loader, which has the user's own step.

    ``mirrored`` is what a mirrored step runs on, None if there is none to run. ``bundles`` is the
    folder of what is needed to run the step, with one in it for each split of its batch.
    """

    __test__ = False

    testbed: Testbed
    trial: Benchmark
    mirrored: MirroredTestbed | None
    loader: Child
    bundles: Path

    def close(self) -> None:
        """End all processes but the loader."""
        if self.mirrored is not None:
            self.mirrored.close()
        self.testbed.close()


def make_testbed_session(
    request: AnalysisRequest,
    loader: Child,
    bundles: Path,
    scratch: Path,
    watcher: ProgressReporter,
    site: ProcessLauncher | None,
) -> TestbedSession:
    """Return what the request runs on, on a site or this machine; no process has started yet."""
    testbed = Testbed(request.plan, scratch=scratch, site=site)
    testbed.add_program(STEP, bundles, request.graph)
    trial = Benchmark(
        testbed,
        steps=request.options.steps,
        watcher=watcher,
        line_of=request.traced.update_lines(),
        joining=request.options.refine,
    )
    mirrored = None
    split = request.splits.get(PER_DEVICE)
    is_wanted = MIRRORED in request.options.families
    if is_wanted and isinstance(split, TracedSplit) and MIRRORED in split.graphs:
        mirrored = MirroredTestbed(
            testbed,
            request.options.source,
            bundles,
            request.traced.created,
            captured=request.traced.captured,
            program=PER_DEVICE[0],
            draws=split.draws,
            statistics=split.statistics,
        )
    return TestbedSession(
        testbed=testbed, trial=trial, mirrored=mirrored, loader=loader, bundles=bundles
    )


ShareCosts = Annotated[Mapping[Positive, CostTable] | Text, What("costs by samples, or a text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCosts:
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
class AllCosts:
    """The prices of a step, and of it with its batch split.

    ``splits`` go by the families that are of them; an error says why there is none.
    """

    prices: target_costs.StepCosts
    splits: Mapping[tuple[str, ...], SplitCosts | BatchSplitError]


def assume_costs(request: AnalysisRequest, target: target_costs.TargetHardware | None) -> AllCosts:
    """Return what all costs by assumption, here or on ``target``.

    Raises:
        AdvisorError: the profile that was recorded is not one of this model.
    """
    if target is not None:
        prices = target.prices(request.traced)
    else:
        cluster = assumed_cluster(request.options.devices)
        costs = roofline_by_place(request.graph, cluster)
        prices = target_costs.StepCosts(
            cluster=cluster,
            costs=costs,
            source=CostSource.ASSUMED,
            doubt=target_costs.assumed_uncertainty(costs, cluster),
        )
    call = request.traced.python_call
    if call is not None and prices.is_assumed:
        unknown = f"{call} calls Python, and how long that takes is not known: nothing ran"
        prices = replace(prices, notes=(*prices.notes, unknown))
    return costs_from(request, prices)


def costs_from(request: AnalysisRequest, prices: target_costs.StepCosts) -> AllCosts:
    """Return these prices of the step, with those that follow of the splits of its batch."""
    splits = {
        families: split
        if isinstance(split, BatchSplitError)
        else split_costs_from_unsplit(split, prices, request.graph)
        for families, split in request.splits.items()
    }
    return AllCosts(prices=prices, splits=splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """What was measured on one device, and of collectives: all that prices here rest on.

    ``shares`` has what shares of the batch cost by their samples, or says why they did not run, by
    the program that splits the batch. ``collectives`` is None where none was timed.
    """

    costing: cost_measurement.CostMeasurement
    shares: ByName[ShareCosts]
    collectives: CollectiveTimes | None


def measure_costs_of_step(
    request: AnalysisRequest, session: TestbedSession, progress: AnalysisProgress
) -> MeasuredCosts:
    """Start the testbed, and run the model and shares of its batch on the first device.

    Raises:
        TestbedError: it does not start, or the model does not run there.
    """
    watcher = progress.watcher
    _start(session, progress)
    calibration = cost_measurement.calibration_of(session.testbed, watcher)
    progress.begin(Stage.MEASURE)
    watcher.working("measuring op times on one device", 0, 1)
    costing = cost_measurement.measure_costs(
        session.trial, request.plan, request.traced, calibration
    )
    collectives = _start_mirrored(session, watcher)
    shares: dict[str, ShareCosts] = {}
    for program, split in _traced_splits(request):
        watcher.working("measuring op times on shares of the batch", 0, 1)
        _add_programs(session, program, split)
        tables = cost_measurement.measure_shares(session.trial, split, costing)
        shares[program] = tables.message if isinstance(tables, BatchSplitError) else tables
    return MeasuredCosts(costing=costing, shares=shares, collectives=collectives)


def restart_testbed(
    request: AnalysisRequest, session: TestbedSession, progress: AnalysisProgress
) -> None:
    """Start the testbed with all that runs there, where costs were measured before.

    Raises:
        TestbedError: it does not start.
    """
    _start(session, progress)
    session.trial.enter(references.on_device(request.graph, request.plan.devices[0].name))
    _start_mirrored(session, progress.watcher)
    for program, split in _traced_splits(request):
        _add_programs(session, program, split)


def costs_from_measured(request: AnalysisRequest, measured: MeasuredCosts) -> AllCosts:
    """Return the prices of the step and of the splits of its batch, by what was measured."""
    costing = measured.costing
    splits: dict[tuple[str, ...], SplitCosts | BatchSplitError] = {}
    for families, split in request.splits.items():
        if isinstance(split, BatchSplitError):
            splits[families] = split
            continue
        tables = measured.shares[families[0]]
        if isinstance(tables, str):
            splits[families] = BatchSplitError(tables)
            continue
        here, weak = (
            {name: table.everywhere(costing.cluster) for name, table in costs.items()}
            for costs in cost_measurement.split_costs(split, tables, costing, measured.collectives)
        )
        splits[families] = SplitCosts(
            traced=split, costs=here, weak_costs=weak, collectives=measured.collectives
        )
    prices = target_costs.StepCosts(
        cluster=costing.cluster,
        costs=costing.costs.everywhere(costing.cluster),
        source=CostSource.MEASURED,
        doubt=target_costs.MEASURED_UNCERTAINTY,
    )
    return AllCosts(prices=prices, splits=splits)


def split_costs_from_unsplit(
    split: TracedSplit, prices: target_costs.StepCosts, graph: OpGraph
) -> SplitCosts:
    """Return what a split of the batch costs, by what the unsplit step of ``graph`` does.

    An op that was recorded there takes as many times what figures of devices say of it as it did in
    the recording.
    """
    is_recorded = prices.source is CostSource.RECORDED
    figures = roofline_by_place(graph, prices.cluster) if is_recorded else {}

    def price(step: SplitGraph) -> Mapping[str, CostTable]:
        by_figures = roofline_by_place(step.graph, prices.cluster)
        return (
            _recorded_split_costs(step, by_figures, prices, figures) if is_recorded else by_figures
        )

    here, weak = (
        {name: price(step) for name, step in graphs.items()}
        for graphs in (split.graphs, split.weak)
    )
    return SplitCosts(traced=split, costs=here, weak_costs=weak)


def _recorded_split_costs(
    step: SplitGraph,
    by_figures: Mapping[str, CostTable],
    prices: target_costs.StepCosts,
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


def _traced_splits(request: AnalysisRequest) -> Iterator[tuple[str, TracedSplit]]:
    """Yield the splits of the batch that there are, with the program that each is."""
    for families, split in request.splits.items():
        if not isinstance(split, BatchSplitError):
            yield families[0], split


def _start(session: TestbedSession, progress: AnalysisProgress) -> None:
    progress.begin(Stage.CALIBRATE)
    progress.watcher.working("starting devices", 0, 1)
    session.testbed.start()


def _start_mirrored(session: TestbedSession, watcher: ProgressReporter) -> CollectiveTimes | None:
    if session.mirrored is None:
        return None
    watcher.working("measuring collectives", 0, 1)
    return session.mirrored.start()


def _add_programs(session: TestbedSession, program: str, split: TracedSplit) -> None:
    """Have the testbed know a split of the batch and its shares."""
    testbed, folder = session.testbed, session.bundles / program
    testbed.add_program(program, folder / SPLIT, split.graphs[program].graph)
    for samples, share in split.shares.items():
        name = share_folder(samples)
        testbed.add_program(name, folder / name, share.graph)
