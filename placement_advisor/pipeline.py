"""One function per command; each wires the stages together.

`analyze`: load -> trace -> testbed and its costs -> candidates -> simulate, written to disk ->
run -> profile -> compare -> recommend -> reports. `trace`: load -> trace -> graph file.
`balance`: load -> trace at several batch sizes -> time each device alone -> shares.
`draw_graph`: graph file -> picture. `calibrate`: testbed -> its figures -> cluster file. What is
written appears only when it is complete.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement_advisor.balancing import (
    Splits,
    memory_of,
    time_devices,
    with_every_device,
)
from placement_advisor.batch_split.programs import SPLIT, share_folder
from placement_advisor.batch_split.shares import shares_of
from placement_advisor.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.calibration import calibration_file, stored_calibration
from placement_advisor.candidates import batch_towers
from placement_advisor.candidates.families import NAMES, PER_DEVICE, PER_PAIR, check_names
from placement_advisor.candidates.not_applicable import NotApplicable
from placement_advisor.children import Child, ChildFailure, preload
from placement_advisor.clock import Clock
from placement_advisor.cost.balance import (
    Balance,
    best_by_lines,
    largest_alone,
    other_batches,
    sizes_to_time,
)
from placement_advisor.cost.batch import split_step
from placement_advisor.cost.batch_memory import best_batch
from placement_advisor.cost.calibrated import calibrated_cluster
from placement_advisor.cost.calibration_summary import (
    CLUSTER_FILE_HEAD,
    CalibrationSummary,
    with_peaks,
)
from placement_advisor.cost.links import assumed_cluster
from placement_advisor.cost.roofline import roofline_by_place
from placement_advisor.costing import calibrated
from placement_advisor.elsewhere import read_elsewhere
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError, TestbedError
from placement_advisor.fingerprints import calibration_fingerprint
from placement_advisor.graph import OpGraph
from placement_advisor.model_source import source_kind
from placement_advisor.output_file import output_file
from placement_advisor.output_folder import output_folder
from placement_advisor.own_folders import scratch_folder
from placement_advisor.placement import Placement
from placement_advisor.report.write import write_analysis, write_reports
from placement_advisor.study import AnalyzeOptions, Study
from placement_advisor.testbed import STEP, Testbed, TestbedKind, plan_testbed, with_network
from placement_advisor.tf.answers import TracedSplit
from placement_advisor.user_code import is_user_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.analysis import Analysis
    from placement_advisor.model_source import ModelSource
    from placement_advisor.testbed import TestbedPlan
    from placement_advisor.tf.answers import Traced, TracedShare
    from placement_advisor.trial import Watcher

_TRACER = "placement_advisor.tf.tracer"
_SPLITTER = "placement_advisor.tf.split_workload"
_ONE_PROCESS = "--testbed logical-cpus takes one process, which listens on nothing"


def analyze(options: AnalyzeOptions, watcher: Watcher) -> Analysis:
    """Analyse a model and write the reports.

    Raises:
        AdvisorError: anything that the user can fix; nothing is written then.
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
        instead=f"--no-run only predicts; {_ONE_PROCESS}",
        note=watcher.note,
    )
    clock = Clock()
    with ExitStack() as stack:
        staging = stack.enter_context(output_folder(options.output))
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
            options, plan, traced, staging, bundle, scratch, clock, watcher, elsewhere, splits
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
        analysis = study.analysis()
        with clock.stage("report"):
            watcher.working("writing reports", 0, 1)
            write_reports(analysis, staging)
        analysis = replace(analysis, timings_ns=clock.timings_ns())
        write_analysis(analysis, staging)
    return analysis


def traced_model(
    source: ModelSource, bundle: Path | None, loader: Child, clock: Clock, watcher: Watcher
) -> Traced:
    """Load and trace a model in the child; what is needed to run it goes into the folder, if any.

    Raises:
        ModelError: it cannot be loaded or traced.
    """
    with clock.stage("load"):
        watcher.working(f"loading {source.path}", 0, 1)
        answer = loader.call(
            f"{_TRACER}:load_workload",
            source.path,
            source.name,
            source.mode,
            source.batch_size,
            source.outputs,
            time_limit_s=source.time_limit_s,
        )
        watcher.note(f"{source.path}: {_must_answer(answer, source, 'loading')}")
    with clock.stage("trace"):
        watcher.working("tracing", 0, 1)
        answer = loader.call(
            f"{_TRACER}:trace_workload",
            source.path,
            None if bundle is None else str(bundle),
            time_limit_s=source.time_limit_s,
        )
        traced: Traced = _must_answer(answer, source, "tracing")
    return traced


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


