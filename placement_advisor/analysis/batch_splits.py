"""The batch of a traced model split among devices, and among pairs of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import PER_DEVICE, PER_PAIR
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError
from placement_advisor.processes.calls import CallFailure
from placement_advisor.simulator.step_growth import TIMES, StepGrowth
from placement_advisor.tf.answers import TracedSplit
from placement_advisor.tf.calls import splitter

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.processes.children import Child
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import Traced


def split_batch(
    options: AnalyzeOptions,
    devices: int,
    traced: Traced,
    bundle: Path | None,
    loader: Child,
    watcher: ProgressReporter,
) -> dict[tuple[str, ...], TracedSplit | BatchSplitError]:
    """Split the batch of the traced model among devices, and among pairs of them, as asked for.

    Each split goes by the families that are of it. What is needed to run it goes into folders
    within ``bundle``; without that, no step runs.

    Raises:
        AdvisorError: the ratios that were asked for give a device no sample.
    """
    found: dict[tuple[str, ...], TracedSplit | BatchSplitError] = {}
    for families in (PER_DEVICE, PER_PAIR):
        if not set(families).intersection(options.families):
            continue
        try:
            samples = _samples(options, devices, traced, families)
        except BatchSplitError as error:
            if options.ratios is not None and families == PER_DEVICE:
                raise AdvisorError(f"--ratios: {error.message}", hint=error.hint) from None
            found[families] = error
            continue
        watcher.working("splitting the batch", 0, 1)
        folder = None if bundle is None else bundle / families[0]
        found[families] = _split(loader, families, samples, folder, options.source.time_limit_s)
    return found


def growth_of(
    loader: Child, traced: Traced, time_limit_s: float
) -> StepGrowth | BatchSplitError | None:
    """Return how the traced step grows with its batch, or why that is not known.

    None where it has no batch.
    """
    batch = traced.batch_size
    if batch is None:
        return None
    larger: dict[int, OpGraph] = {}
    for times in TIMES:
        answer = loader.call(splitter.trace_repeated, times, time_limit_s=time_limit_s)
        if isinstance(answer, CallFailure):
            return BatchSplitError(f"tracing {times} times its batch failed: {answer.message}")
        if isinstance(answer, BatchSplitError):
            return answer
        larger[times] = answer
    try:
        return StepGrowth(traced.graph, batch, larger)
    except BatchSplitError as error:
        return error


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
        within = towers.within_a_pair(traced.graph, costs, cluster)
        if isinstance(within, NotApplicable):
            raise BatchSplitError(within.reason)
        ratios = towers.by_pair(ratios)
    return shares_of(traced.batch_size, ratios)


def _split(
    loader: Child,
    families: tuple[str, ...],
    samples: tuple[int, ...],
    folder: Path | None,
    time_limit_s: float,
) -> TracedSplit | BatchSplitError:
    if folder is not None:
        folder.mkdir()
    answer = split_among(loader, samples, folder, time_limit_s)
    if families == PER_PAIR and isinstance(answer, TracedSplit):
        graphs, weak = (
            {towers.BATCH_TOWERS: replace(of[BATCH], family=towers.BATCH_TOWERS)}
            for of in (answer.graphs, answer.weak)
        )
        return replace(answer, graphs=graphs, weak=weak)
    return answer


def split_among(
    loader: Child, samples: tuple[int, ...], folder: Path | None, time_limit_s: float
) -> TracedSplit | BatchSplitError:
    """Return the traced step with so many samples for each replica, or why there is none."""
    where = None if folder is None else str(folder)
    answer = loader.call(splitter.split_workload, samples, where, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        return BatchSplitError(f"splitting it failed: {answer.message}")
    return answer
