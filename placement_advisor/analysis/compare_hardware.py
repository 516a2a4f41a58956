"""`advisor compare-hardware`: what each further device of a machine brings a model.

The model is traced at its batch, at shares of it and at multiples; then each machine is simulated.
Every figure is assumed; nothing runs.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.analysis.host_traces import HostTraces
from placement_advisor.analysis.machine_scaling import HardwareComparison
from placement_advisor.analysis.prices_elsewhere import check_priced, is_cluster_file
from placement_advisor.analysis.scaled_machine import scaled_machine
from placement_advisor.analysis.traced_model import traced_model
from placement_advisor.candidates.batch_split.shares import shares_of
from placement_advisor.candidates.batch_split.split_traces import unsplit
from placement_advisor.candidates.rationale_phrases import counted
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError
from placement_advisor.machine.cluster_file import load_machine
from placement_advisor.machine.hierarchy import read_machine
from placement_advisor.processes.call_failure import CallFailure
from placement_advisor.processes.children import Child, preload
from placement_advisor.tf.calls import splitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.candidates.batch_split.split_traces import SplitTraces
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.hierarchy import Machine
    from placement_advisor.testbed.trial import Watcher
    from placement_advisor.tf.load.model_source import ModelSource


def compare_hardware(
    source: ModelSource,
    hardware: Sequence[str],
    prices: Sequence[float] | None,
    watcher: Watcher,
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
    traces = HostTraces(unsplit(traced.graph, batch), splits, larger)
    scaled = []
    # Ops by the hundred thousand: looking for cycles among them takes a fifth of the time.
    gc.disable()
    try:
        for done, machine in enumerate(machines):
            watcher.working("simulating", done, len(machines))
            price = None if prices is None else prices[done]
            scaled.append(scaled_machine(machine, traces, price))
    finally:
        gc.enable()
    return HardwareComparison(
        model=traced.name,
        mode=traced.mode,
        batch=batch,
        ops=len(traced.graph),
        machines=tuple(scaled),
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