def balance(
    source: ModelSource,
    testbed: TestbedKind | None,
    devices: int,
    memory_bytes: Sequence[int] | None,
    open_ports: bool,
    watcher: Watcher,
) -> Balance:
    """Time a model alone on each device at several batch sizes, and share its batch among them.

    ``memory_bytes`` are those of each device, or of all; None for what the devices say.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    source_kind(Path(source.path))
    plan = plan_testbed(testbed, devices)
    if plan.not_run is not None:
        raise TestbedError(f"nothing to time: {plan.not_run}", hint="see `advisor doctor`")
    plan = with_network(plan, open_ports=open_ports, instead=_ONE_PROCESS, note=watcher.note)
    if memory_bytes is not None:
        plan = _with_memory(plan, memory_bytes)
    clock = Clock()
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        loader = stack.enter_context(Child("loader"))
        traced = traced_model(source, None, loader, clock, watcher)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        even = shares_of(batch, [1.0] * len(plan.devices))
        watcher.working("tracing other batch sizes", 0, 1)
        steps = _StepsAtBatches(source, traced.name, loader, scratch)
        shares = steps.traced(sizes_to_time(batch))
        memory = memory_of({samples: share.graph for samples, share in shares.items()})
        alone = largest_alone(batch, plan.devices, memory)
        if alone < batch:
            shares = steps.traced(sizes_to_time(alone))
        running = Testbed(plan, scratch=scratch)
        stack.callback(running.close)
        watcher.working("starting devices", 0, 1)
        running.start()
        bundles = {samples: scratch / share_folder(samples) for samples in shares}
        speeds = time_devices(running, shares, bundles, watcher)
        most = [memory.largest_batch(device.memory_bytes) for device in plan.devices]
        by_lines = best_by_lines(speeds, batch, most)
        splits = Splits(running, steps.split, most, watcher)
        warnings, advised = list(plan.warnings), by_lines.batches
        try:
            if splits.fit(even):
                splits.time([even])
            advised = splits.search(with_every_device(advised))
        except BatchSplitError as error:
            warnings.append(f"no split was run: {error.message}")
        running.close()
    return Balance(
        model=source.path if source.name is None else f"{source.path}:{source.name}",
        testbed=plan.description,
        batch=batch,
        batch_was_asked=source.batch_size is not None,
        devices=speeds,
        memory=memory,
        most=tuple(most),
        best=by_lines,
        even=split_step([speed.line for speed in speeds], even, None),
        others=other_batches(speeds, batch, most),
        best_batch=best_batch([speed.line for speed in speeds], most),
        advised=advised,
        tried=splits.tried(),
        warnings=tuple(warnings),
    )


def trace(source: ModelSource, output: Path, watcher: Watcher) -> Traced:
    """Trace a model and write its graph file.

    Raises:
        AdvisorError: anything that the user can fix; nothing is written then.
    """
    model = Path(source.path)
    source_kind(model)
    clock = Clock()
    with ExitStack() as stack:
        put = stack.enter_context(output_file(output, option="-o", read=model))
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        loader = stack.enter_context(Child("loader"))
        traced = traced_model(source, None, loader, clock, watcher)
        watcher.working(f"writing {output}", 0, 1)
        put(lambda path: traced.graph.save(path, traced.requested_device_of))
    return traced


def calibrate(
    testbed: TestbedKind | None,
    devices: int,
    output: Path | None,
    open_ports: bool,
    watcher: Watcher,
) -> CalibrationSummary:
    """Measure a testbed anew, keep what was found, and write its cluster file if one is asked for.

    Raises:
        AdvisorError: anything that the user can fix; no cluster file is written then.
    """
    plan = plan_testbed(testbed, devices)
    if plan.not_run is not None:
        raise TestbedError(
            f"nothing to calibrate: {plan.not_run}",
            hint="`advisor doctor` says what can run here; --hardware needs no calibration",
        )
    if output is not None and output.suffix != ".toml":
        raise AdvisorError(f"-o {output}: not the name of a cluster file", hint="end it in .toml")
    plan = with_network(plan, open_ports=open_ports, instead=_ONE_PROCESS, note=watcher.note)
    with ExitStack() as stack:
        put = stack.enter_context(output_file(output, option="-o")) if output else None
        scratch = stack.enter_context(scratch_folder())
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        running = Testbed(plan, scratch=scratch)
        stack.callback(running.close)
        watcher.working("starting devices", 0, 1)
        running.start()
        calibration = calibrated(running, watcher, anew=True)
        running.close()
        cluster = calibrated_cluster(
            plan.devices, calibration, launch_overhead_ns=calibration.op_ns
        )
        cluster = with_peaks(cluster, calibration)
        if put is not None:
            from placement_advisor.cluster_file import cluster_as_toml

            text = CLUSTER_FILE_HEAD + cluster_as_toml(cluster)
            put(lambda path: _write(path, text))
    name = calibration_fingerprint(plan)
    is_kept = stored_calibration(name) == calibration
    return CalibrationSummary(
        testbed=plan.kind.value,
        description=plan.description,
        tensorflow_version=version("tensorflow"),
        fingerprint=name,
        calibration=calibration,
        cluster=cluster,
        kept_in=str(calibration_file(name)) if is_kept else None,
        cluster_file=None if output is None else str(output),
        warnings=plan.warnings,
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def draw_graph(file: Path, png: Path, placement: Path | None, depth: int | None) -> None:
    """Draw the layers of a graph file, in the colours of a placement's devices if there is one.

    Raises:
        AdvisorError: a file cannot be read, does not fit the other, or cannot be written.
    """
    from placement_advisor.report.layer_boxes import layer_boxes
    from placement_advisor.report.layer_picture import draw_layers

    with output_file(png, option="--png", read=file) as put:
        graph = OpGraph.load(file)
        placed = None if placement is None else Placement.load(placement, graph)
        boxes = layer_boxes(graph, file.name, depth=depth, placement=placed)
        put(lambda path: draw_layers(boxes, path))


def _with_memory(plan: TestbedPlan, memory_bytes: Sequence[int]) -> TestbedPlan:
    """Return the plan with a memory for each device, or one for all.

    Raises:
        AdvisorError: neither as many as devices nor one.
    """
    count = len(plan.devices)
    each = [*memory_bytes] * count if len(memory_bytes) == 1 else memory_bytes
    if len(each) != count:
        raise AdvisorError(
            f"--memory: {len(each)} sizes for {count} devices",
            hint="give one for each device, or one for all",
        )
    devices = (replace(d, memory_bytes=m) for d, m in zip(plan.devices, each, strict=True))
    return replace(plan, devices=tuple(devices))


class _StepsAtBatches:
    """A traced model at other sizes of its batch, and with its batch split."""

    def __init__(self, source: ModelSource, name: str, loader: Child, scratch: Path) -> None:
        self._source, self._name = source, name
        self._loader, self._scratch = loader, scratch

    def traced(self, sizes: tuple[int, ...]) -> Mapping[int, TracedShare]:
        """Trace the step at batch sizes; what is needed to run it goes into `share_folder`.

        Raises:
            ModelError: it cannot be traced there.
        """
        shares = self._answer("trace_shares", sizes, self._scratch, "tracing other batch sizes")
        if isinstance(shares, BatchSplitError):
            raise ModelError(f"{self._source.path}: {self._name}: {shares.message}")
        found: Mapping[int, TracedShare] = shares
        return found

    def split(self, samples: tuple[int, ...]) -> tuple[TracedSplit, Path]:
        """Split the batch; return the split step and the folder of what is needed to run it.

        Raises:
            BatchSplitError: it cannot be split so.
        """
        folder = self._scratch / ":".join(map(str, samples))
        folder.mkdir(exist_ok=True)
        found = self._answer("split_workload", samples, folder, "splitting the batch")
        if isinstance(found, BatchSplitError):
            raise found
        return found, folder / SPLIT

    def _answer(self, function: str, sizes: tuple[int, ...], folder: Path, stage: str) -> Any:
        answer = self._loader.call(
            f"{_SPLITTER}:{function}",
            sizes,
            str(folder),
            time_limit_s=self._source.time_limit_s,
        )
        return _must_answer(answer, self._source, stage)


def _check(options: AnalyzeOptions) -> None:
    """Refuse what cannot work before anything is started.

    Raises:
        AdvisorError: what is wrong, and what to do.
    """
    source_kind(Path(options.source.path))
    check_names(options.candidates or ())


def _must_answer(answer: Any, source: ModelSource, stage: str) -> Any:
    if not isinstance(answer, ChildFailure):
        return answer
    place = _place(answer, Path(source.path))
    hints = {
        "crashed": "the file's own code ended the process; run it with python to see why",
        "timed-out": "raise --time-limit, or look for a loop that does not end",
        "out-of-memory": "make the model or its example data smaller",
    }
    tail = f"\nIt last printed:\n{answer.output_tail.strip()}" if answer.output_tail.strip() else ""
    raise ModelError(f"{place}: {stage} failed: {answer.message}{tail}", hint=hints[answer.cause])


def _place(failure: ChildFailure, path: Path) -> str:
    """Return the file and line of the user's code that ran last, if known, else the model file."""
    for file, line in failure.stack:
        if is_user_code(file, path):
            return f"{file}:{line}"
    return str(path)
