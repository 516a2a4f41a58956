"""Loads and traces a model in a child process, also with its batch split and at other batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.candidates import towers
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.families import PER_DEVICE, PER_PAIR
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError, ScriptEndedError
from placement_advisor.processes import calls
from placement_advisor.processes.children import Child, preload
from placement_advisor.simulator.step_growth import TIMES, GrowingStep, StepGrowth
from placement_advisor.tf import answers
from placement_advisor.tf.calls import splitter, tracer
from placement_advisor.tf.load.model_source import ModelSource, SourceKind, source_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placement_advisor.analysis.options import AnalyzeOptions
    from placement_advisor.analysis.target_costs import StepCosts
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.testbed.benchmark import ProgressReporter


T = TypeVar("T")

_HINTS = {
    calls.FailureCause.CRASHED: (
        "the file's own code ended the process; run it with python to see why"
    ),
    calls.FailureCause.TIMED_OUT: "raise --time-limit, or look for an endless loop",
    calls.FailureCause.OUT_OF_MEMORY: "make the model or its example data smaller",
}


def traced_model(
    source: ModelSource, bundle: Path | None, loader: Child, watcher: ProgressReporter
) -> answers.Traced:
    """Load and trace a model in the child; what is needed to run it goes into the folder, if any.

    Raises:
        ModelError: it cannot be loaded or traced, or not be run by others if that is asked for.
    """
    load_model(source, loader, watcher)
    traced = trace_loaded(source, bundle, loader, watcher)
    if bundle is not None:
        check_runs(traced, source)
    return traced


def check_runs(traced: answers.Traced, source: ModelSource) -> None:
    """Check that processes other than the one that has loaded a step can run it.

    Raises:
        ModelError: it calls Python.
    """
    if traced.python_call is not None:
        raise ModelError(
            f"{source.path}: {traced.name}: {traced.python_call} calls Python, which stays with "
            "the process that made it: no placement of this step can run",
            hint="replace tf.py_function and tf.numpy_function by TensorFlow ops; `advisor "
            "analyze` predicts such a step",
        )


def load_model(source: ModelSource, loader: Child, watcher: ProgressReporter) -> None:
    """Load a model in the child, and say what was taken.

    Raises:
        ModelError: it cannot be loaded.
    """
    calls.register_secrets(source.arguments)
    is_script = source_kind(Path(source.path)) is SourceKind.PYTHON
    limit_s = source.capture_timeout_s if is_script else source.time_limit_s
    path = source.path
    watcher.working(f"running {path} up to its steps" if is_script else f"loading {path}", 0, 1)
    try:
        chosen = loader.call(tracer.load_workload, source, time_limit_s=limit_s)
    except ScriptEndedError as error:
        printed = loader.printed.strip()
        said = f"; it printed:\n{printed}" if printed else ""
        raise ScriptEndedError(f"{error.message}{said}", hint=error.hint) from None
    if (
        is_script
        and isinstance(chosen, calls.CallFailure)
        and chosen.cause is calls.FailureCause.TIMED_OUT
    ):
        place = _last_user_line(chosen, Path(path))
        raise ModelError(
            f"{place}: no step was seen within {limit_s:g} s",
            hint="wait longer with --capture-timeout SECONDS (advisor check: --time-limit), or "
            "let the script reach its first step sooner. A loop needs fit, a tf.function "
            "or a tf.GradientTape to be seen",
        )
    watcher.note(f"{path}: {calls.expect(chosen, partial(child_ended, source, 'loading'))}")


def trace_loaded(
    source: ModelSource, bundle: Path | None, loader: Child, watcher: ProgressReporter
) -> answers.Traced:
    """Trace the model that the child has loaded; see `traced_model`.

    Raises:
        ModelError: it cannot be traced.
    """
    watcher.working("tracing", 0, 1)
    answer = loader.call(
        tracer.trace_workload,
        source.path,
        None if bundle is None else str(bundle),
        time_limit_s=source.time_limit_s,
    )
    traced = calls.expect(answer, partial(child_ended, source, "tracing"))
    return replace(traced, printed=loader.printed)


def trace_model(source: ModelSource, watcher: ProgressReporter) -> answers.Traced:
    """Load and trace a model in a child of its own; nothing is kept to run it.

    Raises:
        ModelError: it cannot be loaded or traced.
    """
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        return traced_model(source, None, loader, watcher)


def child_ended(source: ModelSource, stage: str, failure: calls.CallFailure) -> ModelError:
    """Return what to say of a child that runs the user's file and has ended."""
    place = _last_user_line(failure, Path(source.path))
    printed = failure.output_tail.strip()
    tail = f"\nIt last printed:\n{printed}" if printed else ""
    return ModelError(
        f"{place}: {stage} failed: {failure.message}{tail}", hint=_HINTS[failure.cause]
    )


