"""`advisor balance`: load -> trace at several batch sizes -> time each device alone -> shares."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.analysis.batch_times import (
    Splits,
    memory_of,
    time_devices,
    with_every_device,
)
from placement_advisor.analysis.traced_model import check_runs, child_ended, traced_model
from placement_advisor.candidates.batch_split.plan import (
    SPLIT,
    check_no_pairs,
    share_folder,
    shares_of,
)
from placement_advisor.cost.batch import MAX_MISFIT, split_step
from placement_advisor.cost.batch_balance import (
    Balance,
    best_by_lines,
    largest_alone,
    misfit_of,
    other_batches,
    sizes_to_time,
)
from placement_advisor.cost.batch_memory import best_batch
from placement_advisor.errors import AdvisorError, BatchSplitError, ModelError, TestbedError
from placement_advisor.files.own_folders import scratch_folder
from placement_advisor.machine.testbed_plan import (
    ONE_PROCESS,
    TestbedKind,
    plan_testbed,
    with_load,
    with_network,
)
from placement_advisor.processes.calls import expect
from placement_advisor.processes.children import Child, preload
from placement_advisor.testbed.testbed import Testbed
from placement_advisor.tf.calls import splitter
from placement_advisor.tf.load.model_source import source_kind
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement_advisor.machine.testbed_plan import TestbedPlan
    from placement_advisor.testbed.benchmark import ProgressReporter
    from placement_advisor.tf.answers import TracedShare, TracedSplit
    from placement_advisor.tf.load.model_source import ModelSource


def balance(
    source: ModelSource,
    testbed: TestbedKind | None,
    devices: int,
    memory_bytes: Sequence[int] | None,
    open_ports: bool,
    watcher: ProgressReporter,
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
    plan = with_network(plan, open_ports=open_ports, instead=ONE_PROCESS, note=watcher.note)
    plan = with_load(plan, watcher.note)
    if memory_bytes is not None:
        plan = _with_memory(plan, memory_bytes)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        watcher.working("importing TensorFlow", 0, 1)
        preload()
        loader = stack.enter_context(Child("loader"))
        traced = traced_model(source, None, loader, watcher)
        check_runs(traced, source)
        batch = traced.batch_size
        if batch is None:
            raise ModelError(f"{source.path}: {traced.name}: its inputs hold no batch")
        even = shares_of(batch, [1.0] * len(plan.devices))
        watcher.working("tracing other batch sizes", 0, 1)
        steps = _StepsAtBatches(source, traced.name, loader, scratch)
        shares = steps.traced(sizes_to_time(batch))
        _check_no_pairs(source, traced.name, shares)
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
        off = misfit_of(speeds)
        splits = Splits(running, steps.split, most, watcher)
        warnings, advised = list(plan.warnings), by_lines.batches
        try:
            if splits.fit(even):
                splits.time([even])
            advised = splits.search(with_every_device(advised))
        except BatchSplitError as error:
            if off > MAX_MISFIT:
                raise ModelError(
                    f"{source.path}: no split can be run: {error.message}; and step times of "
                    f"devices alone, {format_share(off)} off a line over the batch, tell of none"
                ) from None
            warnings.append(f"no split was run: {error.message}")
        running.close()
    if off > MAX_MISFIT:
        warnings.append(
            f"step times are {format_share(off)} off the line over the batch: nothing is said of "
            "other batches"
        )
    return Balance(
        model=source.path if source.name is None else f"{source.path}:{source.name}",
        testbed=plan.description,
        batch=batch,
        batch_was_asked=source.batch_size is not None,
        devices=speeds,
        memory=memory,
        most=tuple(most),
        best=by_lines,
        even=split_step([speed.line for speed in speeds], even),
        others=() if off > MAX_MISFIT else other_batches(speeds, batch, most),
        best_batch=None if off > MAX_MISFIT else best_batch([speed.line for speed in speeds], most),
        advised=advised,
        tried=splits.tried(),
        warnings=tuple(warnings),
    )


def _check_no_pairs(source: ModelSource, name: str, shares: Mapping[int, TracedShare]) -> None:
    """Check that shares of the batch make up what the whole computes.

    Raises:
        ModelError: they do not.
    """
    (most, whole), *smaller = sorted(shares.items(), reverse=True)
    try:
        for samples, share in smaller:
            check_no_pairs(whole.graph, share.graph, most / samples)
    except BatchSplitError as error:
        raise ModelError(f"{source.path}: {name}: {error.message}") from None


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
        answer = self._loader.call(
            splitter.trace_shares, sizes, str(self._scratch), time_limit_s=self._source.time_limit_s
        )
        if isinstance(answer, BatchSplitError):
            raise ModelError(f"{self._source.path}: {self._name}: {answer.message}")
        return expect(answer, partial(child_ended, self._source, "tracing other batch sizes"))

    def split(self, samples: tuple[int, ...]) -> tuple[TracedSplit, Path]:
        """Split the batch; return the split step and the folder of what is needed to run it.

        Raises:
            BatchSplitError: it cannot be split so.
        """
        folder = self._scratch / ":".join(map(str, samples))
        folder.mkdir(exist_ok=True)
        answer = self._loader.call(
            splitter.split_workload, samples, str(folder), time_limit_s=self._source.time_limit_s
        )
        if isinstance(answer, BatchSplitError):
            raise answer
        found = expect(answer, partial(child_ended, self._source, "splitting the batch"))
        return found, folder / SPLIT
