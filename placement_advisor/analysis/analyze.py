"""`advisor analyze`: load -> trace -> testbed and its costs -> candidates -> run -> verdict."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.analysis.prices import read_elsewhere
from placement_advisor.analysis.study import Study
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.candidates import batch_towers
from placement_advisor.candidates.batch_split.shares import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.families import NAMES, PER_DEVICE, PER_PAIR, check_names
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.clock import Clock
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.files.own_folders import scratch_folder
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.testbed_plan import (
    ONE_PROCESS,
    TestbedKind,
    plan_testbed,
    with_network,
)
from placement_advisor.processes.children import Child, ChildFailure, preload
from placement_advisor.testbed.testbed import STEP, Testbed
from placement_advisor.tf.answers import TracedSplit
from placement_advisor.tf.load.model_source import source_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.recorder import Recorder
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.answers import Traced

_SPLITTER = "placement_advisor.tf.split.split_workload"


def analyze(
    options: AnalyzeOptions, recording: Callable[[OpGraph], Recorder], watcher: Watcher
) -> Analysis:
    """Analyse a model.

    ``recording`` gives what keeps findings about a graph.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    _check(options)
    elsewhere = None
    if options.hardware is not None:
        elsewhere = read_elsewhere(options.hardware, options.costs)
        plan = elsewhere.plan()
    else:
        plan = plan_testbed(options.testbed, options.devices)
    if options.ratios is not None and len(options.ratios) != len(plan.devices):
        raise AdvisorError(
            f"--ratios: {len(options.ratios)} ratios for {len(plan.devices)} devices",
            hint="give one for each device",
        )
    if plan.not_run is None and not options.run:
        plan = replace(
            plan, kind=TestbedKind.NONE, cores=(), not_run="--no-run: no step was executed"
        )
    plan = with_network(
        plan,
        open_ports=options.open_ports,
        instead=f"--no-run only predicts; {ONE_PROCESS}",
        note=watcher.note,
    )
    clock = Clock()
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        with clock.stage("import"):
            watcher.working("importing TensorFlow", 0, 1)
            preload()
            loader = stack.enter_context(Child("loader"))
        bundle = scratch / "bundle"
        bundle.mkdir()
        traced = traced_model(options.source, bundle, loader, clock, watcher)
        runs = plan.not_run is None
        splits = split_batch(
            options, plan, traced, bundle if runs else None, loader, clock, watcher
        )
        study = Study(
            options,
            plan,
            traced,
            recording(traced.graph),
            bundle,
            scratch,
            clock,
            watcher,
            elsewhere,
            splits,
        )
        stack.callback(study.close)
        if runs:
            testbed = Testbed(plan, scratch=scratch)
            testbed.add_program(STEP, bundle, traced.graph)
            stack.callback(testbed.close)
            study.run(testbed, loader)
        else:
            loader.close()
            study.imagine()
        return study.analysis()


def split_batch(
    options: AnalyzeOptions,
    plan: TestbedPlan,
    traced: Traced,
    bundle: Path | None,
    loader: Child,
    clock: Clock,
    watcher: Watcher,
) -> dict[tuple[str, ...], TracedSplit | BatchSplitError]:
    """Split the batch of the traced model among devices, and among pairs of them, as asked for.

    Each split goes by the families that are of it. What is needed to run it goes into folders
    within ``bundle``; without that, no step runs.
    """
    found: dict[tuple[str, ...], TracedSplit | BatchSplitError] = {}
    for families in (PER_DEVICE, PER_PAIR):
        if not set(families).intersection(options.candidates or NAMES):
            continue
        try:
            samples = _samples(options, len(plan.devices), traced, families)
        except BatchSplitError as error:
            if options.ratios is not None and families == PER_DEVICE:
                raise AdvisorError(f"--ratios: {error.message}", hint=error.hint) from None
            found[families] = error
            continue
        folder = None if bundle is None else bundle / families[0]
        if folder is not None:
            folder.mkdir()
        with clock.stage("trace"):
            watcher.working("splitting the batch", 0, 1)
            answer = loader.call(
                f"{_SPLITTER}:split_workload",
                samples,
                None if folder is None else str(folder),
                time_limit_s=options.source.time_limit_s,
            )
        if isinstance(answer, ChildFailure):
            answer = BatchSplitError(f"splitting it failed: {answer.message}")
        elif families == PER_PAIR and isinstance(answer, TracedSplit):
            family = batch_towers.FAMILY
            graphs, weak = (
                {family: replace(of[BATCH], family=family)} for of in (answer.graphs, answer.weak)
            )
            answer = replace(answer, graphs=graphs, weak=weak)
        found[families] = answer
    return found


def _samples(
    options: AnalyzeOptions, devices: int, traced: Traced, families: tuple[str, ...]
) -> tuple[int, ...]:
    """Return the samples of each replica.

    Raises:
        BatchSplitError: there are none.
    """
    if traced.batch_size is None:
        raise BatchSplitError("the size of the batch is not known")
    ratios = list(options.ratios or [1.0] * devices)
    if families == PER_PAIR:
        cluster = assumed_cluster(devices)
        costs = roofline_by_place(traced.graph, cluster)
        within = batch_towers.within_a_pair(traced.graph, costs, cluster)
        if isinstance(within, NotApplicable):
            raise BatchSplitError(within.reason)
        ratios = batch_towers.by_pair(ratios)
    return shares_of(traced.batch_size, ratios)


def _check(options: AnalyzeOptions) -> None:
    """Refuse what cannot work before anything is started.

    Raises:
        AdvisorError: what is wrong, and what to do.
    """
    source_kind(Path(options.source.path))
    check_names(options.candidates or ())