def _last_user_line(failure: calls.CallFailure, path: Path) -> str:
    """Return the file and line of the user's code that ran last, if known, else the model file."""
    for file, line in failure.stack:
        if calls.is_user_code(file, path):
            return f"{file}:{line}"
    return str(path)


def split_batch(
    options: AnalyzeOptions,
    devices: int,
    traced: answers.Traced,
    bundle: Path | None,
    loader: Child,
    watcher: ProgressReporter,
    *,
    weak: bool = True,
) -> dict[tuple[str, ...], answers.TracedSplit | BatchSplitError]:
    """Split the batch of the traced model among devices, and among pairs of them, as asked for.

    Each split goes by the families that are of it. What is needed to run it goes into folders
    within ``bundle``; without that, no step runs. Without ``weak``, weak scaling is left out.

    Raises:
        AdvisorError: the ratios that were asked for give a device no sample.
    """
    found: dict[tuple[str, ...], answers.TracedSplit | BatchSplitError] = {}
    for families in (PER_DEVICE, PER_PAIR):
        if not set(families).intersection(options.families):
            continue
        try:
            samples = _samples_per_replica(options, devices, traced, families)
        except BatchSplitError as error:
            if options.ratios is not None and families == PER_DEVICE:
                raise AdvisorError(f"--ratios: {error.message}", hint=error.hint) from None
            found[families] = error
            continue
        watcher.working("splitting the batch", 0, 1)
        folder = None if bundle is None else bundle / families[0]
        if folder is not None:
            folder.mkdir()
        split = split_among(loader, samples, folder, options.source.time_limit_s, weak=weak)
        if families == PER_PAIR and isinstance(split, answers.TracedSplit):
            graphs, weak_graphs = (
                {towers.BATCH_TOWERS: replace(of[BATCH], family=towers.BATCH_TOWERS)} if of else {}
                for of in (split.graphs, split.weak)
            )
            split = replace(split, graphs=graphs, weak=weak_graphs)
        found[families] = split
    return found


def growth_of(
    loader: Child, traced: answers.Traced, time_limit_s: float
) -> StepGrowth | BatchSplitError | None:
    """Return how the traced step grows with its batch, or why that is not known.

    None where it has no batch.
    """
    batch = traced.batch_size
    if batch is None:
        return None
    larger: dict[int, OpGraph] = {}
    for times in TIMES:
        answer = trace_repeated(loader, times, time_limit_s)
        if isinstance(answer, BatchSplitError):
            return answer
        larger[times] = answer
    try:
        return StepGrowth(traced.graph, batch, larger)
    except BatchSplitError as error:
        return error


def trace_repeated(loader: Child, times: int, time_limit_s: float) -> OpGraph | BatchSplitError:
    """Return the traced step with so many times its batch, or why there is none."""
    answer = loader.call(splitter.trace_repeated, times, time_limit_s=time_limit_s)
    return or_error(answer, f"tracing {times} times its batch")


def or_error(answer: T | BatchSplitError | calls.CallFailure, doing: str) -> T | BatchSplitError:
    """Return an answer of the loader, or why it failed to do it."""
    if isinstance(answer, calls.CallFailure):
        return BatchSplitError(f"{doing} failed: {answer.message}")
    return answer


def _samples_per_replica(
    options: AnalyzeOptions, devices: int, traced: answers.Traced, families: tuple[str, ...]
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


def split_among(
    loader: Child,
    samples: tuple[int, ...],
    folder: Path | None,
    time_limit_s: float,
    *,
    weak: bool = True,
) -> answers.TracedSplit | BatchSplitError:
    """Return the traced step with so many samples for each replica, or why there is none."""
    where = None if folder is None else str(folder)
    answer = loader.call(splitter.split_workload, samples, where, weak, time_limit_s=time_limit_s)
    return or_error(answer, "splitting it")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest:
    """What was asked, what is planned for it, and what was traced.

    ``splits`` has the step with its batch split, by the families that are of it, or says why there
    is none. ``growth`` is how it grows with its batch, or why that is not known; None where it has
    none, or nobody asked.
    """

    options: AnalyzeOptions
    plan: TestbedPlan
    traced: answers.Traced
    splits: Mapping[tuple[str, ...], answers.TracedSplit | BatchSplitError]
    growth: StepGrowth | BatchSplitError | None

    def growing(self, prices: StepCosts) -> GrowingStep | BatchSplitError | None:
        """Return the step with its costs at any batch; see ``growth``."""
        if not isinstance(self.growth, StepGrowth):
            return self.growth
        return GrowingStep(self.growth, prices.costs, prices.cluster)

    @property
    def graph(self) -> OpGraph:
        """The step as it was traced."""
        return self.traced.graph
