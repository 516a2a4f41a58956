"""`advisor compare-hardware`: what each further device of a machine brings a model.

The model is traced at its batch, at shares of it and at multiples; then each machine is simulated.
With the batch shared among the devices of one host, it is the stages of `advisor analyze` that
propose, predict and rule, so that both give one answer. Every figure is assumed; nothing runs.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor import defaults
from placement_advisor.analysis.assemble import answer_of, candidates_of
from placement_advisor.analysis.batch_splits import split_batch
from placement_advisor.analysis.host_traces import HostTraces
from placement_advisor.analysis.machine_scaling import HardwareComparison, ScaledStep, Scaling
from placement_advisor.analysis.options import AnalyzeOptions, effort_of
from placement_advisor.analysis.predict import bound_of, predict
from placement_advisor.analysis.price import assume_prices
from placement_advisor.analysis.prices_elsewhere import Elsewhere, check_priced, is_cluster_file
from placement_advisor.analysis.propose import propose_all
from placement_advisor.analysis.run import Results
from placement_advisor.analysis.scaled_machine import scaled_machine
from placement_advisor.analysis.scaled_steps import limit_of
from placement_advisor.analysis.subject import Subject
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.candidates.batch_split.plan import shares_of
from placement_advisor.candidates.batch_split.split_graph import unsplit
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.machine.cluster_file import load_machine
from placement_advisor.machine.hierarchy import read_machine
from placement_advisor.processes.calls import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.tf.calls import splitter
from placement_advisor.units import NS_PER_S, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.analysis.machine_scaling import MachineScaling
    from placement_advisor.analysis.predict import Forecast
    from placement_advisor.candidates.batch_split.split_graph import SplitTraces
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.hierarchy import Machine
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import TracedSplit
    from placement_advisor.tf.load.model_source import ModelSource

    Splits = dict[tuple[str, ...], TracedSplit | BatchSplitError]


def compare_hardware(
    source: ModelSource,
    hardware: Sequence[str],
    prices: Sequence[float] | None,
    watcher: ProgressReporter,
) -> HardwareComparison:
    """Simulate a model on each machine, on ever more of its devices.

    ``hardware`` has descriptions as of `read_hardware` or paths of cluster files, ``prices`` what a
    device of each costs an hour.

    Raises:
        AdvisorError: anything that the user can fix.
    """
    if prices is not None and len(prices) != len(hardware):
        raise AdvisorError(
            f"--price: {counted(len(prices), 'price')} for {counted(len(hardware), 'machine')}",
            hint="give --price once for each machine, in their order",
        )
    machines = [_machine(text) for text in hardware]
    shared_by: set[int] = set()
    # How large a batch fits is told from two, of one device as well.
    within: set[int] = {2}
    for machine in machines:
        counts, of_host = machine.device_counts(), len(machine.host.devices)
        # Where layers are split within hosts, each host has a share.
        shared_by.update(counts, (count // of_host for count in counts))
        within.update(min(count, of_host) for count in counts)
    # One host is what `advisor analyze` takes.
    answered = {c for m in machines if not m.levels for c in m.device_counts()[1:]}
    options = _options(source)
    watcher.working("importing TensorFlow", 0, 1)
    preload()
    with Child("loader") as loader:
        traced = traced_model(source, None, loader, watcher)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        splits: dict[int, SplitTraces | BatchSplitError] = {}
        for done, count in enumerate(sorted(shared_by - {0, 1})):
            watcher.working("splitting the batch", done, len(shared_by - {0, 1}))
            splits[count] = _split(loader, batch, count, source.time_limit_s)
        larger: dict[int, OpGraph | BatchSplitError] = {}
        for done, times in enumerate(sorted(within - {1})):
            watcher.working("tracing larger batches", done, len(within - {1}))
            larger[times] = _larger(loader, times, source.time_limit_s)
        splits_to_place: dict[int, Splits] = {
            count: split_batch(options, count, traced, None, loader, watcher)
            for count in sorted(answered)
        }
    traces = HostTraces(unsplit(traced.graph, batch), splits, larger)
    scaled = []
    # Ops by the hundred thousand: looking for cycles among them takes a fifth of the time.
    gc.disable()
    try:
        for done, machine in enumerate(machines):
            watcher.working("simulating", done, len(machines))
            price = None if prices is None else prices[done]
            found = scaled_machine(machine, traces, price)
            for count in [] if machine.levels else machine.device_counts()[1:]:
                watcher.working(f"searching placements on {count} devices", done, len(machines))
                host = machine.host.with_devices(machine.host.device_names()[:count])
                elsewhere = Elsewhere(label=machine.label, cluster=host, recorded=None)
                subject = Subject(
                    options=options,
                    plan=elsewhere.plan(),
                    traced=traced,
                    splits=splits_to_place[count],
                    growth=None,
                )
                found = with_answer(found, subject, elsewhere)
            scaled.append(found)
    finally:
        gc.enable()
    return HardwareComparison(
        model=traced.name,
        mode=traced.mode,
        batch=batch,
        ops=len(traced.graph),
        machines=tuple(scaled),
    )


def _options(source: ModelSource) -> AnalyzeOptions:
    """Return what `advisor analyze --hardware` is asked where no option is given."""
    return AnalyzeOptions(
        source=source,
        devices=defaults.DEVICES,
        hardware=None,
        costs=None,
        testbed=None,
        candidates=None,
        ratios=None,
        effort=effort_of(None, 0, quick=False),
        steps=defaults.STEPS,
        rounds=None,
        refine=defaults.REFINE,
        run=True,
        quick=False,
        open_ports=False,
        output=None,
    )


def with_answer(found: MachineScaling, subject: Subject, elsewhere: Elsewhere) -> MachineScaling:
    """Add what `advisor analyze` answers on some devices, in place of what it did on fewer."""
    options, cluster = subject.options, elsewhere.cluster
    priced = assume_prices(subject, elsewhere)
    own = subject.traced.requested_device_of
    proposals = propose_all(
        subject.graph, priced, options.families, options.effort, requested_device_of=own
    )
    forecast = predict(proposals)
    candidates = candidates_of(forecast, Results())
    answer = answer_of(subject, forecast, Results(), candidates, bound_of(forecast))
    split = next((c for c in candidates if c.name == answer.candidate), None)
    devices, samples = len(cluster.devices), found.alone[0].samples
    row = None if split is None else _row(forecast, split, devices, samples)
    # Fewer devices may do better.
    fewer = [step for step in found.best(Scaling.STRONG) if step.devices > 1][-1:]
    if fewer and (row is None or fewer[0].step_ns < row.step_ns):
        row = replace(fewer[0], devices=devices)
    rows = () if row is None else (replace(row, verdict=answer.verdict),)
    return replace(found, rows=(*found.rows, *rows), answer=answer.answer, verdict=answer.verdict)


def _row(forecast: Forecast, split: Candidate, devices: int, samples: int) -> ScaledStep | None:
    """Return a candidate as a step on so many devices, None if it was not predicted."""
    alone = forecast.predicted[defaults.BASELINE]
    if split.placement is None or split.predicted is None:
        return None
    proposals, placement = forecast.proposals, split.placement
    cluster, of_split = proposals.prices.cluster, proposals.splits.get(split.name)
    simulator = proposals.simulator if of_split is None else of_split.simulator
    bare = cluster.scaled(copies=1, launches=0)
    step = simulator.outline(simulator.devices_of(placement))
    alone_ns, step_ns = alone.schedule.step_ns, split.predicted.step_ns
    bare_alone_ns = proposals.simulator.on(bare).step_ns(proposals.placements[defaults.BASELINE])
    used = {*placement.device_of.values()} & {*cluster.device_names()}
    fits = alone.too_large is None
    share = 1.0 if split.samples is None else 1 / len(split.samples)
    return ScaledStep(
        scaling=Scaling.STRONG,
        family=split.name,
        devices=devices,
        used=len(used),
        samples=samples,
        step_ns=step_ns,
        alone_per_s=samples / alone_ns * NS_PER_S if fits else None,
        ratio=split.predicted_ratio if fits else None,
        without_launches=simulator.on(bare).step_ns(placement) / bare_alone_ns,
        limit=limit_of(step, cluster, alone_ns / devices, share),
    )


def _machine(text: str) -> Machine:
    """Return the machine that a text or a cluster file describes.

    Raises:
        AdvisorError: it describes none.
    """
    machine = load_machine(Path(text)) if is_cluster_file(text) else read_machine(text)
    check_priced(text, machine.host)
    return machine


def _split(
    loader: Child, batch: int, count: int, time_limit_s: float
) -> SplitTraces | BatchSplitError:
    try:
        samples = shares_of(batch, [1.0] * count)
    except BatchSplitError as error:
        return error
    answer = loader.call(splitter.trace_split, samples, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        return BatchSplitError(f"splitting it failed: {answer.message}")
    return answer


def _larger(loader: Child, times: int, time_limit_s: float) -> OpGraph | BatchSplitError:
    answer = loader.call(splitter.trace_repeated, times, time_limit_s=time_limit_s)
    if isinstance(answer, CallFailure):
        return BatchSplitError(f"tracing {times} times its batch failed: {answer.message}")
    return answer
